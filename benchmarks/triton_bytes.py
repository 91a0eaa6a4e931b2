"""What the Triton kernels would do on a GPU, forward and backward: launches, bytes and peak memory.

    EVALGRAD_TRITON=1 TRITON_INTERPRET=1 python benchmarks/triton_bytes.py [part of a loss's name]

writes results/triton.json, which benchmarks/accelerator.py shows next to eager torch. The kernels
run on Triton's interpreter under the sanitizer of tests/gpu, which sees every address, at two small
sizes with the scores of a half-trained network; bytes and memory are taken to grow linearly with
the number of pixels, rows or items from there on, but for the tables of the exact Lovász losses,
which have the size that they would have. An atomic is a read and a write, nothing is taken to be
cached between instructions. What torch does around the kernels is added as in accounting.py.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from accelerator import Comparison, comparisons, on_device
from accounting import Account
from timing import RESULTS, machine
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from evalgrad import _native, _triton

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "gpu"))

Loss = Callable[[Tensor, Tensor], Tensor]
# What is counted for a shape: two smaller ones.
SMALLER = {
    (2, 19, 512, 1024): ((2, 19, 32, 64), (2, 19, 64, 64)),
    (4, 21, 321, 321): ((4, 21, 32, 32), (4, 21, 32, 64)),
    (2, 14, 96, 96, 96): ((2, 14, 8, 16, 16), (2, 14, 16, 16, 16)),
    (8, 512, 512): ((8, 16, 32), (8, 32, 32)),
    (256, 1000): ((2, 1000), (4, 1000)),
    (64, 100_000): ((2, 100_000), (4, 100_000)),
    (80, 2048): ((2, 2048), (3, 2048)),
    (4096,): ((1024,), (2048,)),
}
# Of 256 tiles or more one in eight is sampled, as at the full size; of fewer, more.
SAMPLED = {
    ("lovasz_softmax_loss", (2, 19, 512, 1024)): ((2, 19, 64, 128), (2, 19, 96, 128)),
}


class Cost(NamedTuple):
    launches: int
    bytes: int
    peak: int


class Interpreted(Account):
    """Counts what torch does on the CPU, also in the operators that Triton kernels serve; what the
    interpreter does with torch is not counted.
    """

    served: int = 0
    paused: bool = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if self.paused:
            return func(*args, **(kwargs or {}))
        bodies = _native.operators.get(func._schema.name.removeprefix("evalgrad::"))
        if bodies is None or bodies.triton is None:
            return super().__torch_dispatch__(func, types, args, kwargs)
        TorchDispatchMode.__enter__(self)
        try:
            name = func._schema.name.removeprefix("evalgrad::")
            result = _triton.implementation(bodies.triton, name).run(*args)
        finally:
            TorchDispatchMode.__exit__(self, None, None, None)
        self.served += result is not None
        return bodies.pure(*args) if result is None else result


def draw(shape: tuple[int, ...], classes: bool) -> tuple[Tensor, Tensor]:
    """Scores of a half-trained network, and labels."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator)
    if not classes:
        target = torch.rand(shape, generator=generator) < 0.3
        return x + 2.0 * target - 1.0, target.float()
    target = torch.randint(shape[1], (shape[0], *shape[2:]), generator=generator)
    return x + 3.0 * torch.nn.functional.one_hot(target, shape[1]).movedim(-1, 1), target


def count(loss: Loss, shape: tuple[int, ...], classes: bool) -> Cost | None:
    """By kernels that are clean; None if the loss has none."""
    from sanitizer import Grid, Trace

    x, target = draw(shape, classes)
    x.requires_grad_()
    loss = on_device(loss, x)
    with Interpreted((x, target), "cpu") as seen, Trace() as trace:
        launch = Grid.__call__

        def unseen(*args: Any, **options: Any) -> None:
            seen.paused = True
            launch(*args, **options)
            seen.paused = False

        with mock.patch.object(Grid, "__call__", unseen):
            loss(x, target).backward()
    assert trace.clean, trace
    if not seen.served:
        return None
    launches = sum(trace.launches.values()) + seen.launches
    return Cost(launches, trace.bytes + seen.bytes, seen.peak)


def at(size: float, sizes: list[float], costs: list[float]) -> float:
    """The line through two costs."""
    return costs[0] + (costs[1] - costs[0]) * (size - sizes[0]) / (sizes[1] - sizes[0])


@contextmanager
def tables_of(shape: tuple[int, ...], classes: bool) -> Iterator[None]:
    """The exact Lovász losses with the tables that they have at a shape."""
    from evalgrad._triton import lovasz_slots

    items = int(np.prod(shape)) // (shape[1] if classes else shape[0])
    sizes = lovasz_slots.table_sizes
    with mock.patch.object(lovasz_slots, "table_sizes", lambda _, coarse: sizes(items, coarse)):
        yield


def extrapolated(
    loss: Loss, shape: tuple[int, ...], classes: bool, counted: tuple[tuple[int, ...], ...]
) -> Cost | None:
    """From the cost at the shapes `counted`."""
    with tables_of(shape, classes):
        costs = [count(loss, smaller, classes) for smaller in counted]
    if costs[0] is None or costs[1] is None:
        return None
    sizes = [float(np.prod(smaller)) for smaller in counted]
    amounts = [at(np.prod(shape), sizes, [c[part] for c in costs if c]) for part in (1, 2)]
    return Cost(max(c.launches for c in costs if c), int(amounts[0]), int(amounts[1]))


def measure(comparison: Comparison, wanted: str) -> Iterator[dict[str, Any]]:
    for shape in comparison.shapes:
        for name, loss in comparison.losses.items():
            if shape in SMALLER and wanted in name:
                counted = SAMPLED.get((name, shape), SMALLER[shape])
                cost = extrapolated(loss, shape, comparison.classes, counted)
                if cost is not None:
                    yield {"loss": name, "shape": "x".join(map(str, shape)), **cost._asdict()}


def main() -> int:
    if not _triton.INTERPRETED:
        print("benchmarks/triton_bytes.py: set EVALGRAD_TRITON=1 and TRITON_INTERPRET=1.")
        return 1
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / "triton.json"
    known = json.loads(path.read_text())["rows"] if path.exists() else []
    rows = {(row["loss"], row["shape"]): row for row in known}
    for comparison in comparisons():
        for row in measure(comparison, "".join(sys.argv[1:2])):
            print(row, flush=True)
            rows[row["loss"], row["shape"]] = row
            text = json.dumps({"machine": machine(), "rows": list(rows.values())}, indent=1)
            path.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    with np.errstate(all="ignore"):  # the interpreter computes with numpy
        sys.exit(main())
