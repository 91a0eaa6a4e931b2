"""One training of a small U-Net with the paper's losses and its sampling."""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import evalgrad as eg
from evalgrad.metrics import jaccard_counts
from evalgrad_lab.data.batches import sampled
from evalgrad_lab.data.dataset import Dataset, Part, Sizes
from evalgrad_lab.data.embedded.digits import SCENE_CLASSES, digit_scenes
from evalgrad_lab.data.fetched.mapped import IGNORE, LAND_CLASSES, land_tiles
from evalgrad_lab.fit import Every, Hook, Pace, Training, scores_of
from evalgrad_lab.loss_factories import make
from evalgrad_lab.models.unet import UNet
from reproductions.training import Counts, Loss, seeded, train

BATCH = 16
UPDATE = 25  # iterations between two looks at the IoU on the training data, for the sampler
MOMENTS = 8  # at which the training is looked at


def load(data: str, seed: int, sizes: Counts) -> tuple[Dataset[Part], int]:
    """The images and the number of their classes; the label `IGNORE` does not count."""
    if data == "scenes":
        return digit_scenes(seed, Sizes(*sizes)), SCENE_CLASSES
    return land_tiles(seed, Sizes(*sizes)), LAND_CLASSES


def loss_of(loss: dict[str, Any], target: Tensor, classes: int) -> Loss:
    """The loss that `loss` describes: its kind, and p and support of the pooling."""
    if loss["kind"] == "pooled":
        options = {"p": loss["p"], "support": loss["support"], "ignore_index": IGNORE}
        return make("loss_max_pooling", options)
    if loss["kind"] == "plain":
        return make("cross_entropy", {"ignore_index": IGNORE})
    weight = eg.median_frequency_weights(target, num_classes=classes, ignore_index=IGNORE)
    # per pixel, as the paper weighs, and not per weight of the pixels
    total = partial(F.cross_entropy, weight=weight, ignore_index=IGNORE, reduction="sum")
    return lambda scores, label: total(scores, label) / (label != IGNORE).sum()


def iou_of(counts: Tensor) -> Tensor:
    """(C,) IoU from summed counts (C, 3); NaN for a class neither predicted nor true."""
    hit, predicted, true = counts.double().unbind(-1)
    return hit / (predicted + true - hit)


def counts_on(model: nn.Module, part: Part, classes: int) -> Tensor:
    """Intersection, predicted and true pixels of every class on a whole part."""
    labels = scores_of(model, part.inputs).argmax(1)
    return jaccard_counts(labels, part.target, num_classes=classes, ignore_index=IGNORE).sum(0)


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
        known: Any = {"num_classes": classes, "ignore_index": IGNORE, "progress": False}
        presence = eg.class_presence(pairs, **known)
        occurring = presence.any(0).nonzero()[:, 0].tolist()
        self.sampler = eg.PerformanceSampler(
            presence, blend=blend, classes=occurring, num_samples=UPDATE * BATCH, seed=seed
        )
        self.batches = sampled(part, self.sampler, BATCH)
        self.counts = torch.zeros(classes, 3, dtype=torch.int64)

    def after_step(self, training: Training) -> None:
        self.seen(training.output.detach(), training.batch.target)

    def seen(self, scores: Tensor, target: Tensor) -> None:
        self.counts += jaccard_counts(
            scores.argmax(1), target, num_classes=len(self.counts), ignore_index=IGNORE
        ).sum(0)

    def after_epoch(self, training: Training) -> None:
        self.update()

    def update(self) -> None:
        self.sampler.update(iou_of(self.counts))
        self.counts.zero_()


def train_scenes(
    *,
    data: str,
    seed: int,
    sizes: Counts,
    loss: dict[str, Any],
    blend: float,
    learning_rate: float,
    iterations: int,
) -> dict[str, Any]:
    """A piece: Adam with a cosine schedule. IoU in per cent on validation and test, its course, and
    pictures.

    `curve` has [iteration, mean IoU, mean IoU of the rarer half of the classes] on validation,
    `pictures` the labels of two training images at the same `MOMENTS` moments.
    """
    split, classes = load(data, seed, sizes)
    model = seeded(seed, lambda: UNet(split.train.inputs.shape[1], classes))
    course = Course(split.train, classes, blend, seed)
    pixels = torch.stack([(split.train.target == label).sum() for label in range(classes)])
    rare, shown = pixels <= pixels.median(), Part(split.train.inputs[:2], split.train.target[:2])
    curve, labels = [], []

    def look(step: int) -> None:
        counts = counts_on(model, split.validation, classes)
        curve.append([step, mean_iou(counts), mean_iou(counts, rare)])
        labels.append(scores_of(model, shown.inputs).argmax(1).tolist())

    pace = Pace(learning_rate, optimiser="adam", seed=seed)
    hooks = [course, Every(max(iterations // MOMENTS, 1), look)]
    criterion = loss_of(loss, split.train.target, classes)
    train(model, criterion, course.batches, pace, iterations, hooks)
    counts = counts_on(model, split.test, classes)
    images, target = shown.inputs[:, 0].tolist(), shown.target.tolist()
    pictures = {"images": images, "target": target, "course": labels}
    return {
        "validation": mean_iou(counts_on(model, split.validation, classes)),
        "test": mean_iou(counts),
        "per_class": class_ious(counts),
        "pixels": counts[:, 2].tolist(),
        "curve": curve,
        "pictures": pictures if seed == 0 else None,  # of one seed: they are large
    }
