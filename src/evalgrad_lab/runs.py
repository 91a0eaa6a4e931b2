"""Runs: calls of a module-level function whose arguments and result are plain data. They run in a
pool of processes; results are kept in a store, and reused while the code they depend on is the
same.
"""

import ast
import ctypes
import hashlib
import importlib
import importlib.util
import multiprocessing
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from importlib.resources import files
from multiprocessing.synchronize import Event
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from rich import progress
from rich.console import Console

from evalgrad_lab.errors import GUARD, UserError, refuse_import_by_worker
from evalgrad_lab.store import Store

Settings = Mapping[str, Any]
HOUSE = ("evalgrad", "evalgrad_lab", "reproductions")
SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of linux/prctl.h


class Runs:
    """Runs a function on settings, one process per job, and stores every result when it is
    finished.

    Finished runs are found in the store by function, settings and code, so an interrupted command
    continues where it stopped. A context manager: leaving it stops the workers.
    """

    def __init__(self, store: Store, jobs: int = 1, console: Console | None = None) -> None:
        if jobs < 1:
            raise UserError(
                f"--jobs must be at least 1; got {jobs}. Leave it out for one per core."
            )
        refuse_import_by_worker()
        self.store, self.jobs = store, jobs
        self.console = console or Console(stderr=True)
        self.reused = 0
        self.spent: dict[Path, float] = {}
        self._pool: ProcessPoolExecutor | None = None
        self._started: Event | None = None  # set by the first worker

    def __enter__(self) -> "Runs":
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _stop(self) -> None:
        """End the workers, and what they are at."""
        if self._pool is not None:
            workers = multiprocessing.active_children()
            results: Any = vars(self._pool).get("_result_queue")
            self._pool.shutdown(wait=False, cancel_futures=True)
            for worker in workers:
                worker.terminate()
            # A worker that was sending a result leaves the pool's thread waiting for the rest, and
            # Python's exit for that thread. Nobody else holds this end: now the thread sees an end.
            if results is not None:
                results._writer.close()
            self._pool = None

    @property
    def seconds(self) -> float:
        """Of one core, of all runs asked for, each once; `spent.clear()` begins anew."""
        return sum(self.spent.values())

    def run(
        self,
        function: Callable[..., Any],
        settings: Sequence[Settings],
        *,
        title: str = "",
        alone: bool = False,
    ) -> list[Any]:
        """Results in the order of `settings`; `alone` keeps the machine free, to measure time."""
        descriptions = [describe(function, setting) for setting in settings]
        paths = [self.store.path(description) for description in descriptions]
        first: dict[Path, int] = {}  # the same run once
        for i, path in enumerate(paths):
            first.setdefault(path, i)
        known = {path: self.store.load(descriptions[i]) for path, i in first.items()}
        missing = {path: i for path, i in first.items() if known[path] is None}
        self.reused += len(first) - len(missing)
        jobs = 1 if alone or len(missing) < 2 else self.jobs
        work = {path: settings[i] for path, i in missing.items()}
        with _Shown(self.console, title or function.__name__, len(missing)) as shown:
            for path, record in self._computed(function, work, jobs):
                self.store.save(descriptions[missing[path]], record)
                shown.advance()
        records = {path: self.store.load(descriptions[i]) or {} for path, i in first.items()}
        self.spent.update({path: record["seconds"] for path, record in records.items()})
        return [records[path]["result"] for path in paths]

    def _computed(
        self, function: Callable[..., Any], work: Mapping[Path, Settings], jobs: int
    ) -> Iterator[tuple[Path, dict[str, Any]]]:
        """Each record as it is ready: in this process for one job, else in fresh ones (a forked
        torch may hang), which are kept: a new one takes seconds to import torch.
        """
        if jobs == 1:
            yield from ((path, timed(function, setting)) for path, setting in work.items())
            return
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._started = context.Event()
            self._pool = ProcessPoolExecutor(self.jobs, context, _begin, (self._started,))
        futures = {}
        for path, setting in work.items():
            futures[self._pool.submit(timed, function, dict(setting))] = path
        try:
            yield from ((futures[future], future.result()) for future in as_completed(futures))
        except BaseException as error:
            self._stop()
            if isinstance(error, BrokenProcessPool):
                if self._started is None or not self._started.is_set():
                    raise UserError(GUARD) from error
                raise UserError(
                    "a process was killed, perhaps because memory ran out. Finished runs are kept;"
                    " run the same command with fewer --jobs."
                ) from error
            raise


