"""How the benchmarks measure: everything of one comparison interleaved in one run, medians, peak
memory, JSON with the machine.

Absolute times on a shared machine mean little; ratios within one interleaved run do. The first
touch of large fresh buffers costs as much as arithmetic, so each benchmark runs with the allocator
as it is and with one that keeps its memory, in new processes: what one run leaves on the heap would
make the buffers of the next cheaper.
"""

import ctypes
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

import evalgrad
from evalgrad_lab.peak_memory import PeakMemory

RESULTS = Path(__file__).parent / "results"
KEEPING = {
    "MALLOC_MMAP_THRESHOLD_": str(2**32 - 1),
    "MALLOC_TRIM_THRESHOLD_": str(2**33),
    "MALLOC_TOP_PAD_": str(2**28),
}


def interleaved(functions: dict[str, Callable[[], object]], rounds: int = 7) -> dict[str, float]:
    """Median seconds of each function, called in turn `rounds` times after one warm-up."""
    samples: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds + 1):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            samples[name].append(time.perf_counter() - start)
    return {name: statistics.median(times[1:]) for name, times in samples.items()}


def peak_memory(function: Callable[[], object]) -> float:
    """Megabytes of resident memory at the peak of a call, above what was resident before."""
    # what the heap keeps from earlier calls would be used again, unseen
    ctypes.CDLL(None).malloc_trim(0)
    with PeakMemory() as memory:
        function()
    return memory.megabytes


def step(loss: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> Callable[[], None]:
    """One forward and backward pass from a fresh leaf."""

    def run() -> None:
        loss(x.detach().requires_grad_()).backward()

    return run


def machine() -> dict[str, object]:
    model = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpu": model[0] if model else platform.processor(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "evalgrad": evalgrad.__version__,
        "kernels": evalgrad._native.library is not None,
    }


def main(script: str, measure: Callable[[], list[dict[str, object]]]) -> None:
    """Measure under both allocators and both numbers of threads, print the rows, write
    `results/<script>.json`.
    """
    if "--threads" in sys.argv:
        torch.set_num_threads(int(sys.argv[-1]))
        print(json.dumps(measure()))
        return
    rows = []
    for allocator, environment in {"default": {}, "keeping": KEEPING}.items():
        for threads in (1, os.cpu_count() or 1):
            command = [sys.executable, sys.argv[0], "--threads", str(threads)]
            child = subprocess.run(
                command,
                env={**os.environ, **environment},
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            measured = json.loads(child.stdout.splitlines()[-1])
            rows += [{"allocator": allocator, "threads": threads, **row} for row in measured]
    _print_table(rows)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{script}.json"
    path.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")
    print(f"written to {path}")


def write_between(page: Path, name: str, text: str) -> None:
    """Put a text into a page of the docs, between the comments `<!-- name: written by ... -->` and
    `<!-- name: end -->`.
    """
    between = re.compile(
        rf"(<!-- {name}: written by [^>]* -->\n).*?(<!-- {name}: end -->)", re.DOTALL
    )
    page.write_text(between.sub(lambda found: f"{found[1]}{text}\n{found[2]}", page.read_text()))


def _print_table(rows: list[dict[str, object]]) -> None:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    cells = [[_cell(row.get(name, "")) for name in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for line in (columns, *cells):
        print("  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)))


def _cell(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)
