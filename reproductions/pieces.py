"""The pieces of an experiment, such as one training per loss and seed: kept when finished, run in
parallel, shown as they go.
"""

import ast
import importlib
import importlib.util
import multiprocessing
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from rich.progress import Progress

from evalgrad_lab.store import Store, digest_of_sources
from evalgrad_lab.workers import end_with_parent

Settings = Mapping[str, Any]
HOUSE = ("evalgrad", "evalgrad_lab", "reproductions")


class Pieces:
    """Runs a function on settings. A piece is a module-level function and plain-data keyword
    arguments; it returns plain data.

    Finished pieces are found in the store by function, settings and source code, so an interrupted
    command goes on where it was.
    """

    def __init__(self, store: Store, jobs: int, progress: Progress, label: str) -> None:
        self.store, self.jobs, self.progress, self.label = store, jobs, progress, label
        self._seconds: dict[Path, float] = {}

    @property
    def seconds(self) -> float:
        """Of all pieces asked for, as measured when they ran; a piece asked for twice
        counts once.
        """
        return sum(self._seconds.values())

    def run(
        self, function: Callable[..., Any], settings: Sequence[Settings], *, alone: bool = False
    ) -> list[Any]:
        """The results in the order of `settings`. `alone` keeps the machine free of other pieces,
        for those that measure time.
        """
        descriptions = [_description(function, setting) for setting in settings]
        records: list[Any] = [self.store.load(description) for description in descriptions]
        missing = [index for index, record in enumerate(records) if record is None]
        bar = self.progress.add_task(
            f"{self.label}: {function.__name__}",
            total=len(settings),
            completed=len(settings) - len(missing),
        )
        jobs = 1 if alone or len(missing) < 2 else self.jobs
        for index, record in _computed(
            function, {index: settings[index] for index in missing}, jobs
        ):
            self.store.save(descriptions[index], record)
            records[index] = record
            self.progress.advance(bar)
        for description, record in zip(descriptions, records, strict=True):
            self._seconds[self.store.path(description)] = record["seconds"]
        return [record["result"] for record in records]


def _computed(
    function: Callable[..., Any], settings: Mapping[int, Settings], jobs: int
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each piece's record as it is ready: in this process for one job, else in fresh ones (a forked
    torch may hang).
    """
    if jobs <= 1:
        yield from ((index, _timed(function, setting)) for index, setting in settings.items())
        return
    pool = _pool(jobs)
    try:
        futures = {
            pool.submit(_timed, function, dict(setting)): index
            for index, setting in settings.items()
        }
        yield from ((futures[future], future.result()) for future in as_completed(futures))
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        _pool.cache_clear()
        raise


@cache
def _pool(jobs: int) -> ProcessPoolExecutor:
    """Kept for the whole command: a new process takes seconds to import torch."""
    return ProcessPoolExecutor(
        jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_die_quietly
    )


def _timed(function: Callable[..., Any], settings: Settings) -> dict[str, Any]:
    """One piece on one thread: the pieces share the cores, and the result does not depend on how
    many there are.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        start = time.process_time()  # not the clock on the wall, which the other pieces stretch
        result = function(**settings)
        return {"result": result, "seconds": time.process_time() - start}
    finally:
        torch.set_num_threads(threads)


def _die_quietly() -> None:
    """Ctrl-C reaches the workers too: the parent speaks for them."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _description(function: Callable[..., Any], settings: Settings) -> dict[str, Any]:
    return {
        "function": f"{function.__module__}.{function.__qualname__}",
        "settings": dict(settings),
        "sources": _digest(sys.modules[function.__module__]),
    }


@cache
def _digest(module: ModuleType) -> str:
    return digest_of_sources(modules_behind(module))


def modules_behind(module: ModuleType) -> list[ModuleType]:
    """The module and every module of the house that it imports, directly or through others: what
    its results depend on.
    """
    found: dict[str, ModuleType] = {}
    waiting = [module]
    while waiting:
        current = waiting.pop()
        if current.__name__ not in found:
            found[current.__name__] = current
            waiting += [importlib.import_module(name) for name in _imported_names(current)]
    return list(found.values())


def _imported_names(module: ModuleType) -> set[str]:
    """Modules of the house in the import statements of the source."""
    names = set()
    with open(str(module.__file__), encoding="utf-8") as file:
        tree = ast.parse(file.read())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if name.split(".")[0] in HOUSE and _is_module(name)}


def _is_module(name: str) -> bool:
    """Whether a dotted name is a module, and not a function inside one."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
