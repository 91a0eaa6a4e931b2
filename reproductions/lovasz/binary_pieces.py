"""Section 4.2 on a real binary task: losses that train on from cross-entropy."""

from typing import Any

import torch
from torch import Tensor, nn

import evalgrad as eg
from evalgrad_lab.data.batches import in_memory
from evalgrad_lab.data.dataset import Dataset, Part, Sizes
from evalgrad_lab.data.embedded.digits import strokes
from evalgrad_lab.data.fetched.mapped import nucleus_tiles
from evalgrad_lab.fit import scores_of
from evalgrad_lab.loss_factories import make
from evalgrad_lab.models.unet import UNet
from reproductions.training import Counts, Loss, adam_poly, forked, seeded, train

BATCH, BASE_RATE = 16, 0.01
EVALUATED = ("cross-entropy", "hinge", "Lovász hinge")


def losses() -> dict[str, Loss]:
    """The losses by the names of the tables; soft Jaccard is the one of Rahman and Wang."""
    return {
        "cross-entropy": make("bce", {}),
        "hinge": make("hinge", {}),
        "Lovász hinge": make("lovasz_hinge", {}),
        "Lovász hinge, empty left out": make("lovasz_hinge", {"empty": "skip"}),
        "soft Jaccard": make("binary_soft_jaccard", {}),
    }


def load(data: str, seed: int, sizes: Sizes) -> Dataset[Part]:
    """Strokes (embedded), or tiles of the nuclei (fetched), some of them empty."""
    return strokes(seed, sizes) if data == "strokes" else nucleus_tiles(seed, sizes)


def image_iou(scores: Tensor, target: Tensor, threshold: float = 0.0) -> float:
    """Mean foreground IoU of the images, in per cent; an empty one predicted empty has 1."""
    found = (scores > threshold).long()
    index = eg.metrics.jaccard_index(found, target, num_classes=2, over="image", classes=[1])
    return 100 * index.item()


def constant_iou(part: Part) -> float:
    """Image IoU of the better of nothing and everything as foreground."""
    same = torch.ones_like(part.target)
    return max(image_iou(sign * same, part.target) for sign in (1.0, -1.0))


def best_threshold(scores: Tensor, target: Tensor) -> float:
    """Of 25 quantiles of the scores and zero, the threshold with the best image IoU."""
    some = scores.flatten()[:: max(scores.numel() // 20000, 1)]
    candidates = [0.0, *some.quantile(torch.linspace(0.5, 0.99, 25)).tolist()]
    return max(candidates, key=lambda threshold: image_iou(scores, target, threshold))


def fine_tune_binary(
    *,
    data: str,
    sizes: Counts,
    names: list[str],
    rates: list[float],
    seed: int,
    base_iterations: int,
    iterations: int,
) -> dict[str, Any]:
    """A piece: one network trained with cross-entropy, and `forked` over the losses; `judged`."""
    split = load(data, seed, Sizes(*sizes))
    network = seeded(seed, lambda: nn.Sequential(UNet(1, 1), nn.Flatten(1, 2)))  # scores (N, H, W)
    batches, pace = in_memory(split.train, BATCH, seed), adam_poly(BASE_RATE, seed=seed)
    base = train(network, losses()["cross-entropy"], batches, pace, base_iterations)

    def further(network: nn.Module, loss: str, rate: float) -> dict[str, Any]:
        # not the order that cross-entropy has seen
        batches, pace = in_memory(split.train, BATCH, seed + 1), adam_poly(rate, seed=seed + 1)
        return judged(train(network, losses()[loss], batches, pace, iterations), split)

    tuned = forked(base, {name: name for name in names}, rates, further)
    return {"base": judged(base, split), "tuned": tuned}


def judged(model: nn.Module, split: Dataset[Part]) -> dict[str, Any]:
    """Image IoU on validation; on test every loss, image IoU, and that with a tuned threshold."""
    validation, test = (scores_of(model, part.inputs) for part in (split.validation, split.test))
    threshold, target = best_threshold(validation, split.validation.target), split.test.target
    return {
        "validation": image_iou(validation, split.validation.target),
        "losses": {name: float(losses()[name](test, target)) for name in EVALUATED},
        "iou": image_iou(test, target),
        "iou with threshold": image_iou(test, target, threshold),
        "false alarms": _false_alarms(test, split.test),
        "constant": constant_iou(split.test),
    }


def _false_alarms(scores: Tensor, part: Part) -> float | None:
    """Per cent of the images without foreground that get some; None without such an image."""
    empty = part.target.flatten(1).sum(1) == 0
    alarms = (scores[empty] > 0).flatten(1).any(1)
    return 100 * alarms.double().mean().item() if len(alarms) else None
