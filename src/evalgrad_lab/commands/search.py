"""The command `evalgrad search`: the same search on validation for every loss, written to
`OUT/hyperparameters.json`.

Every loss of a task has the same number of candidates and the same seeds, which `compare` does not
use. Each task keeps the command that searched it.
"""

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console

from evalgrad_lab import tasks
from evalgrad_lab.errors import UserError
from evalgrad_lab.pool import finish
from evalgrad_lab.runs import Run
from evalgrad_lab.store import Store, write_atomically
from evalgrad_lab.tasks.task import Loss, Task

# Those of the built-in tasks, which `compare` reads unless it is given others.
HYPERPARAMETERS = Path(__file__).parents[1] / "tasks" / "hyperparameters.json"
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
        "--out",
        type=Path,
        default=Path("runs"),
        help="folder of finished runs and of hyperparameters.json (runs)",
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
    path = arguments.out / HYPERPARAMETERS.name
    write_atomically(path, written(chosen(path) | entries).encode())
    console.print(f"{path} has the best of {len(planned)} runs for {', '.join(entries)}.")
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


def chosen(path: Path = HYPERPARAMETERS) -> dict[str, Any]:
    """What the searches found, by task."""
    return json.loads(path.read_text()) if path.exists() else {}


def written(found: dict[str, Any]) -> str:
    """The same as JSON, a line for each loss."""
    tasks = []
    for name, entry in sorted(found.items()):
        losses = ",\n".join(
            f"   {json.dumps(loss)}: {json.dumps(best, sort_keys=True)}"
            for loss, best in sorted(entry["losses"].items())
        )
        head = json.dumps({key: value for key, value in entry.items() if key != "losses"})
        tasks.append(f' {json.dumps(name)}: {head[:-1]}, "losses": {{\n{losses}}}}}')
    return "{\n" + ",\n".join(tasks) + "\n}\n"
