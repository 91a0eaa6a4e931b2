"""Many runs at once: a process per core, finished runs kept one by one, a bar that says how long it
will take.
"""

import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from evalgrad_lab import runs
from evalgrad_lab.errors import UserError
from evalgrad_lab.runs import Run
from evalgrad_lab.store import Store
from evalgrad_lab.workers import end_with_parent


def finish(
    planned: Sequence[Run], store: Store, *, jobs: int, title: str, console: Console
) -> list[dict[str, Any]]:
    """The records of all runs in their order: those in the store are reused, the others are trained
    and saved as they end.

    Ctrl-C stops the runs in flight and loses nothing else.
    """
    if jobs < 1:
        raise UserError(f"--jobs must be at least 1; got {jobs}. Leave it out for one per core.")
    unique = {store.path(run.description()): run for run in planned}  # budgets can share a run
    missing = [run for path, run in unique.items() if not path.exists()]
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    if len(missing) < len(unique):
        console.print(
            f"{len(unique) - len(missing)} of {len(unique)} runs are finished already and reused."
        )
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task(title, total=len(missing))
        for run, record in _train(missing, jobs):
            store.save(run.description(), record)
            progress.update(bar, advance=1, description=f"{run.task} · {run.loss}")
    return [dict(store.load(run.description()) or {}) for run in planned]


def _train(missing: Sequence[Run], jobs: int) -> Iterator[tuple[Run, dict[str, Any]]]:
    """Runs with their records, as they end. One job stays in this process."""
    if jobs == 1 or len(missing) <= 1:
        torch.set_num_threads(1)
        yield from map(_train_one, missing)
        return
    # leaving it stops the workers
    with multiprocessing.get_context("spawn").Pool(jobs, initializer=_prepare_worker) as pool:
        yield from pool.imap_unordered(_train_one, missing)


def _train_one(run: Run) -> tuple[Run, dict[str, Any]]:
    return run, runs.execute(run)


def _prepare_worker() -> None:
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    torch.set_num_threads(1)
