"""Cost of the Lovász losses, forward and backward, against cross-entropy on the same tensor: `python benchmarks/lovasz.py`."""

import torch
import torch.nn.functional as F
from references import lovasz_hinge_algorithm_1, lovasz_softmax_algorithm_1
from timing import interleaved, main, peak_memory, step
from torch import Tensor

import evalgrad as eg

try:
    from kornia.losses import lovasz_softmax_loss as kornia_loss  # wrong for C > 2, see docs/lovasz.md; measured all the same
except ImportError:
    kornia_loss = None

CONFIDENCES = {"untrained": 0.0, "half-trained": 3.0, "trained": 8.0, "well-trained": 15.0}


def maps(shape: tuple[int, ...], confidence: float) -> tuple[Tensor, Tensor]:
    """Logits of a network of the given confidence on a label map of 16-pixel blocks."""
    generator = torch.Generator().manual_seed(0)
    n, c, h, w = shape
    blocks = torch.randint(c, (n, 1, h // 16 + 1, w // 16 + 1), generator=generator).float()
    target = F.interpolate(blocks, size=(h, w), mode="nearest")[:, 0].long()
    logits = (1 + 0.2 * confidence) * torch.randn(shape, generator=generator)
    return logits + confidence * F.one_hot(target, c).movedim(-1, 1), target


def measure_softmax(shape: tuple[int, ...], name: str) -> dict[str, object]:
    logits, target = maps(shape, CONFIDENCES[name])
    functions = {
        "cross_entropy": step(lambda x: F.cross_entropy(x, target), logits),
        "exact": step(lambda x: eg.lovasz_softmax_loss(x, target), logits),
        "bins=4096": step(lambda x: eg.lovasz_softmax_loss(x, target, bins=4096), logits),
    }
    slow = {"algorithm 1": step(lambda x: lovasz_softmax_algorithm_1(x, target), logits)} if name == "trained" else {}
    if kornia_loss is not None and name == "trained":
        slow["kornia"] = step(lambda x: kornia_loss(x, target), logits)
    row: dict[str, object] = {"loss": "lovasz_softmax", "shape": "x".join(map(str, shape)), "logits": name}
    return row | _ratios(functions, slow, "cross_entropy")


def measure_hinge(shape: tuple[int, ...], confidence: float, name: str) -> dict[str, object]:
    generator = torch.Generator().manual_seed(0)
    target = (F.avg_pool2d(torch.randn(shape, generator=generator), 9, 1, 4) > 0.1).long()
    logits = (1 + 0.2 * confidence) * torch.randn(shape, generator=generator) + confidence * (2 * target - 1)
    functions = {
        "cross_entropy": step(lambda x: F.binary_cross_entropy_with_logits(x, target.to(x)), logits),
        "exact": step(lambda x: eg.lovasz_hinge_loss(x, target), logits),
    }
    slow = {"algorithm 1": step(lambda x: lovasz_hinge_algorithm_1(x, target), logits)}
    row: dict[str, object] = {"loss": "lovasz_hinge", "shape": "x".join(map(str, shape)), "logits": name}
    return row | _ratios(functions, slow, "cross_entropy")


def _ratios(functions: dict[str, object], slow: dict[str, object], yardstick: str) -> dict[str, object]:
    """Milliseconds of the yardstick, multiples of it for the rest, and megabytes at the peak."""
    times = interleaved(functions) | interleaved(slow, rounds=1)  # type: ignore[arg-type]
    row: dict[str, object] = {f"{yardstick} ms": 1e3 * times[yardstick]}
    row |= {f"{name} x": seconds / times[yardstick] for name, seconds in times.items() if name != yardstick}
    return row | {f"{name} MB": peak_memory(function) for name, function in functions.items()}  # type: ignore[arg-type]


def measure() -> list[dict[str, object]]:
    rows = [measure_softmax(shape, name) for shape in ((4, 21, 321, 321), (2, 19, 512, 1024)) for name in CONFIDENCES]
    rows += [measure_hinge((8, 512, 512), confidence, name) for name, confidence in CONFIDENCES.items()]
    return rows


if __name__ == "__main__":
    main("lovasz", measure)
