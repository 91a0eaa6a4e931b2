"""The tasks. Each is written as an `.npz` file, as a user would, and trained from it. `make data`
fetches what is not embedded; a task whose data are missing is skipped, and the page says so.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evalgrad_lab.commands.train import Kind
from evalgrad_lab.data.dataset import Dataset, Part, Sizes
from evalgrad_lab.data.embedded import digits
from evalgrad_lab.data.fetched import labelled, mapped

Arrays = dict[str, Any]


@dataclass(frozen=True)
class Rung:
    """One task: `read()` gives the arrays of its file, `options` what `compare --data` takes."""

    name: str
    task: Kind
    metric: str
    read: Callable[[], Arrays]
    options: dict[str, Any] = field(default_factory=dict)
    held_out: bool = False


def _images(data: Dataset[Part]) -> Arrays:
    """The parts as they are: images (N, H, W, channels) between 0 and 1, and label maps."""
    parts = {"": data.train, "val_": data.validation, "test_": data.test}
    every = torch.cat([part.inputs for part in parts.values()])
    low, high = every.amin((0, 2, 3), keepdim=True), every.amax((0, 2, 3), keepdim=True)
    found: Arrays = {}
    for name, part in parts.items():
        inputs = ((part.inputs - low) / (high - low)).movedim(1, -1)
        found[f"{name}inputs"] = inputs.squeeze(-1).numpy()
        found[f"{name}target"] = part.target.numpy()
    return found


def _rows(inputs: Tensor, target: Tensor) -> Arrays:
    return {"inputs": inputs.flatten(1).numpy(), "target": target.numpy()}


def _pairs(data: Dataset[Part]) -> Arrays:
    """With the test part clean, as the data have it."""
    return {
        **_rows(torch.cat([data.train.inputs, data.validation.inputs]), _labels(data)),
        "test_inputs": data.test.inputs.flatten(1).numpy(),
        "test_target": data.test.target.numpy(),
    }


def _labels(data: Dataset[Part]) -> Tensor:
    return torch.cat([data.train.target, data.validation.target])


def _table(name: str) -> Arrays:
    part = labelled.table(name)
    return _rows(part.inputs, part.target)


def _earth(side: int, count: int) -> tuple[Tensor, Tensor]:
    """Squares with land and with water."""
    colours, classes = mapped.earth()
    images = colours.unfold(1, side, side).unfold(2, side, side).flatten(1, 2).movedim(0, 1)
    labels = classes.unfold(0, side, side).unfold(1, side, side).flatten(0, 1)
    mixed = torch.nonzero(((labels == 1).float().mean((1, 2)) - 0.5).abs() < 0.45)[:, 0]
    order = mixed[torch.randperm(len(mixed), generator=torch.Generator().manual_seed(0))[:count]]
    return images[order], labels[order]


def _earth_arrays(lakes: bool) -> Arrays:
    images, labels = _earth(32, 900)
    target = labels if lakes else (labels == 1).long()
    return {"inputs": images.movedim(1, -1).numpy(), "target": target.numpy()}


def _one_digit(swapped: float, digit: int) -> Arrays:
    data = digits.noisy_digits(0, swapped=swapped)
    one = Dataset(
        *(Part(p.inputs, p.target[:, digit]) for p in (data.train, data.validation, data.test))
    )
    return _pairs(one)


def _long_tail(images: Part, target_of_most: int, tail: float) -> Arrays:
    """Fewer and fewer examples of each class."""
    kept = []
    for label in range(10):
        places = torch.nonzero(images.target == label)[:, 0]
        kept.append(places[: round(target_of_most * tail ** -(label / 9))])
    chosen = torch.cat(kept)
    return _rows(images.inputs[chosen], images.target[chosen])


def write(rung: Rung, folder: Path) -> Path:
    """The file of the task, written once."""
    path = folder / f"{rung.name}.npz"
    if not path.exists():
        arrays = rung.read()
        folder.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path.with_suffix(".part.npz"), **arrays)
        path.with_suffix(".part.npz").rename(path)
    return path


SEGMENTED: dict[str, Any] = {"epochs": 30, "batch_size": 16}
TABLE: dict[str, Any] = {"epochs": 60}
PAIRS: dict[str, Any] = {"epochs": 40, "batch_size": 64}

RUNGS = [
    Rung(
        "scenes",
        "segmentation",
        "miou",
        lambda: _images(digits.digit_scenes(0, Sizes(1500, 300, 600))),
        SEGMENTED,
    ),
    Rung(
        "strokes",
        "segmentation",
        "image-iou",
        lambda: _images(digits.strokes(0, Sizes(600, 200, 400))),
        SEGMENTED,
    ),
    Rung(
        "strokes-dice",
        "segmentation",
        "image-dice",
        lambda: _images(digits.strokes(1, Sizes(600, 200, 400))),
        SEGMENTED,
    ),
    Rung(
        "landsat",
        "segmentation",
        "miou",
        lambda: _images(mapped.land_tiles(0, Sizes(100, 30, 60))),
        SEGMENTED,
    ),
    Rung("earth-lakes", "segmentation", "miou", lambda: _earth_arrays(True), SEGMENTED),
    Rung("earth-land", "segmentation", "dice", lambda: _earth_arrays(False), SEGMENTED),
    Rung("noisy-digit", "ranking", "ap", lambda: _one_digit(0.4, 8), TABLE),
    Rung("digit", "ranking", "f1", lambda: _one_digit(0.0, 8), TABLE),
    Rung("yeast4", "ranking", "f1", lambda: _table("yeast4"), TABLE),
    Rung("abalone9-18", "ranking", "ap", lambda: _table("abalone9-18"), TABLE),
    Rung("page-blocks0", "ranking", "recall@precision=0.9", lambda: _table("page-blocks0"), TABLE),
    Rung("yeast3", "ranking", "precision@recall=0.9", lambda: _table("yeast3"), TABLE),
    Rung("segment0", "ranking", "ndcg@10", lambda: _table("segment0"), TABLE),
    Rung(
        "digit-pairs",
        "classification",
        "top5",
        lambda: _pairs(digits.digit_pairs(0, Sizes(4000, 1000, 2000), noise=0.0)),
        PAIRS,
    ),
    Rung(
        "noisy-pairs",
        "classification",
        "top5",
        lambda: _pairs(digits.digit_pairs(0, Sizes(4000, 1000, 2000), noise=1.0)),
        PAIRS,
    ),
    Rung(
        "mnist-pairs",
        "classification",
        "top5",
        lambda: _pairs(labelled.mnist_pairs(0, Sizes(8000, 2000, 4000), noise=0.5)),
        PAIRS,
    ),
    # Not looked at until the recipe is frozen.
    Rung(
        "nuclei",
        "segmentation",
        "image-iou",
        lambda: _images(mapped.nucleus_tiles(0, Sizes(128, 48, 80))),
        SEGMENTED,
        held_out=True,
    ),
    Rung(
        "fashion-tail",
        "classification",
        "f1",
        lambda: _long_tail(labelled.images("fashion-mnist")[0], 1500, 50.0),
        PAIRS,
        held_out=True,
    ),
    Rung("glass1", "ranking", "f1", lambda: _table("glass1"), TABLE, held_out=True),
    Rung("vowel0", "ranking", "ap", lambda: _table("vowel0"), TABLE, held_out=True),
]
