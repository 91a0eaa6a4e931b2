"""Cost of smooth top-k, forward and backward, against cross-entropy on the same tensor: `python
benchmarks/smooth_topk.py`.

The last rows hold the growth of the kernel's time with n and with k, as the slope of a line through
log time over log size: 1 is linear. Tables 3, 4 and 5 of the paper: `python -m reproductions
smooth_topk`.
"""

import math

import torch
import torch.nn.functional as F
from timing import interleaved, main, peak_memory, step
from torch import Tensor

import evalgrad as eg
from evalgrad import _native

# rows, classes, k, how much of cross-entropy's time the kernel may take
LIMITS = (
    (256, 1000, 5, 2.0),
    (256, 1000, 10, 3.0),
    (256, 1000, 20, 6.0),
    (256, 1000, 50, math.nan),
    (256, 10000, 5, 1.0),
    (64, 100000, 5, 1.0),
)
PURE_LIMIT = 25.0  # for k = 5


def draw(rows: int, classes: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(rows, classes, generator=generator), torch.randint(
        classes, (rows,), generator=generator
    )


def without_kernels(x: Tensor, target: Tensor, k: int) -> Tensor:
    library, _native.library = _native.library, None
    try:
        return eg.smooth_topk_loss(x, target, k=k)
    finally:
        _native.library = library


def measure_limit(rows: int, classes: int, k: int, limit: float) -> dict[str, object]:
    x, target = draw(rows, classes)
    functions = {
        "cross_entropy": step(lambda z: F.cross_entropy(z, target), x),
        "kernel": step(lambda z: eg.smooth_topk_loss(z, target, k=k), x),
        "hinge": step(lambda z: eg.topk_hinge_loss(z, target, k=k), x),
    }
    times = interleaved(functions, rounds=15)
    pure = {
        "cross_entropy": functions["cross_entropy"],
        "torch": step(lambda z: without_kernels(z, target, k), x),
    }
    slow = interleaved(pure, rounds=5)
    row: dict[str, object] = {
        "shape": f"{rows}x{classes}",
        "k": k,
        "cross_entropy ms": 1e3 * times["cross_entropy"],
    }
    row |= {f"{name} x": times[name] / times["cross_entropy"] for name in ("kernel", "hinge")}
    row |= {"torch x": slow["torch"] / slow["cross_entropy"]}
    row |= {"limit x": limit, "torch limit x": PURE_LIMIT if k == 5 else math.nan}
    return row | {
        f"{name} MB": peak_memory(functions[name]) for name in ("cross_entropy", "kernel")
    }


def measure_slope(name: str, sizes: tuple[int, ...]) -> dict[str, object]:
    """Least squares of log time over log size, all the sizes interleaved."""
    functions = {}
    for size in sizes:
        classes, k = (size, 5) if name == "n" else (4000, size)
        x, target = draw(64, classes)
        functions[str(size)] = step(
            lambda z, target=target, k=k: eg.smooth_topk_loss(z, target, k=k), x
        )
    times = interleaved(functions, rounds=15)
    log_size, log_time = (
        torch.tensor([math.log(v) for v in values]) for values in (sizes, times.values())
    )
    centred = log_size - log_size.mean()
    slope = (centred @ (log_time - log_time.mean()) / (centred @ centred)).item()
    return {"shape": f"slope in {name}: {sizes[0]} to {sizes[-1]}", "slope": slope}


def measure() -> list[dict[str, object]]:
    rows = [measure_limit(*limit) for limit in LIMITS]
    return [
        *rows,
        measure_slope("n", (4000, 8000, 16000, 32000, 64000)),
        measure_slope("k", (5, 10, 20, 40, 80)),
    ]


if __name__ == "__main__":
    main("smooth_topk", measure)
