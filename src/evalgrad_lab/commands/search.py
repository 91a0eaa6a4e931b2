"""`evalgrad search`: the same search on validation for every loss, written to
`OUT/hyperparameters.json`.

Every loss of a task has the same number of candidates and the same seeds, which `compare` does not
use. Each task keeps the command that searched it.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from evalgrad_lab.options import Options, option
from evalgrad_lab.store import Store, write_atomically

if TYPE_CHECKING:
    from evalgrad_lab.tasks.task import Task
    from evalgrad_lab.tune import Tuned

# Those of the built-in tasks, which `compare` reads unless it is given others.
HYPERPARAMETERS = Path(__file__).parents[1] / "tasks" / "hyperparameters.json"
FIRST_SEED = 1000  # far from those of `compare`


@dataclass(frozen=True, kw_only=True)
class SearchOptions(Options):
    """Options of `search` and of the command `evalgrad search`.

    Example:
        >>> SearchOptions(tasks=["two-mode-f1"], seeds=2).arguments()
        ['two-mode-f1', '--seeds', '2']
    """

    tasks: list[str] = option([], help="tasks, or a prefix such as two-mode (all)", positional=True)
    seeds: int = option(1, help="seeds per candidate (1)", least=1)
    jobs: int = option(os.cpu_count() or 1, help="processes (one per core)", least=1)
    out: Path = option(Path("runs"), help="folder for finished runs and the result (runs)")


def search(options: SearchOptions) -> dict[str, Any]:
    """Train all candidates of built-in tasks, and write which are best to `hyperparameters.json`.

    Args:
        options: the tasks, the number of seeds and the folder to write to.

    Returns:
        What the file holds, by task: the best candidate of every loss, and all that were tried.

    Example:
        >>> found = search(SearchOptions(tasks=["tiny"], jobs=1, out=folder))
        >>> sorted(found["tiny"]["losses"]["bce"])
        ['candidates', 'hyper', 'validation']
    """
    from evalgrad_lab import tasks
    from evalgrad_lab.runs import Runs
    from evalgrad_lab.trials import trial
    from evalgrad_lab.tune import Case, tune

    seeds = [FIRST_SEED + i for i in range(options.seeds)]
    entries = {}
    with Runs(Store(options.out / "store"), options.jobs) as runs:
        for task in tasks.called(options.tasks or tasks.TASKS):
            fixed = {"task": task.name, "iterations": task.iterations[0]}
            cases = [
                Case({**fixed, "loss": m.name}, [{"hyper": hyper} for hyper in m.candidates()])
                for m in task.methods
            ]
            found = tune(
                runs,
                trial,
                cases,
                search=seeds,
                seeds=[],
                score=lambda record: record["validation"][record["metric"]],
                title=task.name,
            )
            entries[task.name] = entry(task, found, seeds)
    path = options.out / HYPERPARAMETERS.name
    result = chosen(path) | entries
    write_atomically(path, written(result).encode())
    return result


def main(options: SearchOptions) -> int:
    """The command."""
    found = search(options)
    path = options.out / HYPERPARAMETERS.name
    print(f"{path} has the best candidates of {', '.join(found)}.")
    return 0


def entry(task: "Task", found: "Sequence[Tuned]", seeds: Sequence[int]) -> dict[str, Any]:
    """What the file keeps of a task: how it was searched, and the candidates of every loss."""
    losses = {}
    for method, tuned in zip(task.methods, found, strict=True):
        scores = [round(fmean(row), 5) for row in tuned.scores]
        candidates = [
            {"hyper": hyper, "validation": score}
            for hyper, score in zip(method.candidates(), scores, strict=True)
        ]
        best = next(one for one in candidates if one["hyper"] == tuned.point["hyper"])
        losses[method.name] = {**best, "candidates": candidates}
    return {
        "command": f"evalgrad search {task.name} --seeds {len(seeds)}",
        "metric": task.metric,
        "iterations": task.iterations[0],
        "seeds": list(seeds),
        "losses": losses,
    }


def chosen(path: Path) -> dict[str, Any]:
    """What the searches found, by task."""
    return json.loads(path.read_text()) if path.exists() else {}


def written(found: dict[str, Any]) -> str:
    """The same as JSON, a line for each task."""
    lines = [f" {json.dumps(name)}: {json.dumps(found[name], sort_keys=True)}" for name in found]
    return "{\n" + ",\n".join(sorted(lines)) + "\n}\n"
