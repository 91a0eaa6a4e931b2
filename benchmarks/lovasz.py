"""Cost of the Lovász losses, forward and backward, against cross-entropy on the same tensor:
`python benchmarks/lovasz.py`.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from references import lovasz_hinge_algorithm_1, lovasz_softmax_algorithm_1
from timing import interleaved, main, peak_memory, step
from torch import Tensor

import evalgrad as eg

SOFTMAX_OTHERS = {"algorithm 1": lovasz_softmax_algorithm_1}
HINGE_OTHERS = {"algorithm 1": lovasz_hinge_algorithm_1}
try:
    from kornia.losses import lovasz_softmax_loss as kornia_loss
except ImportError:
    pass
else:
    SOFTMAX_OTHERS["kornia"] = kornia_loss

CONFIDENCES = {"untrained": 0.0, "half-trained": 3.0, "trained": 8.0, "well-trained": 15.0}
VOID = 255


def maps(shape: tuple[int, ...], confidence: float) -> tuple[Tensor, Tensor]:
    """Logits of a network of the given confidence on a label map of 16-pixel blocks."""
    generator = torch.Generator().manual_seed(0)
    n, c, h, w = shape
    blocks = torch.randint(c, (n, 1, h // 16 + 1, w // 16 + 1), generator=generator).float()
    target = F.interpolate(blocks, size=(h, w), mode="nearest")[:, 0].long()
    logits = (1 + 0.2 * confidence) * torch.randn(shape, generator=generator)
    return logits + confidence * F.one_hot(target, c).movedim(-1, 1), target


def binary_maps(shape: tuple[int, ...], confidence: float) -> tuple[Tensor, Tensor]:
    """The same for one class against the rest, on smooth blobs."""
    generator = torch.Generator().manual_seed(0)
    target = (F.avg_pool2d(torch.randn(shape, generator=generator), 9, 1, 4) > 0.1).long()
    logits = (1 + 0.2 * confidence) * torch.randn(shape, generator=generator)
    return logits + confidence * (2 * target - 1), target


def partly_void(target: Tensor) -> Tensor:
    """With an eighth of each image to be ignored."""
    void = target.clone()
    void[..., : target.shape[-1] // 8] = VOID
    return void


def softmax_row(shape: tuple[int, ...], name: str) -> dict[str, object]:
    logits, target = maps(shape, CONFIDENCES[name])
    void = partly_void(target)
    functions = {
        "cross_entropy": step(lambda x: F.cross_entropy(x, target), logits),
        "exact": step(lambda x: eg.lovasz_softmax_loss(x, target), logits),
        "ignore_index": step(lambda x: eg.lovasz_softmax_loss(x, void, ignore_index=VOID), logits),
        "bins=4096": step(lambda x: eg.lovasz_softmax_loss(x, target, bins=4096), logits),
    }
    return {"loss": "lovasz_softmax", "shape": "x".join(map(str, shape)), "logits": name} | _ratios(
        functions
    )


def hinge_row(shape: tuple[int, ...], name: str) -> dict[str, object]:
    logits, target = binary_maps(shape, CONFIDENCES[name])
    void = partly_void(target)
    functions = {
        "cross_entropy": step(
            lambda x: F.binary_cross_entropy_with_logits(x, target.to(x)), logits
        ),
        "exact": step(lambda x: eg.lovasz_hinge_loss(x, target), logits),
        "ignore_index": step(lambda x: eg.lovasz_hinge_loss(x, void, ignore_index=VOID), logits),
        "bins=4096": step(lambda x: eg.lovasz_hinge_loss(x, target, bins=4096), logits),
    }
    return {"loss": "lovasz_hinge", "shape": "x".join(map(str, shape)), "logits": name} | _ratios(
        functions, rounds=149
    )


def _ratios(functions: dict[str, Callable[[], object]], rounds: int = 7) -> dict[str, object]:
    """Milliseconds of cross-entropy, multiples of it for the rest, and megabytes at the peak. A
    short one needs more rounds.
    """
    times = interleaved(functions, rounds)
    yardstick = times.pop("cross_entropy")
    ratios = {f"{name} x": seconds / yardstick for name, seconds in times.items()}
    return (
        {"cross_entropy ms": 1e3 * yardstick}
        | ratios
        | {f"{name} MB": peak_memory(run) for name, run in functions.items()}
    )


def add_others(rows: list[dict[str, object]]) -> None:
    """The paper's code and a peer's on trained logits. Last: their many buffers change the heap for
    those that follow.
    """
    for row in rows:
        if row["logits"] != "trained":
            continue
        draw, others = (
            (maps, SOFTMAX_OTHERS)
            if row["loss"] == "lovasz_softmax"
            else (binary_maps, HINGE_OTHERS)
        )
        logits, target = draw(tuple(map(int, str(row["shape"]).split("x"))), CONFIDENCES["trained"])
        for name, loss in others.items():
            seconds = interleaved(
                {name: step(lambda x, loss=loss, target=target: loss(x, target), logits)}, rounds=1
            )[name]
            row[f"{name} x"] = 1e3 * seconds / row["cross_entropy ms"]


def measure() -> list[dict[str, object]]:
    rows = [
        softmax_row(shape, name)
        for shape in ((4, 21, 321, 321), (2, 19, 512, 1024))
        for name in CONFIDENCES
    ]
    rows += [hinge_row((8, 512, 512), name) for name in CONFIDENCES]
    add_others(rows)
    return rows


if __name__ == "__main__":
    main("lovasz", measure)
