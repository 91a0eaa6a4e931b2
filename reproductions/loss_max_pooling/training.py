"""One training of a small U-Net with the paper's losses and its sampling, on digit scenes or on
tiles of the Landsat scene.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import evalgrad as eg
from evalgrad.metrics import jaccard_counts
from evalgrad_lab.data.dataset import Dataset, Part, Sizes, cut, permutation
from evalgrad_lab.data.embedded.scenes import CLASSES, digit_scenes
from evalgrad_lab.data.fetched.landsat import CLASSES as LAND_CLASSES
from evalgrad_lab.data.fetched.landsat import IGNORE, landsat
from evalgrad_lab.models.unet import UNet

BATCH = 16
TILE = 32
UPDATE = 25  # iterations between two looks at the IoU on the training data, for the sampler
MOMENTS = 8  # of the curve and of the pictures


def load(data: str, seed: int, sizes: tuple[int, int, int]) -> tuple[Dataset[Part], int]:
    """The images and the number of their classes; the label `IGNORE` does not count."""
    if data == "scenes":
        return digit_scenes(seed, Sizes(*sizes)), CLASSES
    return land_tiles(seed, Sizes(*sizes)), LAND_CLASSES


def land_tiles(seed: int, sizes: Sizes) -> Dataset[Part]:
    """Tiles of the scene that do not overlap and have a labelled pixel, in a seeded order."""
    bands, classes = landsat()
    images = bands.unfold(1, TILE, TILE).unfold(2, TILE, TILE).flatten(1, 2).transpose(0, 1)
    labels = classes.unfold(0, TILE, TILE).unfold(1, TILE, TILE).flatten(0, 1)
    used = torch.nonzero((labels != IGNORE).flatten(1).any(1))[:, 0]
    order = used[permutation(len(used), seed)]
    return cut(images[order].contiguous(), labels[order].contiguous(), sizes)


def pixel_losses(scores: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Cross-entropy of every pixel, 0 where the label does not count."""
    return F.cross_entropy(scores, target, weight=weight, ignore_index=IGNORE, reduction="none")


def loss_of(loss: dict[str, Any], target: Tensor, classes: int) -> Any:
    """The loss that `loss` describes: its kind, and p and support of the pooling."""
    if loss["kind"] == "pooled":
        return lambda scores, label: eg.loss_max_pooling(
            pixel_losses(scores, label), p=loss["p"], support=loss["support"], mask=label != IGNORE
        )
    weight = (
        eg.median_frequency_weights(target, num_classes=classes, ignore_index=IGNORE)
        if loss["kind"] == "weighted"
        else None
    )
    return lambda scores, label: pixel_losses(scores, label, weight).sum() / (label != IGNORE).sum()


def iou_of(counts: Tensor) -> Tensor:
    """(C,) IoU from summed counts (C, 3); NaN for a class neither predicted nor true."""
    hit, predicted, true = counts.double().unbind(-1)
    return hit / (predicted + true - hit)


@torch.no_grad()
def predicted(model: nn.Module, images: Tensor) -> Tensor:
    """The class of every pixel; the network goes on training afterwards."""
    model.eval()
    labels = torch.cat([model(some).argmax(1) for some in images.split(100)])
    model.train()
    return labels


def counts_on(model: nn.Module, part: Part, classes: int) -> Tensor:
    """Intersection, predicted and true pixels of every class on a whole part."""
    return jaccard_counts(
        predicted(model, part.inputs), part.target, num_classes=classes, ignore_index=IGNORE
    ).sum(0)


def class_ious(counts: Tensor) -> list[float | None]:
    """IoU in per cent of the classes that occur, None for the others."""
    return [
        100 * value if true else None
        for value, true in zip(iou_of(counts).tolist(), counts[:, 2].tolist(), strict=True)
    ]


def mean_iou(counts: Tensor, classes: Tensor | None = None) -> float:
    """Mean IoU in per cent over the classes that occur, or over those named of them."""
    occurs = counts[:, 2] > 0
    return 100 * iou_of(counts)[occurs if classes is None else occurs & classes].nanmean().item()


