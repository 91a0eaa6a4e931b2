"""Fine-tunings of one base with the paper's losses and its sampling."""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import evalgrad as eg
from evalgrad_lab.data.batches import sampled
from evalgrad_lab.data.dataset import Part
from evalgrad_lab.fit import Every, Hook, Training, scores_of
from evalgrad_lab.views import tiled
from reproductions.bases import Base, class_ious, iou_of, read_base
from reproductions.data_sets import DataSet
from reproductions.training import Loss, adam_poly, forked, train

UPDATE = 25  # iterations between two looks at the IoU on the training data, for the sampler
TILES, SHARE = 5, 200 / 2048  # the paper's, and what neighbours share of the width


def loss_of(loss: dict[str, Any], target: Tensor, data: DataSet) -> Loss:
    """The loss that `loss` describes: its kind, and p and support of the pooling."""
    if loss["kind"] == "pooled":
        return data.loss("loss_max_pooling", p=loss["p"], support=loss["support"])
    if loss["kind"] == "hardest":
        return partial(eg.bootstrapped_cross_entropy, ignore_index=data.void)
    if loss["kind"] == "plain":
        return data.loss("cross_entropy")
    how: Any = {"num_classes": len(data.classes), "ignore_index": data.void}
    weight, void = (
        eg.median_frequency_weights(target, **how),
        -1 if data.void is None else data.void,
    )
    # per pixel, as the paper weighs, and not per weight of the pixels
    total = partial(F.cross_entropy, weight=weight, ignore_index=void, reduction="sum")
    return lambda scores, label: total(scores, label) / (label != void).sum().clamp(min=1)


def mean_iou(counts: Tensor, classes: Tensor | None = None) -> float:
    """Mean IoU in per cent over the classes that occur, or over those named of them."""
    occurs = counts[:, 2] > 0
    return 100 * iou_of(counts)[occurs if classes is None else occurs & classes].nanmean().item()


class Course(Hook):
    """Batches as the paper draws them: a share `blend` by the classes that do badly, the rest at
    random. After an epoch of `UPDATE` batches the sampler learns the IoU on them.
    """

    def __init__(self, base: Base, blend: float) -> None:
        part, data = base.split.train, base.data
        pairs = list(zip(part.inputs, part.target, strict=True))
        self.how: Any = {"num_classes": len(data.classes), "ignore_index": data.void}
        presence = eg.class_presence(pairs, progress=False, **self.how)
        occurring = presence.any(0).nonzero()[:, 0].tolist()
        images = UPDATE * data.batch
        self.sampler = eg.PerformanceSampler(
            presence, blend=blend, classes=occurring, num_samples=images, seed=base.seed
        )
        self.batches = base.changed(sampled(part, self.sampler, data.batch), base.seed)
        self.counts = torch.zeros(len(data.classes), 3, dtype=torch.int64)

    def after_step(self, training: Training) -> None:
        self.seen(training.output.detach(), training.batch.target)

    def seen(self, scores: Tensor, target: Tensor) -> None:
        self.counts += eg.metrics.jaccard_counts(scores.argmax(1), target, **self.how).sum(0)

    def after_epoch(self, training: Training) -> None:
        self.update()

    def update(self) -> None:
        self.sampler.update(iou_of(self.counts))
        self.counts.zero_()


def fine_tune_methods(
    *,
    start: dict[str, Any],
    method: dict[str, Any],
    rates: list[float],
    iterations: int,
    moments: int,
    tiles: bool,
) -> dict[str, Any]:
    """A piece: test mIoU in per cent of the constant prediction and the base; of the method at
    every learning rate the IoU on validation and test, in tiles too, and its course.
    """
    base = read_base(start)
    test = base.split.test

    def further(model: nn.Module, way: dict[str, Any], rate: float) -> dict[str, Any]:
        watch, course = Watch(base, model), Course(base, way["blend"])
        every = Every(max(iterations // max(moments, 1), 1), watch.look)
        hooks: list[Hook] = [course, every] if moments else [course]
        criterion = loss_of(way["loss"], base.split.train.target, base.data)
        pace = adam_poly(rate, seed=base.seed + 1)
        train(model, criterion, course.batches, pace, iterations, hooks)
        counts = counts_on(base, model, test)
        return {
            "validation": mean_iou(counts_on(base, model, base.split.validation)),
            "test": mean_iou(counts),
            "tiles": mean_iou(_in_tiles(base, model)) if tiles else None,
            "per_class": class_ious(counts),
            "pixels": counts[:, 2].tolist(),
            **watch.seen(),
        }

    return {
        "constant": base.mious(base.constant(test), test.target)["dataset"],
        "base": mean_iou(counts_on(base, base.network, test)),
        "tuned": forked(base.network, {"": method}, rates, further)[""],
    }


def counts_on(base: Base, model: nn.Module, part: Part) -> Tensor:
    """Intersection, predicted and true pixels of every class on a whole part."""
    return base.counts(scores_of(model, part.inputs, 32).argmax(1), part.target)


@torch.no_grad()
def _in_tiles(base: Base, model: nn.Module) -> Tensor:
    """The same on test by the paper's optimised tiling: neighbours share a tenth of the width."""
    part = base.split.test
    how: Any = {"tiles": TILES, "overlap": round(part.inputs.shape[-1] * SHARE)}
    found = [tiled(model, images, **how).argmax(1) for images in part.inputs.split(32)]
    return base.counts(torch.cat(found), part.target)


class Watch:
    """The course of a training: [iteration, mean IoU of the rarer half of the classes] on
    validation, and the labels of two training images at the same moments.
    """

    def __init__(self, base: Base, model: nn.Module) -> None:
        self.base, self.model, part = base, model, base.split.train
        pixels = base.data.pixels(part.target)
        self.rare = pixels <= pixels.median()
        self.shown = Part(part.inputs[:2], part.target[:2])
        self.curve: list[list[float]] = []
        self.labels: list[Any] = []

    def look(self, step: int) -> None:
        counts = counts_on(self.base, self.model, self.base.split.validation)
        self.curve.append([step, mean_iou(counts, self.rare)])
        self.labels.append(scores_of(self.model, self.shown.inputs).argmax(1).tolist())

    def seen(self) -> dict[str, Any]:
        images, true = self.shown.inputs.mean(1).tolist(), self.shown.target.tolist()
        pictures = {"images": images, "target": true, "course": self.labels}
        # of one seed: they are large
        return {"curve": self.curve, "pictures": None if self.base.seed else pictures}
