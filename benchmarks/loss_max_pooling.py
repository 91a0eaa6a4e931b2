"""Cost of loss max-pooling, forward and backward: `python benchmarks/loss_max_pooling.py`.

By itself on 2^20 losses, against the paper's sort-based Algorithm 1 in torch; on top of
cross-entropy, against cross-entropy alone.
"""

import torch
import torch.nn.functional as F
from references import loss_max_pooling_algorithm_1
from timing import interleaved, main, peak_memory, step
from torch import Tensor, nn

import evalgrad as eg

LIMITS = {"pooling": 0.06, "cross-entropy + pooling": 1.25}


def losses(kind: str, n: int = 1 << 20) -> Tensor:
    """One row of losses of an untrained network (all about alike, or exactly), a typical one, and
    one with few errors left.
    """
    generator = torch.Generator().manual_seed(0)
    if kind == "constant":
        return torch.full((1, n), 3.0)
    if kind == "trained":  # nearly all tiny, some large
        return torch.exp(6 * torch.randn(1, n, generator=generator) - 8)
    return torch.empty(1, n).exponential_(generator=generator)


def measure_pooling(kind: str, p: float) -> dict[str, object]:
    x = losses(kind)
    functions = {
        "pooling": step(lambda z: eg.loss_max_pooling(z, p=p), x),
        "sort": step(lambda z: loss_max_pooling_algorithm_1(z[0], max(p, 1.001), 0.25), x),
    }
    times = interleaved(functions)
    return {
        "what": "pooling",
        "on": f"2^20 {kind}, p={p:g}",
        "ms": 1e3 * times["pooling"],
        "yardstick ms": 1e3 * times["sort"],
        "ratio": times["pooling"] / times["sort"],
        "limit": LIMITS["pooling"],
        "MB": peak_memory(functions["pooling"]),
        "yardstick MB": peak_memory(functions["sort"]),
    }


def measure_cross_entropy(shape: tuple[int, ...]) -> dict[str, object]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(shape, generator=generator)
    target = torch.randint(shape[1], (shape[0], *shape[2:]), generator=generator)
    pooled = eg.LossMaxPooling(nn.CrossEntropyLoss(reduction="none", ignore_index=255))
    functions = {
        "cross-entropy": step(lambda x: F.cross_entropy(x, target, ignore_index=255), logits),
        "pooled": step(lambda x: pooled(x, target), logits),
    }
    times = interleaved(functions)
    return {
        "what": "cross-entropy + pooling",
        "on": "x".join(map(str, shape)),
        "ms": 1e3 * times["pooled"],
        "yardstick ms": 1e3 * times["cross-entropy"],
        "ratio": times["pooled"] / times["cross-entropy"],
        "limit": LIMITS["cross-entropy + pooling"],
        "MB": peak_memory(functions["pooled"]),
        "yardstick MB": peak_memory(functions["cross-entropy"]),
    }


def measure() -> list[dict[str, object]]:
    rows = [
        measure_pooling(kind, p)
        for kind, p in (
            ("exponential", 1.3),
            ("trained", 1.3),
            ("constant", 1.3),
            ("constant", 1.0),
        )
    ]
    return rows + [
        measure_cross_entropy(shape) for shape in ((4, 21, 321, 321), (2, 19, 512, 1024))
    ]


if __name__ == "__main__":
    main("loss_max_pooling", measure)
