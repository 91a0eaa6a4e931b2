"""`evalgrad compare`: train every loss of the tasks alike, and say where training on the metric
paid.
"""

import json
import os
import platform
import shlex
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

from evalgrad_lab import report, tasks
from evalgrad_lab.commands.search import HYPERPARAMETERS, chosen
from evalgrad_lab.errors import UserError
from evalgrad_lab.options import Options, option
from evalgrad_lab.report.panels import Panel, panels
from evalgrad_lab.report.records import Comparison
from evalgrad_lab.runs import Runs
from evalgrad_lab.store import Store, write_atomically
from evalgrad_lab.tasks.demo import DEMO, Selection
from evalgrad_lab.tasks.task import EQUAL_TIME, Task
from evalgrad_lab.trials import trial

PACKAGES = ("evalgrad", "torch", "lightning", "scikit-learn", "numpy")


@dataclass(frozen=True, kw_only=True)
class CompareOptions(Options):
    """What `evalgrad compare` takes."""

    tasks: list[str] = option(
        [],
        help="tasks, or a family such as two-mode (the demo, five minutes); docs/lab.md names them",
        positional=True,
    )
    losses: list[str] | None = option(None, help="only these losses of the tasks (all)")
    seeds: int | None = option(None, help="number of seeds (as the task says, mostly 5)", least=1)
    budget: list[str] | None = option(
        None, help='"N iterations" or "equal time", several if wanted (all of the task)'
    )
    hyperparameters: Path = option(
        HYPERPARAMETERS, help="what `evalgrad search` wrote (that of the built-in tasks)"
    )
    jobs: int = option(os.cpu_count() or 1, help="processes (one per core)", least=1)
    out: Path = option(Path("runs"), help="folder for the report and the finished runs (runs)")


@dataclass(frozen=True)
class CompareResult:
    """The records of all runs, and what they say panel by panel."""

    comparison: Comparison
    panels: list[Panel]
    report: Path


def compare(options: CompareOptions) -> CompareResult:
    """Train what is not trained yet; write `report.html` and `comparison.json`."""
    planned = plan(options)
    with Runs(Store(options.out / "store"), options.jobs) as runs:
        records = runs.run(trial, [settings for settings, _ in planned], title="compare")
        if runs.reused:
            runs.console.print(f"{runs.reused} runs were finished already and are reused.")
    comparison: Any = {
        "records": [
            {**record, "budget": budget}
            for (_, budget), record in zip(planned, records, strict=True)
        ],
        "command": shlex.join(["evalgrad", *sys.argv[1:]]),
        "versions": {"python": platform.python_version(), **{n: version(n) for n in PACKAGES}},
        "machine": _machine(options.jobs),
    }
    path = options.out / "report.html"
    write_atomically(options.out / "comparison.json", json.dumps(comparison).encode())
    report.write_report(comparison, path)
    return CompareResult(comparison, panels(comparison["records"]), path)


def main(options: CompareOptions) -> int:
    """The command: also prints the table."""
    result = compare(options)
    console = Console()
    report.print_table(result.comparison, console)
    console.print(f"Report: {result.report} ({len(result.comparison['records'])} runs)")
    return 0


def plan(options: CompareOptions) -> list[tuple[dict[str, Any], str]]:
    """The settings of all runs asked for, task by task, each with the budget it is shown under."""
    selections = [Selection(task) for task in tasks.called(options.tasks)] or DEMO
    known = {method.name for selection in selections for method in selection.task.methods}
    if unknown := set(options.losses or ()) - known:
        raise UserError(
            f"--losses must name losses of the tasks; got {', '.join(sorted(unknown))}. They have"
            f" {', '.join(sorted(known))}."
        )
    return [line for selection in selections for line in _plan(selection, options)]


def _plan(selection: Selection, options: CompareOptions) -> Iterable[tuple[dict[str, Any], str]]:
    task, found = selection.task, chosen(options.hyperparameters)
    names = [method.name for method in task.methods]
    shown = options.losses or selection.losses or names
    for budget in options.budget or selection.budgets or task.budgets:
        for loss in (name for name in names if name in shown):
            hyper = hyperparameters(found, task, loss, options.hyperparameters)
            for seed in range(options.seeds or selection.seeds or task.seeds):
                fixed = {"task": task.name, "loss": loss, "hyper": hyper, "seed": seed}
                yield {**fixed, **budgeted(task, loss, budget)}, budget


def budgeted(task: Task, loss: str, budget: str) -> dict[str, Any]:
    """The iterations of a budget. In equal time the reference does what the time is taken from: the
    run of its first budget.
    """
    if budget == EQUAL_TIME:
        return {
            "iterations": task.iterations[0],
            "equal_time": loss != task.methods[0].name,
        }
    number, _, unit = budget.partition(" ")
    if unit != "iterations" or not number.isdecimal() or int(number) < 1:
        raise UserError(
            f'--budget must be "N iterations" or "{EQUAL_TIME}"; got {budget!r}. The budgets of'
            f" {task.name} are {task.budgets}."
        )
    return {"iterations": int(number), "equal_time": False}


def hyperparameters(found: dict[str, Any], task: Task, loss: str, path: Path) -> dict[str, float]:
    """What the search found for the loss: nothing is compared untuned."""
    try:
        return found[task.name]["losses"][loss]["hyper"]
    except KeyError:
        raise UserError(
            f"{path} must hold {loss} of {task.name}; it has no such entry. Run `evalgrad search"
            f" {task.name} --out OUT`, then pass --hyperparameters OUT/hyperparameters.json."
        ) from None


def _machine(jobs: int) -> dict[str, Any]:
    return {
        "system": platform.platform(),
        "processor": platform.machine(),
        "cores": os.cpu_count() or 1,
        "jobs": jobs,
    }
