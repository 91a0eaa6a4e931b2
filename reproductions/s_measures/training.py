"""One training of digits, masks or points with the size as a regulariser, on the lab's engine."""

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import evalgrad as eg
from evalgrad_lab.data.batches import Batch, in_memory, steps_per_epoch
from evalgrad_lab.data.dataset import Dataset, Part, Sizes
from evalgrad_lab.data.embedded.digits import SCENE_CLASSES, digit_scenes, s_digits, strokes
from evalgrad_lab.data.embedded.points import two_modes
from evalgrad_lab.fit import BatchLoss, Every, Hook, Pace, Phase, Training, fit, scores_of
from evalgrad_lab.models.mlp import mlp
from reproductions.s_measures.regulariser import OWN_STEP, Regulariser
from reproductions.s_measures.sized import (
    Sized,
    earth_tiles,
    s_mnist,
    sized_classifier,
    sized_segnet,
    sized_unet,
)
from reproductions.training import Counts, seeded

DIGIT_BATCH, MASK_BATCH = 100, 16  # the first is the paper's
DATA: dict[str, Callable[[int, Sizes], Dataset[Part]]] = {
    "strokes": strokes,
    "scenes": digit_scenes,
    "earth": earth_tiles,
}
THRESHOLDS = (0.55, 0.6, 0.65)  # of the probability, in experiment 2


adam = partial(Pace, optimiser="adam", schedule="constant")  # (learning rate, seed=)


def trained(
    network: nn.Module,
    loss: BatchLoss,
    data: tuple[Part, int],
    pace: Pace,
    epochs: int,
    hooks: Sequence[Hook],
    look: Callable[[int], object] = lambda step: None,
) -> None:
    """On a part in batches of a size; `look` is called after every epoch."""
    part, batch = data
    length = steps_per_epoch(part, batch, 1)
    training = Training(network, [Phase(loss, epochs * length)], pace)
    fit(training, in_memory(part, batch, pace.seed), [*hooks, Every(length, look)])


def train_digits(
    *,
    data: str,
    seed: int,
    hidden: int,
    alpha: float,
    solver: str,
    project: str,
    learning_rate: float,
    epochs: int,
    step: float = OWN_STEP,
) -> dict[str, Any]:
    """A piece: accuracies in per cent; `curve` is the test accuracy after every epoch.

    `weights` is a digest of the digit node's weights, `f1` that of the size node on test and
    `certificate` its bound on training.
    """
    split, curve = s_digits(seed) if data == "s-digits" else s_mnist(seed), []
    model = seeded(seed, lambda: sized_classifier(split.train.inputs.shape[1], hidden))
    large = split.train.target[:, 1]
    regulariser = Regulariser(large, alpha, solver, project, step)

    def loss(output: tuple[Tensor, Tensor], batch: Batch) -> Tensor:
        digit, size = batch.target.unbind(1)
        return F.cross_entropy(output[0], digit) + regulariser.loss(output[1], size, batch.index)

    def look(step: int) -> None:
        curve.append(_accuracy(model, split.test))

    digits, pace = (split.train, DIGIT_BATCH), adam(learning_rate, seed=seed)
    trained(model, loss, digits, pace, epochs, [regulariser], look)
    size, weight = model.sizes_of(split.test.inputs), model.head.get_parameter("weight").detach()
    return {
        "validation": _accuracy(model, split.validation),
        "test": curve[-1],
        "curve": curve,
        "f1": 100 * eg.metrics.fbeta_score(size, split.test.target[:, 1], ties="worst").item(),
        "certificate": regulariser.certificate(model.sizes_of(split.train.inputs), large),
        "projections": regulariser.projections,
        "weights": hashlib.sha256(weight.numpy().tobytes()).hexdigest()[:16],
    }


def _accuracy(model: Sized, part: Part) -> float:
    digits = model.scores_of(part.inputs).argmax(1)
    return 100 * (digits == part.target[:, 0]).double().mean().item()