class _Shown:
    """A progress bar in a terminal; elsewhere an occasional line, so that a log shows progress."""

    EVERY = 30.0  # seconds

    def __init__(self, console: Console, title: str, total: int) -> None:
        times = (progress.TimeElapsedColumn(), progress.TimeRemainingColumn())
        columns = (progress.BarColumn(), progress.MofNCompleteColumn(), *times)
        self.console, self.title, self.total, self.done = console, title, total, 0
        name = progress.TextColumn("{task.description}")
        self.bar = progress.Progress(name, *columns, console=console, transient=True)
        self.task = self.bar.add_task(title, total=total)
        self.spoken = time.monotonic()

    def __enter__(self) -> "_Shown":
        if self.console.is_terminal and self.total:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar.live.is_started:
            self.bar.stop()

    def advance(self) -> None:
        self.done += 1
        self.bar.advance(self.task)
        if not self.console.is_terminal and time.monotonic() - self.spoken > self.EVERY:
            self.spoken = time.monotonic()
            self.console.print(f"{self.title}: {self.done} of {self.total} runs")


def timed(function: Callable[..., Any], settings: Settings) -> dict[str, Any]:
    """One run on one thread: its result does not depend on how many cores there are."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        start = time.process_time()  # not the clock on the wall, which the other runs stretch
        result = function(**settings)
        return {"result": result, "seconds": time.process_time() - start}
    finally:
        torch.set_num_threads(threads)


def _begin(started: Event) -> None:
    prepare_worker()
    started.set()


def prepare_worker() -> None:
    """Ctrl-C is the parent's to handle; on Linux a worker dies with its parent, even of SIGKILL."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_DEATH_SIGNAL, signal.SIGTERM)


def describe(function: Callable[..., Any], settings: Settings) -> dict[str, Any]:
    """The address of a run in the store: all that decides its result, the code included."""
    return {
        "function": f"{function.__module__}.{function.__qualname__}",
        "settings": dict(settings),
        "code": digest(sys.modules[function.__module__]),
    }


@cache
def digest(module: ModuleType) -> str:
    """Of the sources behind a module and the kernels: changed code gets no old answer."""
    total = hashlib.sha256()
    for path in sorted(str(found.__file__) for found in modules_behind(module)):
        total.update(code_of(Path(path).read_text(encoding="utf-8")))
    for entry in kernels():
        total.update(entry)
    return total.hexdigest()[:16]


def code_of(source: str) -> bytes:
    """What a source does: without comments, layout and docstrings, which decide no result."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return ast.dump(tree).encode()


def kernels() -> list[bytes]:
    """The contents of the library's compiled files; none in a build without a compiler."""
    entries = (entry for entry in files("evalgrad").iterdir() if entry.is_file())
    return [entry.read_bytes() for entry in entries if entry.name.startswith("_kernels.")]


def modules_behind(module: ModuleType) -> list[ModuleType]:
    """The module and every module of ours that it imports, also through others."""
    found: dict[str, ModuleType] = {}
    waiting = [module]
    while waiting:
        current = waiting.pop()
        if current.__name__ not in found:
            found[current.__name__] = current
            waiting += [importlib.import_module(name) for name in _imported_names(current)]
    return list(found.values())


def _imported_names(module: ModuleType) -> set[str]:
    """Modules of ours in the import statements of the source, and the packages they are in."""
    names = set()
    with open(str(module.__file__), encoding="utf-8") as file:
        tree = ast.parse(file.read())
    for node in _walked(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if name.split(".")[0] in HOUSE and _is_module(name)}


def _walked(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a source, except imports under TYPE_CHECKING."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield child
            yield from _walked(child)


def _is_module(name: str) -> bool:
    """Whether a dotted name is a module, and not a function inside one."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
