"""The command `evalgrad`: one module of the lab per subcommand, imported only when it is used."""

import argparse
import importlib
import sys
from collections.abc import Sequence

# Each module has `add_arguments(parser)` and `run(arguments) -> int`, the exit code.
COMMANDS: dict[str, tuple[str, str]] = {
    "compare": (
        "evalgrad.lab.compare",
        "Train all losses of a task alike, and report where training on the metric paid.",
    ),
    "search": (
        "evalgrad.lab.search",
        "Tune every loss with the same search on validation; writes lab/hyperparameters.json.",
    ),
    "train": (
        "evalgrad.lab.training.train",
        "Train a model on your data for the metric it is judged by.",
    ),
    "evaluate": ("evalgrad.lab.training.evaluate", "Measure a trained model on data with targets."),
    "predict": ("evalgrad.lab.training.predict", "Write what a trained model says of new data."),
    "losses": ("evalgrad.lab.training.losses", "Print which loss is for which task and metric."),
    "reproduce": ("evalgrad.lab.reproduce", "Run the papers' experiments and write their pages."),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. What the user can repair ends in one sentence and exit code 2."""
    parser = argparse.ArgumentParser(
        prog="evalgrad", description="Train on the metric you are judged by."
    )
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (_, summary) in COMMANDS.items():
        subparsers.add_parser(name, help=summary, add_help=False)
    command, rest = parser.parse_known_args(arguments)
    try:
        from evalgrad.lab.errors import UserError

        module = importlib.import_module(COMMANDS[command.command][0])
    except ModuleNotFoundError as error:
        print(
            f"evalgrad {command.command}: {error.name} is missing. Install the lab: pip install"
            " 'evalgrad[lab]'.",
            file=sys.stderr,
        )
        return 2
    subparser = argparse.ArgumentParser(
        prog=f"evalgrad {command.command}", description=COMMANDS[command.command][1]
    )
    module.add_arguments(subparser)
    try:
        return int(module.run(subparser.parse_args(rest)))
    except UserError as error:
        print(f"evalgrad {command.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            f"evalgrad {command.command}: interrupted; what is finished is kept, the same command"
            " goes on.",
            file=sys.stderr,
        )
        return 130
