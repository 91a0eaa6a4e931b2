"""The command `evalgrad search`: the same search on validation for every loss, written to
`hyperparameters.json`.

Every loss of a task has the same number of candidates and the same seeds, which `compare` does not
use. The file is written by this command alone; each task keeps the command that searched it.
"""

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console

from evalgrad.lab import tasks
from evalgrad.lab.errors import UserError
from evalgrad.lab.pool import finish
from evalgrad.lab.runs import Run
from evalgrad.lab.store import Store, write_atomically
from evalgrad.lab.tasks.task import Loss, Task

HYPERPARAMETERS = Path(__file__).parent / "hyperparameters.json"
FIRST_SEED = 1000  # far from those of `compare`
SEEDS = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `evalgrad search`."""
    parser.add_argument(
        "tasks",
        nargs="*",
        metavar="TASK",
        help=f"tasks, or a family such as two-mode (all): {', '.join(tasks.TASKS)}",
    )
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"seeds per candidate ({SEEDS})")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (one per core)")
    parser.add_argument(
        "--out", type=Path, default=Path("runs"), help="folder of finished runs (runs)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Train all candidates of all tasks asked for, then write what is best."""
    if arguments.seeds < 1:
        raise UserError(
            f"--seeds must be at least 1; got {arguments.seeds}. More of them choose more surely."
        )
    wanted = tasks.called(arguments.tasks or tasks.TASKS)
    console, seeds = Console(), [FIRST_SEED + i for i in range(arguments.seeds)]
    planned = [run for task in wanted for loss in task.losses for run in runs_of(task, loss, seeds)]
    records = finish(
        planned,
        Store(arguments.out / "store"),
        jobs=arguments.jobs,
        title="search",
        console=console,
    )
    entries = {
        task.name: _entry(task, [r for r in records if r["task"] == task.name], seeds)
        for task in wanted
    }
    write_atomically(
        HYPERPARAMETERS, (json.dumps(chosen() | entries, indent=1, sort_keys=True) + "\n").encode()
    )
    console.print(
        f"{HYPERPARAMETERS} has the best of {len(planned)} runs for {', '.join(entries)}."
    )
    return 0


def runs_of(task: Task, loss: Loss, seeds: Sequence[int]) -> list[Run]:
    """Every candidate on every seed, at the first budget."""
    return [
        Run(task.name, loss.name, hyper, seed, task.iterations[0])
        for hyper in loss.candidates()
        for seed in seeds
    ]


def _entry(task: Task, records: Sequence[dict[str, Any]], seeds: Sequence[int]) -> dict[str, Any]:
    """What the file keeps of a task: how it was searched, and for every loss the best candidate and
    all others.
    """
    losses = {
        loss.name: _best(task, [r for r in records if r["loss"] == loss.name], len(seeds))
        for loss in task.losses
    }
    command = f"evalgrad search {task.name} --seeds {len(seeds)}"
    return {
        "command": command,
        "metric": task.metric,
        "iterations": task.iterations[0],
        "seeds": list(seeds),
        "losses": losses,
    }


def _best(task: Task, records: Sequence[dict[str, Any]], seeds: int) -> dict[str, Any]:
    """The candidate with the best mean validation metric; the records hold `seeds` runs of each
    candidate in turn.
    """
    candidates: list[dict[str, Any]] = []
    for start in range(0, len(records), seeds):
        score = fmean(
            record["validation"][task.metric] for record in records[start : start + seeds]
        )
        candidates.append({"hyper": records[start]["hyper"], "validation": round(score, 5)})
    return {
        **max(candidates, key=lambda candidate: candidate["validation"]),
        "candidates": candidates,
    }


def chosen() -> dict[str, Any]:
    """What the searches found, by task."""
    return json.loads(HYPERPARAMETERS.read_text()) if HYPERPARAMETERS.exists() else {}
