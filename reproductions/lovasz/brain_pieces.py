"""Appendix B on virtual patients: one brain, deformed for each of them; axial slices, folds by
patient, the network of table B.1.
"""

from collections.abc import Sequence
from functools import cache, partial
from statistics import fmean
from typing import Any

import torch
import torch.nn.functional as F
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
# of a patient: deviation of the shifts in voxels and of the bias field's logarithm between so many
# knots along each axis, and of the noise, in shares of white
KNOTS, BEND, BIAS, NOISE = 5, 3.0, 0.2, 0.05
# the learning rate falls exponentially to a hundredth, as the paper's from 1e-1 to 1e-3
FALL = 0.01
LOSSES = {"cross-entropy": "cross_entropy", "Lovász": "lovasz_softmax"}
NAMES = sorted({name.partition("_")[0] for name in STRUCTURES})


def box_of(classes: Tensor) -> tuple[slice, slice, slice]:
    """Around the structures, with room in the plane."""
    places = (classes > 0).nonzero()
    low, high = places.amin(0).tolist(), (places.amax(0) + 1).tolist()
    room = (ROOM, ROOM, 0)
    sides = [slice(max(a - r, 0), b + r) for a, b, r in zip(low, high, room, strict=True)]
    return sides[0], sides[1], sides[2]


def smooth_noise(channels: int, shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """(channels, *shape) of normal values at `KNOTS` places along each axis, interpolated."""
    knots = torch.randn(1, channels, KNOTS, KNOTS, KNOTS, generator=generator)
    return F.interpolate(knots, size=tuple(shape), mode="trilinear", align_corners=True)[0]


def patient(volume: Tensor, classes: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """The brain deformed smoothly, with an own bias field, noise, mean 0 and deviation 1; and its
    structures, deformed alike.
    """
    generator, shape = torch.Generator().manual_seed(number), volume.shape
    size = torch.tensor(shape[::-1])  # grid_sample has its last axis first
    shift = BEND * 2 / size.view(3, 1, 1, 1) * smooth_noise(3, shape, generator)
    grid = F.affine_grid(torch.eye(3, 4)[None], [1, 1, *shape], align_corners=False)
    places = grid + shift.movedim(0, -1)
    sample = partial(F.grid_sample, grid=places, padding_mode="border", align_corners=False)
    bent = sample(volume[None, None], mode="bilinear")[0, 0]
    labels = sample(classes[None, None].float(), mode="nearest")[0, 0].long()
    seen = bent * (BIAS * smooth_noise(1, shape, generator)[0]).exp()
    seen = seen + NOISE * torch.randn(shape, generator=generator)
    return (seen - seen.mean()) / seen.std(), labels


@cache
def patients(count: int, slices: int) -> list[Part]:
    """Of each so many axial slices (slices, 1, x, y), evenly spread over the structures."""
    volume, classes = brain()
    box = box_of(classes)
    found = (patient(volume[box], classes[box], number) for number in range(count))
    height = box[2].stop - box[2].start
    chosen = ((torch.arange(slices) + 0.5) * height / slices).long()
    return [
        Part(v[..., chosen].permute(2, 0, 1)[:, None], c[..., chosen].permute(2, 0, 1))
        for v, c in found
    ]


def fold_of(people: Sequence[Part], fold: int) -> Dataset[Part]:
    """Every third patient is for test, of the others every sixth for validation."""
    parts: list[list[Part]] = [[], [], []]
    for number, one in enumerate(people):
        round_, place = divmod(number, FOLDS)
        which = 2 if place == fold else 1 if round_ % 6 == fold else 0
        parts[which].append(one)
    return Dataset(*(_joined(some) for some in parts))


def _joined(people: Sequence[Part]) -> Part:
    inputs, target = ([getattr(one, name) for one in people] for name in ("inputs", "target"))
    return Part(torch.cat(inputs), torch.cat(target))


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
    *,
    loss: str,
    learning_rate: float,
    seed: int,
    width: int,
    epochs: int,
    count: int,
    slices: int,
) -> dict[str, Any]:
    """A piece: one fold, whose number is the seed; SGD as in the paper."""
    split = fold_of(patients(count, slices), seed)
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
