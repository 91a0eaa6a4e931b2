"""The command `evalgrad compare`: train every loss of the tasks alike, and say where training on
the metric paid.
"""

import argparse
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

from evalgrad_lab import report, tasks
from evalgrad_lab.commands import search
from evalgrad_lab.errors import UserError
from evalgrad_lab.pool import finish
from evalgrad_lab.runs import Run
from evalgrad_lab.store import Store, write_atomically
from evalgrad_lab.tasks.demo import DEMO, Selection
from evalgrad_lab.tasks.task import EQUAL_TIME, Task

PACKAGES = ("evalgrad", "torch", "lightning", "scikit-learn", "numpy")


@dataclass(frozen=True)
class Planned:
    """One line of the plan: a run, and the budget it is shown under."""

    run: Run
    budget: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `evalgrad compare`."""
    names = ", ".join(tasks.TASKS)
    parser.add_argument(
        "tasks",
        nargs="*",
        metavar="TASK",
        help=f"tasks, or a family such as two-mode (the demo, five minutes): {names}",
    )
    parser.add_argument(
        "--losses", nargs="+", metavar="LOSS", help="only these losses of the tasks (all)"
    )
    parser.add_argument("--seeds", type=int, help="number of seeds (as the task says, mostly 5)")
    parser.add_argument(
        "--budget",
        action="append",
        metavar="BUDGET",
        help='"N iterations" or "equal time"; may be repeated (all of the task)',
    )
    parser.add_argument(
        "--hyperparameters",
        type=Path,
        default=search.HYPERPARAMETERS,
        help="what `evalgrad search` wrote (that of the built-in tasks)",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (one per core)")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs"),
        help="folder for the report and the finished runs (runs)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Train what is not trained yet; print the table and write `report.html` and
    `comparison.json`.
    """
    console, start = Console(), time.monotonic()
    planned = plan(arguments)
    store = Store(arguments.out / "store")
    records = finish(
        [line.run for line in planned], store, jobs=arguments.jobs, title="compare", console=console
    )
    labelled = [
        {**record, "budget": line.budget} for line, record in zip(planned, records, strict=True)
    ]
    comparison: Any = {
        "records": labelled,
        "command": _command(),
        "versions": _versions(),
        "machine": _machine(arguments.jobs),
    }
    write_atomically(arguments.out / "comparison.json", json.dumps(comparison).encode())
    report.write_report(comparison, arguments.out / "report.html")
    report.print_table(comparison, console)
    console.print(
        f"Report: {arguments.out / 'report.html'} ({len(records)} runs,"
        f" {time.monotonic() - start:.0f} s)"
    )
    return 0


def plan(arguments: argparse.Namespace) -> list[Planned]:
    """All runs asked for, task by task."""
    selections = [Selection(task) for task in tasks.called(arguments.tasks)] or DEMO
    known = {loss.name for selection in selections for loss in selection.task.losses}
    if unknown := set(arguments.losses or ()) - known:
        raise UserError(
            f"--losses must name losses of the tasks; got {', '.join(sorted(unknown))}. They have"
            f" {', '.join(sorted(known))}."
        )
    if arguments.seeds is not None and arguments.seeds < 1:
        raise UserError(f"--seeds must be at least 1; got {arguments.seeds}. Five show a spread.")
    return [line for selection in selections for line in _plan(selection, arguments)]


def _plan(selection: Selection, arguments: argparse.Namespace) -> Iterable[Planned]:
    task, found = selection.task, search.chosen(arguments.hyperparameters)
    losses = [
        loss
        for loss in task.losses
        if loss.name
        in (arguments.losses or selection.losses or {loss.name for loss in task.losses})
    ]
    for budget in arguments.budget or selection.budgets or task.budgets:
        for loss in losses:
            hyper = hyperparameters(found, task, loss.name, arguments.hyperparameters)
            for seed in range(arguments.seeds or selection.seeds or task.seeds):
                yield Planned(budgeted(task, loss.name, hyper, seed, budget), budget)


def budgeted(task: Task, loss: str, hyper: dict[str, float], seed: int, budget: str) -> Run:
    """The run of a budget. In equal time the reference does what the time is taken from: the run of
    its first budget.
    """
    if budget == EQUAL_TIME:
        return Run(
            task.name, loss, hyper, seed, task.iterations[0], equal_time=loss != task.losses[0].name
        )
    number, _, unit = budget.partition(" ")
    if unit != "iterations" or not number.isdecimal() or int(number) < 1:
        raise UserError(
            f'--budget must be "N iterations" or "{EQUAL_TIME}"; got {budget!r}. The budgets of'
            f" {task.name} are {task.budgets}."
        )
    return Run(task.name, loss, hyper, seed, int(number))


def hyperparameters(found: dict[str, Any], task: Task, loss: str, path: Path) -> dict[str, float]:
    """What the search found for the loss: nothing is compared untuned."""
    try:
        return found[task.name]["losses"][loss]["hyper"]
    except KeyError:
        raise UserError(
            f"{path} must hold {loss} of {task.name}; it has no such entry. Run `evalgrad search"
            f" {task.name} --out OUT`, then pass --hyperparameters OUT/hyperparameters.json."
        ) from None


def _command() -> str:
    return shlex.join(["evalgrad", *sys.argv[1:]])


def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}


def _machine(jobs: int) -> dict[str, Any]:
    return {
        "system": platform.platform(),
        "processor": platform.machine(),
        "cores": os.cpu_count() or 1,
        "jobs": jobs,
    }
