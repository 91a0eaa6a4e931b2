"""Fine-tunings of one base with the paper's losses and its sampling."""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import evalgrad as eg
from evalgrad.metrics import jaccard_counts
from evalgrad_lab.data.batches import sampled
from evalgrad_lab.data.dataset import Part
from evalgrad_lab.data.embedded.digits import SCENE_CLASSES
from evalgrad_lab.fit import Every, Hook, Training, scores_of
from evalgrad_lab.loss_factories import make
from reproductions.scene_base import BATCH, constant, read_base
from reproductions.training import Counts, Loss, adam_poly, forked, train

UPDATE = 25  # iterations between two looks at the IoU on the training data, for the sampler
MOMENTS = 8  # at which the training is looked at


def loss_of(loss: dict[str, Any], target: Tensor) -> Loss:
    """The loss that `loss` describes: its kind, and p and support of the pooling."""
    if loss["kind"] == "pooled":
        return make("loss_max_pooling", {"p": loss["p"], "support": loss["support"]})
    if loss["kind"] == "hardest":
        return eg.bootstrapped_cross_entropy
    if loss["kind"] == "plain":
        return make("cross_entropy", {})
    weight = eg.median_frequency_weights(target, num_classes=SCENE_CLASSES)
    # per pixel, as the paper weighs, and not per weight of the pixels
    total = partial(F.cross_entropy, weight=weight, reduction="sum")
    return lambda scores, label: total(scores, label) / label.numel()


def iou_of(counts: Tensor) -> Tensor:
    """(C,) IoU from summed counts (C, 3); NaN for a class neither predicted nor true."""
    hit, predicted, true = counts.double().unbind(-1)
    return hit / (predicted + true - hit)


def counts_on(model: nn.Module, part: Part) -> Tensor:
    """Intersection, predicted and true pixels of every class on a whole part."""
    labels = scores_of(model, part.inputs).argmax(1)
    return jaccard_counts(labels, part.target, num_classes=SCENE_CLASSES).sum(0)


def class_ious(counts: Tensor) -> list[float | None]:
    """IoU in per cent of the classes that occur, None for the others."""
    pairs = zip(iou_of(counts).tolist(), counts[:, 2].tolist(), strict=True)
    return [100 * value if true else None for value, true in pairs]


def mean_iou(counts: Tensor, classes: Tensor | None = None) -> float:
    """Mean IoU in per cent over the classes that occur, or over those named of them."""
    occurs = counts[:, 2] > 0
    return 100 * iou_of(counts)[occurs if classes is None else occurs & classes].nanmean().item()


class Course(Hook):
    """Batches as the paper draws them: a share `blend` by the classes that do badly, the rest at
    random. After an epoch of `UPDATE` batches the sampler learns the IoU on them.
    """

    def __init__(self, part: Part, classes: int, blend: float, seed: int) -> None:
        pairs = list(zip(part.inputs, part.target, strict=True))
        presence = eg.class_presence(pairs, num_classes=classes, progress=False)
        occurring = presence.any(0).nonzero()[:, 0].tolist()
        self.sampler = eg.PerformanceSampler(
            presence, blend=blend, classes=occurring, num_samples=UPDATE * BATCH, seed=seed
        )
        self.batches = sampled(part, self.sampler, BATCH)
        self.counts = torch.zeros(classes, 3, dtype=torch.int64)

    def after_step(self, training: Training) -> None:
        self.seen(training.output.detach(), training.batch.target)

    def seen(self, scores: Tensor, target: Tensor) -> None:
        found = jaccard_counts(scores.argmax(1), target, num_classes=len(self.counts))
        self.counts += found.sum(0)

    def after_epoch(self, training: Training) -> None:
        self.update()

    def update(self) -> None:
        self.sampler.update(iou_of(self.counts))
        self.counts.zero_()


def fine_tune_methods(
    *,
    seed: int,
    sizes: Counts,
    width: int,
    base: str,
    method: dict[str, Any],
    rates: list[float],
    iterations: int,
) -> dict[str, Any]:
    """A piece: test mIoU in per cent of the constant prediction and the base; of the method at
    every learning rate the IoU on validation and test, its course, and pictures.

    `curve` has [iteration, mean IoU of the rarer half of the classes] on validation, `pictures` the
    labels of two training images at the same `MOMENTS` moments.
    """
    split, start = read_base(seed, sizes, width, base)
    pixels = torch.bincount(split.train.target.flatten(), minlength=SCENE_CLASSES)
    rare, shown = pixels <= pixels.median(), Part(split.train.inputs[:2], split.train.target[:2])

    def further(model: nn.Module, way: dict[str, Any], rate: float) -> dict[str, Any]:
        course = Course(split.train, SCENE_CLASSES, way["blend"], seed)
        curve: list[list[float]] = []
        labels: list[Any] = []

        def look(step: int) -> None:
            curve.append([step, mean_iou(counts_on(model, split.validation), rare)])
            labels.append(scores_of(model, shown.inputs).argmax(1).tolist())

        hooks = [course, Every(max(iterations // MOMENTS, 1), look)]
        criterion, pace = loss_of(way["loss"], split.train.target), adam_poly(rate, seed=seed + 1)
        train(model, criterion, course.batches, pace, iterations, hooks)
        counts = counts_on(model, split.test)
        images, target = shown.inputs[:, 0].tolist(), shown.target.tolist()
        pictures = {"images": images, "target": target, "course": labels}
        return {
            "validation": mean_iou(counts_on(model, split.validation)),
            "test": mean_iou(counts),
            "per_class": class_ious(counts),
            "pixels": counts[:, 2].tolist(),
            "curve": curve,
            "pictures": pictures if seed == 0 else None,  # of one seed: they are large
        }

    return {
        "constant": constant(split.test)["dataset"],
        "base": mean_iou(counts_on(start, split.test)),
        "tuned": forked(start, {"": method}, rates, further)[""],
    }
