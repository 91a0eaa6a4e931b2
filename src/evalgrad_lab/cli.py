"""The command `evalgrad`: one module of `commands` per subcommand, imported when it is used."""

import argparse
import importlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version

from evalgrad_lab.errors import UserError
from evalgrad_lab.options import parse
from evalgrad_lab.terminal import say

# Each is a module of `commands` with a dataclass of options, called TrainOptions for `train`, and
# `main(options) -> int`, the exit code.
COMMANDS = {
    "compare": "Compare losses under equal conditions: where does training on the metric help?",
    "search": "Tune every loss with the same search; writes hyperparameters.json.",
    "train": "Train a model on your data for the metric it is judged by.",
    "evaluate": "Measure a trained model on data with targets.",
    "predict": "Write the predictions of a trained model for new data.",
    "export": "Export a trained network with its decision rule (torch.export, ONNX).",
    "losses": "List the losses, with their tasks and metrics.",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command."""
    parser = argparse.ArgumentParser(
        prog="evalgrad", description="Train on the metric you are judged by."
    )
    parser.add_argument("--version", action="version", version=f"evalgrad {version('evalgrad')}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary in COMMANDS.items():
        subparsers.add_parser(name, help=summary, add_help=False)
    known, rest = parser.parse_known_args(arguments)
    return guarded(f"evalgrad {known.command}", lambda: _run(known.command, rest))


def _run(command: str, rest: Sequence[str]) -> int:
    """Import the command's module, and give it what its own options say."""
    module = importlib.import_module(f"evalgrad_lab.commands.{command}")
    # argparse's own usage names all options, a page before the one line that says what is wrong
    usage = f"evalgrad {command} ...; `evalgrad {command} --help` lists the options"
    prog, description = f"evalgrad {command}", COMMANDS[command]
    parser = argparse.ArgumentParser(prog=prog, usage=usage, description=description)
    options = parse(getattr(module, f"{command.capitalize()}Options"), parser, rest)
    return int(module.main(options))


OUT_OF_MEMORY = ("can't allocate memory", "out of memory")  # torch's words on a CPU and on a GPU


def guarded(prog: str, work: Callable[[], int]) -> int:
    """The exit code of `work`. What the user can repair ends in one sentence and code 2."""
    try:
        with _sigterm_raises():
            return work()
    except UserError as error:
        said, code = str(error), 2
    except ModuleNotFoundError as error:
        install = "pip install '.[lab]' in a clone of evalgrad"
        said, code = f"{error.name} is missing. Install the lab: {install}.", 2
    except (MemoryError, OSError) as error:
        said, code = _of_the_system(error), 2
    except RuntimeError as error:
        if not any(words in str(error) for words in OUT_OF_MEMORY):
            raise
        said, code = _of_the_system(MemoryError(str(error).splitlines()[0])), 2
    except KeyboardInterrupt as error:
        said = "interrupted; finished work is kept, and the same command resumes."
        code = 128 + (signal.SIGTERM if isinstance(error, Ended) else signal.SIGINT)
    say(f"{prog}: {said}")
    return code


def _of_the_system(error: MemoryError | OSError) -> str:
    """What the system refused, where nothing nearer to it said so."""
    if isinstance(error, MemoryError):
        why = f" ({error})" if str(error) else ""
        repair = "Use less data, a smaller --batch-size or fewer --jobs."
        return f"there is not enough memory{why}. {repair}"
    repair = "Check the path, its permissions and the space on the disk."
    return f"{error.filename or 'a file'} cannot be used ({error.strerror or error}). {repair}"


class Ended(KeyboardInterrupt):
    """SIGTERM, by which a job scheduler ends a process, is handled like Ctrl-C."""


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """Within, SIGTERM is `Ended`: no file is left half-written. Whoever handles it already does."""
    main_thread = threading.current_thread() is threading.main_thread()
    if not main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def end(*_: object) -> None:
        raise Ended

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
