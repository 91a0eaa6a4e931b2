"""The command `evalgrad`: one module of `commands` per subcommand, imported when it is used."""

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version

# Each module has `add_arguments(parser)` and `run(arguments) -> int`, the exit code.
COMMANDS: dict[str, tuple[str, str]] = {
    "compare": (
        "evalgrad_lab.commands.compare",
        "Train all losses of a task alike, and report where training on the metric paid.",
    ),
    "search": (
        "evalgrad_lab.commands.search",
        "Tune every loss with the same search on validation; writes OUT/hyperparameters.json.",
    ),
    "train": (
        "evalgrad_lab.commands.train",
        "Train a model on your data for the metric it is judged by.",
    ),
    "evaluate": ("evalgrad_lab.commands.evaluate", "Measure a trained model on data with targets."),
    "predict": ("evalgrad_lab.commands.predict", "Write what a trained model says of new data."),
    "losses": ("evalgrad_lab.commands.losses", "Print which loss is for which task and metric."),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command."""
    parser = argparse.ArgumentParser(
        prog="evalgrad", description="Train on the metric you are judged by."
    )
    parser.add_argument("--version", action="version", version=f"evalgrad {version('evalgrad')}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (_, summary) in COMMANDS.items():
        subparsers.add_parser(name, help=summary, add_help=False)
    command, rest = parser.parse_known_args(arguments)
    module, summary = COMMANDS[command.command]
    return guarded(f"evalgrad {command.command}", lambda: _run(module, summary, rest, command))


def _run(module: str, summary: str, rest: Sequence[str], command: argparse.Namespace) -> int:
    """Import the command's module, and give it what its own options say."""
    parser = argparse.ArgumentParser(prog=f"evalgrad {command.command}", description=summary)
    imported = importlib.import_module(module)
    imported.add_arguments(parser)
    return int(imported.run(parser.parse_args(rest)))


def guarded(prog: str, work: Callable[[], int]) -> int:
    """The exit code of `work`. What the user can repair ends in one sentence and code 2."""
    from evalgrad_lab.errors import UserError

    try:
        return work()
    except UserError as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        print(
            f"{prog}: {error.name} is missing. Install the lab: pip install 'evalgrad[lab]'.",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        print(
            f"{prog}: interrupted; what is finished is kept, the same command goes on.",
            file=sys.stderr,
        )
        return 130
