"""The command `evalgrad search`: the same search on validation for every loss, written to `hyperparameters.json`.

Every loss of a task has the same number of candidates and the same seeds, which `compare` does not use. The file is written by this
command alone; each task keeps the command that searched it.
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
from evalgrad.lab.pool import finish
from evalgrad.lab.runs import Run
from evalgrad.lab.store import Store, write_atomically
from evalgrad.lab.tasks.task import Loss, Task

HYPERPARAMETERS = Path(__file__).parent / "hyperparameters.json"
FIRST_SEED = 1000  # far from those of `compare`
SEEDS = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `evalgrad search`."""
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=f"tasks to search (all): {', '.join(tasks.TASKS)}")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"seeds per candidate ({SEEDS})")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (one per core)")
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder of finished runs (runs)")


def run(arguments: argparse.Namespace) -> int:
    """Search task by task; each is written when it is finished."""
    console = Console()
    for name in arguments.tasks or tasks.TASKS:
        entry = search(tasks.find(name), Store(arguments.out / "store"), arguments.seeds, arguments.jobs, console)
        _write(name, {"command": f"evalgrad search {name} --seeds {arguments.seeds}", **entry})
        for loss, found in entry["losses"].items():
            console.print(f"{name}: {loss} {found['hyper']} has {entry['metric']} {found['validation']:.3f} on validation")
    return 0


def search(task: Task, store: Store, seeds: int, jobs: int, console: Console) -> dict[str, Any]:
    """The best candidate of every loss by the mean validation metric, and all candidates with theirs."""
    numbers = [FIRST_SEED + i for i in range(seeds)]
    planned = [_runs(task, loss, numbers) for loss in task.losses]
    records = iter(finish([run for group in planned for run in group], store, jobs=jobs, title=task.name, console=console))
    losses = {
        loss.name: _best(task, group, [next(records) for _ in group], seeds)
        for loss, group in zip(task.losses, planned, strict=True)
    }
    return {"metric": task.metric, "iterations": task.iterations[0], "seeds": numbers, "losses": losses}


def _runs(task: Task, loss: Loss, seeds: Sequence[int]) -> list[Run]:
    return [Run(task.name, loss.name, hyper, seed, task.iterations[0]) for hyper in loss.candidates() for seed in seeds]


def _best(task: Task, planned: Sequence[Run], records: Sequence[dict[str, Any]], seeds: int) -> dict[str, Any]:
    scores = [record["validation"][task.metric] for record in records]
    candidates: list[dict[str, Any]] = [
        {"hyper": planned[start].hyper, "validation": round(fmean(scores[start : start + seeds]), 5)}
        for start in range(0, len(planned), seeds)
    ]
    best = max(candidates, key=lambda candidate: candidate["validation"])
    return {**best, "candidates": candidates}


def chosen() -> dict[str, Any]:
    """What the searches found, by task."""
    return json.loads(HYPERPARAMETERS.read_text()) if HYPERPARAMETERS.exists() else {}


def _write(name: str, entry: dict[str, Any]) -> None:
    found = chosen() | {name: entry}
    write_atomically(HYPERPARAMETERS, (json.dumps(found, indent=1, sort_keys=True) + "\n").encode())
