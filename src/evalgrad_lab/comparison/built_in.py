"""The plan of a comparison on built-in tasks: which losses, budgets and seeds are run."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from evalgrad_lab import tasks
from evalgrad_lab.commands.compare import CompareOptions
from evalgrad_lab.commands.search import chosen
from evalgrad_lab.errors import UserError
from evalgrad_lab.report.records import Record, shown_under
from evalgrad_lab.runs import Runs
from evalgrad_lab.tasks.demo import DEMO, Selection
from evalgrad_lab.tasks.task import EQUAL_TIME, Task
from evalgrad_lab.trials import in_equal_time, trial


def records(options: CompareOptions, runs: Runs) -> list[Record]:
    """Records of all runs; runs that have not finished yet are trained."""
    planned = plan(options)
    timed = [
        {n: v for n, v in one.items() if n != "seed"} for one, b in planned if _is_timed(one, b)
    ]
    counts = iter(runs.run(in_equal_time, timed, title="time"))
    settings = [
        {**one, "iterations": next(counts)} if _is_timed(one, budget) else one
        for one, budget in planned
    ]
    found = runs.run(trial, settings, title="compare")
    return shown_under([budget for _, budget in planned], found)


def _is_timed(settings: dict[str, Any], budget: str) -> bool:
    """Whether its iterations are to be measured. In equal time the reference does what the time is
    taken from: the run of its first budget.
    """
    reference = tasks.find(settings["task"]).methods[0].name
    return budget == EQUAL_TIME and settings["loss"] != reference


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
    for budget in options.at or selection.budgets or task.budgets:
        for loss in (name for name in names if name in shown):
            hyper = hyperparameters(found, task, loss, options.hyperparameters)
            for seed in range(options.seeds or selection.seeds or task.seeds):
                fixed = {"task": task.name, "loss": loss, "hyper": hyper, "seed": seed}
                yield {**fixed, "iterations": iterations_of(task, budget)}, budget


def iterations_of(task: Task, budget: str) -> int:
    """The iterations of a budget; of equal time those of the reference."""
    if budget == EQUAL_TIME:
        return task.iterations[0]
    number, _, unit = budget.partition(" ")
    if unit != "iterations" or not number.isdecimal() or int(number) < 1:
        raise UserError(
            f'--at must be "N iterations" or "{EQUAL_TIME}"; got {budget!r}. The budgets of'
            f" {task.name} are {task.budgets}."
        )
    return int(number)


def hyperparameters(found: dict[str, Any], task: Task, loss: str, path: Path) -> dict[str, float]:
    """What the search found for the loss: nothing is compared untuned."""
    try:
        return found[task.name]["losses"][loss]["hyper"]
    except KeyError:
        raise UserError(
            f"{path} must hold {loss} of {task.name}; it has no such entry. Run `evalgrad search"
            f" {task.name} --out OUT`, then pass --hyperparameters OUT/hyperparameters.json."
        ) from None
