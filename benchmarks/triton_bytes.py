"""What the Triton kernels would do on a GPU, forward and backward: launches, bytes and peak memory.

    EVALGRAD_TRITON=1 TRITON_INTERPRET=1 python benchmarks/triton_bytes.py [part of a loss's name]

writes benchmarks/triton.json, which benchmarks/accelerator.py shows next to eager torch; with
--around it keeps the bytes of the kernels that it finds there, and takes a minute.

Launches, memory and what torch does around the kernels are counted at the full size on meta
tensors, which take the branches of a GPU; there no kernel runs. The bytes of the kernels come from
Triton's interpreter under the sanitizer of tests/gpu, which sees every address, at two small sizes
with the scores of a half-trained network. They are taken to grow linearly with the number of
pixels, rows or items from there on, but for the tables of the exact Lovász losses, which have the
size that they would have. An atomic is a read and a write, nothing is taken to be cached between
instructions. Where no small sizes are given there are no bytes.
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
from accelerator import TRITON, Comparison, Loss, as_text, comparisons, on_device
from accounting import Account
from timing import machine
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from evalgrad import _native, _triton

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "gpu"))

Shape = tuple[int, ...]
# Where bytes are counted for a shape: two smaller ones.
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
# Their two small costs differ by their tables and lists more than by their pixels: no line.
LEFT_OUT = {
    (name, shape)
    for name in ("lovasz_softmax_loss", "lovasz_softmax_loss(metric=dice)")
    for shape in SMALLER
    if (name, shape) not in SAMPLED
}


# ---- at the full size, on meta tensors: all but the bytes of the kernels -------------------------


class Around(Account):
    """Counts what torch does, also in the operators that Triton kernels serve, and the kernels."""

    kernels: int = 0

    def __enter__(self) -> "Around":
        from sanitizer import Grid

        def launch(grid: Any, *args: Any, **options: Any) -> None:
            self._launch(grid)

        self.launching = mock.patch.object(Grid, "__call__", launch)
        self.launching.start()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self.launching.stop()

    def _launch(self, grid: Any) -> None:
        if grid.fn.__module__ == "evalgrad._triton.rows":  # in the place of a product by torch
            self.launches += 1
        else:
            self.kernels += 1

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func._schema.name.removeprefix("evalgrad::")
        bodies = _native.operators.get(name)
        if bodies is None:
            return super().__torch_dispatch__(func, types, args, kwargs)
        TorchDispatchMode.__enter__(self)
        try:
            served = bodies.triton and _triton.implementation(bodies.triton, name).run(*args)
            return bodies.pure(*args) if served is None else served
        finally:
            TorchDispatchMode.__exit__(self, None, None, None)


def _trusted(system: str, name: str, *_: Any) -> bool:
    return bool(_triton.implementation(system, name))


def around(comparison: Comparison, loss: Loss, shape: Shape) -> Around:
    x, target = comparison.draw(shape)
    loss = on_device(loss, x)
    with mock.patch.object(_triton, "_trusted", _trusted), Around((x, target)) as seen:
        loss(x, target).backward()
    return seen


# ---- at small sizes, on the interpreter: the bytes of the kernels --------------------------------


def draw(shape: Shape, classes: bool) -> tuple[Tensor, Tensor]:
    """Scores of a half-trained network, and labels."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator)
    if not classes:
        target = torch.rand(shape, generator=generator) < 0.3
        return x + 2.0 * target - 1.0, target.float()
    target = torch.randint(shape[1], (shape[0], *shape[2:]), generator=generator)
    return x + 3.0 * torch.nn.functional.one_hot(target, shape[1]).movedim(-1, 1), target


def bytes_of_kernels(loss: Loss, shape: Shape, classes: bool) -> int:
    """By kernels that are clean."""
    from sanitizer import Trace

    x, target = draw(shape, classes)
    # the first use would compare with the core on an example, in the trace
    with mock.patch.object(_triton, "_trusted", _trusted), Trace() as trace:
        on_device(loss, x)(x.requires_grad_(), target).backward()
    assert trace.clean, trace
    return int(trace.bytes)


def at(size: float, sizes: list[float], costs: list[int]) -> float:
    """The line through two costs."""
    return costs[0] + (costs[1] - costs[0]) * (size - sizes[0]) / (sizes[1] - sizes[0])


@contextmanager
def tables_of(shape: Shape, classes: bool) -> Iterator[None]:
    """The exact Lovász losses with the tables that they have at a shape."""
    from evalgrad._triton import lovasz_slots

    items = int(np.prod(shape)) // (shape[1] if classes else shape[0])
    sizes = lovasz_slots.table_sizes
    with mock.patch.object(lovasz_slots, "table_sizes", lambda _, coarse: sizes(items, coarse)):
        yield


def extrapolated(comparison: Comparison, name: str, shape: Shape) -> int | None:
    """The bytes of the kernels at a shape; None where they are not counted."""
    counted = SAMPLED.get((name, shape), SMALLER.get(shape, ()))
    if not counted or (name, shape) in LEFT_OUT:
        return None
    loss, classes = comparison.losses[name], comparison.classes
    with tables_of(shape, classes):
        costs = [bytes_of_kernels(loss, smaller, classes) for smaller in counted]
    return int(at(np.prod(shape), [float(np.prod(smaller)) for smaller in counted], costs))


# ---- the rows ------------------------------------------------------------------------------------


class Row(NamedTuple):
    loss: str
    shape: str
    kernels: int  # launches of the operators
    launches: int  # all, those of torch among them, and the factor of the upstream gradient
    bytes: int | None  # of all
    around: int  # bytes of torch, which are part of those
    peak: int
    syncs: int


def measure(
    comparison: Comparison,
    wanted: Callable[[str], bool],
    of_kernels: Callable[[Comparison, str, Shape], int | None],
) -> Iterator[Row]:
    for shape in comparison.shapes:
        for name in filter(wanted, comparison.losses):
            seen = around(comparison, comparison.losses[name], shape)
            if seen.kernels:
                inside = of_kernels(comparison, name, shape)
                yield Row(
                    name,
                    as_text(shape),
                    seen.kernels,
                    seen.kernels + seen.launches,
                    None if inside is None else inside + seen.bytes,
                    seen.bytes,
                    seen.peak,
                    sum(seen.syncs.values()),
                )


def main() -> int:
    if not _triton.INTERPRETED:
        print("benchmarks/triton_bytes.py: set EVALGRAD_TRITON=1 and TRITON_INTERPRET=1.")
        return 1
    part = "".join(word for word in sys.argv[1:] if word != "--around")
    known = json.loads(TRITON.read_text())["rows"] if TRITON.exists() else []
    rows = {(row["loss"], row["shape"]): row for row in known}

    def kept(_: Comparison, name: str, shape: Shape) -> int | None:
        row = rows.get((name, as_text(shape)), {"bytes": None})
        return None if row["bytes"] is None else row["bytes"] - row["around"]

    of_kernels = kept if "--around" in sys.argv else extrapolated
    for comparison in comparisons():
        for row in measure(comparison, lambda name: part in name, of_kernels):
            print(row, flush=True)
            rows[row.loss, row.shape] = row._asdict()
            text = json.dumps({"machine": machine(), "rows": list(rows.values())}, indent=1)
            TRITON.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    with np.errstate(all="ignore"):  # the interpreter computes with numpy
        sys.exit(main())