class Course:
    """Batches as the paper draws them: a share `blend` by the classes that do badly, the rest at
    random.
    """

    def __init__(self, part: Part, classes: int, blend: float, seed: int) -> None:
        presence = eg.class_presence(
            list(zip(part.inputs, part.target, strict=True)),
            num_classes=classes,
            ignore_index=IGNORE,
            progress=False,
        )
        occurring = presence.any(0).nonzero()[:, 0].tolist()
        self.sampler = eg.PerformanceSampler(
            presence, blend=blend, classes=occurring, num_samples=UPDATE * BATCH, seed=seed
        )
        self.counts = torch.zeros(classes, 3, dtype=torch.int64)

    def batches(self) -> Iterator[Tensor]:
        """Endless batches of indices. After every `UPDATE` of them the sampler learns the IoU that
        was `seen`.
        """
        while True:
            stream = iter(self.sampler)
            for _ in range(UPDATE):
                yield torch.tensor(list(itertools.islice(stream, BATCH)))
            list(stream)  # the pass is over
            self.sampler.update(iou_of(self.counts))
            self.counts.zero_()

    def seen(self, scores: Tensor, target: Tensor) -> None:
        self.counts += jaccard_counts(
            scores.argmax(1), target, num_classes=len(self.counts), ignore_index=IGNORE
        ).sum(0)


class Watch:
    """What is seen of a training: the validation IoU and the labels of two training images, at
    `MOMENTS` moments.
    """

    def __init__(self, split: Dataset[Part], classes: int, iterations: int) -> None:
        self.validation, self.classes, self.every = (
            split.validation,
            classes,
            max(iterations // MOMENTS, 1),
        )
        self.shown = Part(split.train.inputs[:2], split.train.target[:2])
        pixels = torch.stack([(split.train.target == label).sum() for label in range(classes)])
        self.rare = pixels <= pixels.median()
        self.curve: list[list[float]] = []
        self.labels: list[Any] = []

    def look(self, iteration: int, model: nn.Module) -> None:
        if iteration % self.every == 0:
            counts = counts_on(model, self.validation, self.classes)
            self.curve.append([iteration, mean_iou(counts), mean_iou(counts, self.rare)])
            self.labels.append(predicted(model, self.shown.inputs).tolist())

    def pictures(self) -> dict[str, Any]:
        return {
            "images": self.shown.inputs[:, 0].tolist(),
            "target": self.shown.target.tolist(),
            "course": self.labels,
        }


def train(
    *,
    data: str,
    seed: int,
    sizes: tuple[int, int, int],
    loss: dict[str, Any],
    blend: float,
    learning_rate: float,
    iterations: int,
) -> dict[str, Any]:
    """A piece: Adam with a cosine schedule. IoU in per cent on validation and test, its course, and
    pictures.

    `curve` has [iteration, mean IoU, mean IoU of the rarer half of the classes] on validation.
    """
    split, classes = load(data, seed, sizes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = UNet(split.train.inputs.shape[1], classes)
    criterion, course = (
        loss_of(loss, split.train.target, classes),
        Course(split.train, classes, blend, seed),
    )
    optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, iterations)
    watch = Watch(split, classes, iterations)
    for iteration, chosen in zip(range(1, iterations + 1), course.batches(), strict=False):
        scores, target = model(split.train.inputs[chosen]), split.train.target[chosen]
        optimiser.zero_grad()
        criterion(scores, target).backward()
        optimiser.step()
        schedule.step()
        course.seen(scores.detach(), target)
        watch.look(iteration, model)
    counts = counts_on(model, split.test, classes)
    return {
        "validation": mean_iou(counts_on(model, split.validation, classes)),
        "test": mean_iou(counts),
        "per_class": class_ious(counts),
        "pixels": counts[:, 2].tolist(),
        "curve": watch.curve,
        "pictures": watch.pictures() if seed == 0 else None,  # of one seed: they are large
    }
