"""One training of masks with the size as a regulariser: from random weights for one class, from a
converged network for many.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import evalgrad as eg
from evalgrad_lab.data.batches import Batch
from evalgrad_lab.data.dataset import Dataset, Part, Sizes
from evalgrad_lab.data.embedded.digits import SCENE_CLASSES
from evalgrad_lab.fit import Pace
from reproductions.bases import read_base
from reproductions.s_measures.literal import PRIMAL_STEP
from reproductions.s_measures.regulariser import Regulariser
from reproductions.s_measures.sized import (
    Sized,
    earth_tiles,
    noisy_foreground,
    sized_segnet,
    with_size,
)
from reproductions.s_measures.training import adam, trained
from reproductions.training import Counts, adam_poly, forked, seeded

BATCH = 16
DATA: dict[str, Callable[[int, Sizes], Dataset[Part]]] = {
    "foreground": noisy_foreground,
    "earth": earth_tiles,
}
THRESHOLDS = (0.55, 0.6, 0.65)  # of the probability, in experiment 2
Rule = Callable[[Tensor], Tensor]  # masks or label maps -> 1 for the large ones


def train_masks(
    *,
    data: str,
    seed: int,
    sizes: Counts,
    alpha: float,
    solver: str,
    learning_rate: float,
    epochs: int,
) -> dict[str, Any]:
    """A piece: a SegNet tells one class from the background. `course`, and the IoU of the best
    constant prediction.
    """
    split = DATA[data](seed, Sizes(*sizes))
    model = seeded(seed, lambda: sized_segnet(split.train.inputs.shape[1], 1))
    rule = eg.SizeLabels().fit(split.train.target)  # the mean foreground
    found = course(model, split, rule, alpha, solver, adam(learning_rate, seed=seed), epochs)
    return {**found, "constant": constant(split.test)}


def fine_tune_scenes(
    *,
    start: dict[str, Any],
    ours: dict[str, dict[str, Any]],
    theirs: dict[str, dict[str, Any]],
    rates: list[float],
    images: int,
    epochs: int,
) -> dict[str, Any]:
    """A piece: a converged network of eleven classes is trained further, with the node on its last
    features. `course` of every way (alpha, solver, volume): `ours` by rate, `theirs` as the paper
    trains; and what they start from and the constant prediction have on test.
    """
    base = read_base(start)
    seed, train = base.seed + 1, base.split.train
    some = Part(train.inputs[:images], train.target[:images])
    split = Dataset(some, base.split.validation, base.split.test)
    features = next(base.network.get_submodule("head").parameters()).shape[1]

    def further(pace: Callable[..., Pace], model: nn.Module, how: Any, rate: float) -> Any:
        sized = seeded(seed, lambda: with_size(model, features))
        rule = partial(majority, volume=how["volume"])
        of_way = (how["alpha"], how["solver"], pace(rate, seed=seed))
        return course(sized, split, rule, *of_way, epochs)

    return {
        "ours": forked(base.network, ours, rates, partial(further, adam_poly)),
        "theirs": forked(base.network, theirs, [PRIMAL_STEP], partial(further, adam)),
        "base": base.evaluate(base.network, split.test)["dataset"],
        "constant": base.mious(base.constant(split.test), split.test.target)["dataset"],
    }


def course(
    model: Sized,
    split: Dataset[Part],
    rule: Rule,
    alpha: float,
    solver: str,
    pace: Pace,
    epochs: int,
) -> dict[str, Any]:
    """Train, and say how it went: IoU in per cent, `curve` on test after every epoch; `by size`
    that of small and of large test images, `large` the share of large training images.
    """
    labels, curve = rule(split.train.target), []
    regulariser = Regulariser(labels, alpha, solver)

    def loss(output: tuple[Tensor, Tensor], batch: Batch) -> Tensor:
        size = regulariser.loss(output[1], labels[batch.index], batch.index)
        return pixel_loss(output[0], batch.target) + size

    def look(step: int) -> None:
        curve.append(quality(model, split.test))

    trained(model, loss, (split.train, BATCH), pace, epochs, [regulariser], look)
    return {
        "validation": quality(model, split.validation),
        "test": curve[-1],
        "curve": curve,
        "large": labels.double().mean().item(),
        "by size": by_size(model, split.test, rule),
    }


def majority(target: Tensor, volume: float) -> Tensor:
    """The vote of an image's classes, each large above `volume`."""
    return eg.majority_size_labels(target, classes=SCENE_CLASSES, threshold=volume)


def by_size(model: Sized, part: Part, rule: Rule) -> list[float | None]:
    """The quality of small and of large images; None without any."""
    labels = rule(part.target)
    groups = [Part(part.inputs[labels == at], part.target[labels == at]) for at in (0, 1)]
    return [quality(model, group) if len(group) else None for group in groups]


def constant(part: Part) -> float:
    """The better of background and foreground everywhere."""
    index, target = eg.metrics.jaccard_index, part.target
    same = [torch.full_like(target, label) for label in (0, 1)]
    return 100 * max(
        index(one, target, num_classes=2, over="image", classes=[1]).item() for one in same
    )


def pixel_loss(scores: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy, binary for one output."""
    if scores.shape[1] == 1:
        return F.binary_cross_entropy_with_logits(scores[:, 0], target.float())
    return F.cross_entropy(scores, target)


def quality(model: Sized, part: Part) -> float:
    """In per cent: image IoU averaged over three thresholds, or mean IoU of many classes."""
    index, scores = eg.metrics.jaccard_index, model.scores_of(part.inputs)
    classes = scores.shape[1]
    if classes > 1:
        return 100 * index(scores.argmax(1), part.target, num_classes=classes).item()
    decisions = [(scores[:, 0].sigmoid() > threshold).long() for threshold in THRESHOLDS]
    found = [index(d, part.target, num_classes=2, over="image", classes=[1]) for d in decisions]
    return 100 * torch.stack(found).mean().item()