def train_measure(
    *,
    seed: int,
    size: Counts,
    solver: str,
    project: str,
    learning_rate: float,
    epochs: int,
    step: float = OWN_STEP,
) -> dict[str, Any]:
    """A piece: the measure alone, without a main loss, for a linear scorer of data that no plane
    divides. F1 in per cent.

    A training that ends in NaN certifies nothing and finds nothing: 0.
    """
    split = two_modes(seed, Sizes(*size))
    model = mlp(split.train.inputs.shape[1])
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    regulariser = Regulariser(split.train.target, 1.0, solver, project, step)
    data, pace = (split.train, DIGIT_BATCH), adam(learning_rate, seed=seed)

    def loss(scores: Tensor, batch: Batch) -> Tensor:
        return regulariser.loss(scores, batch.target, batch.index)

    trained(model, loss, data, pace, epochs, [regulariser])
    seen, scores = (scores_of(model, part.inputs) for part in (split.train, split.test))
    certificate, f1 = 0.0, 0.0
    if seen.isfinite().all():
        certificate = regulariser.certificate(seen, split.train.target)
        f1 = 100 * eg.metrics.fbeta_score(scores, split.test.target, ties="worst").item()
    return {"certificate": certificate, "f1": f1, "projections": regulariser.projections}


def train_masks(
    *,
    data: str,
    seed: int,
    sizes: Counts,
    alpha: float,
    solver: str,
    learning_rate: float,
    epochs: int,
    volume: float = 0.05,
) -> dict[str, Any]:
    """A piece: IoU in per cent, `curve` on test after every epoch; `by size` that of small and of
    large test images, `large` the share of large ones, `constant` the best constant prediction.
    "strokes" and "earth" have one class besides the background and are told by a SegNet, "scenes"
    have ten and are told by a U-Net.
    """
    split, curve = DATA[data](seed, Sizes(*sizes)), []
    build, outputs = (sized_unet, SCENE_CLASSES) if data == "scenes" else (sized_segnet, 1)
    model = seeded(seed, lambda: build(split.train.inputs.shape[1], outputs))
    labels = size_labels(data, split.train.target, volume)
    regulariser = Regulariser(labels, alpha, solver)

    def loss(output: tuple[Tensor, Tensor], batch: Batch) -> Tensor:
        size = regulariser.loss(output[1], labels[batch.index], batch.index)
        return pixel_loss(output[0], batch.target) + size

    def look(step: int) -> None:
        curve.append(quality(model, split.test))

    images, pace = (split.train, MASK_BATCH), adam(learning_rate, seed=seed)
    trained(model, loss, images, pace, epochs, [regulariser], look)
    return {
        "validation": quality(model, split.validation),
        "test": curve[-1],
        "curve": curve,
        "large": labels.double().mean().item(),
        "by size": by_size(model, split, data, volume),
        "constant": constant(split.test, outputs),
    }


def size_labels(data: str, target: Tensor, volume: float) -> Tensor:
    """Above the mean foreground; of scenes the vote of the classes, each large above `volume`."""
    if data == "scenes":
        return eg.majority_size_labels(target, classes=SCENE_CLASSES, threshold=volume)
    return eg.SizeLabels().fit(target)(target)


def by_size(model: Sized, split: Dataset[Part], data: str, volume: float) -> list[float | None]:
    """The quality of small and of large test images; None without any."""
    labels, part = size_labels(data, split.test.target, volume), split.test
    groups = [Part(part.inputs[labels == at], part.target[labels == at]) for at in (0, 1)]
    return [quality(model, group) if len(group) else None for group in groups]


def constant(part: Part, outputs: int) -> float:
    """The quality of the same label everywhere: background, or of one class also all of it."""
    index, target = eg.metrics.jaccard_index, part.target
    if outputs > 1:
        return 100 * index(torch.zeros_like(target), target, num_classes=outputs).item()
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
