"""Appendix B on one brain: axial slices, blocks of them as folds, the network of table B.1."""

from functools import partial
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

import evalgrad as eg
from evalgrad_lab.data.batches import in_memory, steps_per_epoch
from evalgrad_lab.data.dataset import Dataset, Part
from evalgrad_lab.data.fetched.mapped import STRUCTURES, brain
from evalgrad_lab.fit import Pace, scores_of
from evalgrad_lab.loss_factories import make
from evalgrad_lab.models.brain_net import BrainNet
from reproductions.training import seeded, train

FOLDS, BATCH = 3, 4
ROOM = 12  # voxels around the structures in the plane
# the learning rate falls exponentially to a hundredth, as the paper's from 1e-1 to 1e-3
FALL = 0.01
LOSSES = {"cross-entropy": "cross_entropy", "Lovász": "lovasz_softmax"}
NAMES = sorted({name.partition("_")[0] for name in STRUCTURES})


def slices(volume: Tensor, classes: Tensor) -> Part:
    """Axial slices (n, 1, x, y) with a structure, cropped around the structures."""
    x, y, z = ((classes > 0).nonzero()[:, axis] for axis in range(3))
    box = [slice(max(int(at.min()) - ROOM, 0), int(at.max()) + ROOM + 1) for at in (x, y)]
    height = slice(int(z.min()), int(z.max()) + 1)
    images, target = (t[box[0], box[1], height].permute(2, 0, 1) for t in (volume, classes))
    return Part(((images - images.mean()) / images.std())[:, None], target)


def fold_of(part: Part, fold: int, block: int) -> Dataset[Part]:
    """Blocks of neighbouring slices: every third is for test, of the others every fifth for
    validation.

    Slices at the border of a block resemble their neighbours in the next one: the scores are those
    of one brain, not of a new one.
    """
    number = torch.arange(len(part)) // block
    test = number % FOLDS == fold
    validation = ~test & (number % 5 == fold)
    masks = (~test & ~validation, validation, test)
    return Dataset(*(Part(part.inputs[chosen], part.target[chosen]) for chosen in masks))


def overlaps(prediction: Tensor, target: Tensor) -> dict[str, dict[str, float]]:
    """Jaccard and Dice index in per cent of the four structures, left and right averaged."""
    counts = eg.metrics.jaccard_counts(prediction, target, num_classes=len(STRUCTURES) + 1)
    index = partial(eg.metrics.tversky_from_counts, counts.sum(0, keepdim=True), zero_division=0.0)

    def of(name: str, weight: float) -> float:
        sides = [at for at, one in enumerate(STRUCTURES, 1) if one.startswith(name)]
        return 100 * index(misses=weight, false_alarms=weight, classes=sides).item()

    weights = {"Jaccard": 1.0, "Dice": 0.5}
    return {kind: {name: of(name, weight) for name in NAMES} for kind, weight in weights.items()}


def train_brain(
    *, loss: str, learning_rate: float, seed: int, width: int, epochs: int, block: int
) -> dict[str, Any]:
    """A piece: one fold, whose number is the seed; SGD as in the paper."""
    split = fold_of(slices(*brain()), seed, block)
    network = seeded(seed, lambda: BrainNet(1, len(STRUCTURES) + 1, width))
    sgd: Any = {"optimiser": "sgd", "momentum": 0.9, "schedule": lambda part: FALL**part}
    pace = Pace(learning_rate, seed=seed, **sgd)
    steps = epochs * steps_per_epoch(split.train, BATCH, 1)
    train(network, make(LOSSES[loss], {}), in_memory(split.train, BATCH, seed), pace, steps)
    validation, test = (
        overlaps(scores_of(network, part.inputs, 10).argmax(1), part.target)
        for part in (split.validation, split.test)
    )
    return {"validation": fmean(validation["Jaccard"].values()), "test": test}
