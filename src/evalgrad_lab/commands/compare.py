"""`evalgrad compare`: train the losses under equal conditions, report where the metric helps."""

import json
import os
import platform
import shlex
from dataclasses import dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalgrad_lab.commands.search import HYPERPARAMETERS
from evalgrad_lab.commands.train import DataOptions, TaskName
from evalgrad_lab.errors import UserError
from evalgrad_lab.lock import held
from evalgrad_lab.options import default_of, flag, option
from evalgrad_lab.store import Store, write_atomically

if TYPE_CHECKING:
    from evalgrad_lab.report.panels import Panel
    from evalgrad_lab.report.records import Comparison

PACKAGES = ("evalgrad", "torch", "lightning", "scikit-learn", "numpy")
OWN = ("metric", "data", "budget", "trials", "search_seeds", "accelerator")
BUILT_IN = ("tasks", "at", "hyperparameters")


@dataclass(frozen=True, kw_only=True)
class CompareOptions(DataOptions):
    """Options of `compare` and of the command `evalgrad compare`: built-in tasks, or your own data
    with a task and a metric, and then the options of a training.

    Example:
        >>> CompareOptions(tasks=["digit-scenes"], seeds=5).arguments()
        ['digit-scenes', '--seeds', '5']
    """

    tasks: list[str] = option(
        [],
        help="tasks, or a prefix such as two-mode (the demo, 3 minutes); docs/lab.md lists them",
        positional=True,
    )
    at: list[str] | None = option(
        None, help='built-in tasks: "N iterations" or "equal time", one or more (all of the task)'
    )
    hyperparameters: Path = option(
        HYPERPARAMETERS, help="the file written by `evalgrad search` (that of the built-in tasks)"
    )
    task: TaskName | None = option(None, help="with --data: the kind of task")
    metric: str | None = option(None, help="with --data: the metric you are judged by")
    data: Path | None = option(None, help="your data, as for `evalgrad train`")
    budget: str | None = option(
        None, help="with --data: time limit of the whole comparison, such as 30min or 2h"
    )
    trials: int = option(
        8, help="with --data: hyper-parameter settings tried per loss (8)", least=1
    )
    search_seeds: int = option(2, help="with --data: seeds per setting (2)", least=1)
    accelerator: str = option(
        "cpu", help="with --data: as in Lightning; use --jobs 1 with gpu (cpu)"
    )
    losses: list[str] | None = option(None, help="only these losses (all; docs/lab.md)")
    seeds: int | None = option(None, help="number of seeds (that of the task, mostly 5)", least=1)
    jobs: int = option(os.cpu_count() or 1, help="processes (one per core)", least=1)
    out: Path = option(Path("runs"), help="folder for the report and finished runs (runs)")


@dataclass(frozen=True)
class CompareResult:
    """What `compare` returns.

    Attributes:
        comparison: the records of all runs, with versions and machine; `comparison.json`.
        panels: what they show, task by task: mean, spread and differences.
        report: the HTML report.
        winner: on your data: the loss that won; None if none did.
        model: on your data: the folder of the model.
        command: on your data: the command that trains the model again.

    Example:
        >>> found = folder / "hyperparameters.json"  # of `search`
        >>> options = {"tasks": ["tiny"], "at": ["3 iterations"], "hyperparameters": found}
        >>> result = compare(CompareOptions(jobs=1, out=folder, **options))
        >>> [panel.task for panel in result.panels], result.winner
        (['tiny'], None)
    """

    comparison: "Comparison"
    panels: "list[Panel]"
    report: Path
    winner: str | None
    model: Path | None
    command: str


def compare(options: CompareOptions) -> CompareResult:
    """Train every loss of the tasks alike, and write `report.html` and `comparison.json`.

    Runs that are finished are not trained again.

    Args:
        options: the tasks or your data, the number of seeds and the folder to write to.

    Example:
        >>> found = folder / "hyperparameters.json"  # of `search`
        >>> options = {"tasks": ["tiny"], "at": ["3 iterations"], "hyperparameters": found}
        >>> compare(CompareOptions(jobs=1, out=folder, **options)).report.name
        'report.html'
    """
    _check(options)
    with held(options.out):  # another comparison would replace the report
        return _compared(options)


def _compared(options: CompareOptions) -> CompareResult:
    from evalgrad_lab import report
    from evalgrad_lab.comparison import built_in, own
    from evalgrad_lab.report.panels import panels
    from evalgrad_lab.runs import Runs

    with Runs(Store(options.out / "store"), options.jobs) as runs:
        if options.data:
            found = own.Own(options, runs).compared()
        else:
            found = {"records": built_in.records(options, runs)}
        if runs.reused:
            runs.console.print(f"{runs.reused} runs were finished already and are reused.")
    comparison: Any = {
        **found,
        "command": shlex.join(["evalgrad", "compare", *options.arguments()]),
        "versions": {"python": platform.python_version(), **{n: version(n) for n in PACKAGES}},
        "machine": {
            "system": platform.platform(),
            "processor": platform.machine(),
            "cores": os.cpu_count() or 1,
            "jobs": options.jobs,
        },
    }
    path = options.out / "report.html"
    write_atomically(options.out / "comparison.json", json.dumps(comparison).encode())
    report.write_report(comparison, path)
    model = Path(found["model"]) if "model" in found else None
    more = (found.get("winner"), model, found.get("train_command", ""))
    return CompareResult(comparison, panels(found["records"]), path, *more)


def main(options: CompareOptions) -> int:
    """The command: also prints the table."""
    result = compare(options)
    from rich.console import Console

    from evalgrad_lab import report

    console = Console()
    report.print_table(result.comparison, console)
    if "conclusion" in result.comparison:
        console.print(result.comparison["conclusion"], style="bold", highlight=False, markup=False)
        print(f"{result.model} holds the model; this command trains it again:\n{result.command}")
    console.print(f"Report: {result.report} ({len(result.comparison['records'])} runs)")
    return 0


def _check(options: CompareOptions) -> None:
    """Raise for an option of the other kind of comparison, which would do nothing."""
    own = {one.name for one in fields(DataOptions)} | set(OWN) | {"task"}
    wrong, why = own, "is for comparisons on your data. Pass --data, or drop it"
    if options.data is not None:
        wrong, why = set(BUILT_IN), "is for built-in tasks. Drop it, or --data"
        if options.task is None or options.metric is None:
            raise UserError("--data needs --task and --metric.")
    for one in fields(options):
        if one.name in wrong and getattr(options, one.name) != default_of(one):
            raise UserError(f"{flag(one)} {why}.")
