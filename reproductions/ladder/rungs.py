"""The tasks. Each is written as an `.npz` file, as a user would, and trained from it. A task whose
data are missing is skipped, and the page says so.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from evalgrad_lab.commands.train import TaskName
from evalgrad_lab.data.dataset import Sizes
from evalgrad_lab.data.embedded import digits
from evalgrad_lab.data.fetched import labelled, mapped
from reproductions.ladder import arrays
from reproductions.ladder.arrays import Arrays


@dataclass(frozen=True)
class Rung:
    """One task: `read()` gives the arrays of its file, `options` what `compare --data` takes."""

    name: str
    task: TaskName
    metric: str
    read: Callable[[], Arrays]
    options: dict[str, Any] = field(default_factory=dict)
    held_out: bool = False
    source: str = ""  # the folder that the user has given


def write(rung: Rung, folder: Path) -> Path:
    """The file of the task, written once for each `source`. Its name stays the same, because it is
    part of the address of finished runs; they know the contents by their digest.
    """
    path, mark = folder / f"{rung.name}.npz", folder / f"{rung.name}.source"
    known = mark.read_text() if mark.exists() else ""
    if not path.exists() or known != rung.source:
        found = rung.read()
        folder.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path.with_suffix(".part.npz"), **found)
        path.with_suffix(".part.npz").rename(path)
        if rung.source:
            mark.write_text(rung.source)
    return path


SEGMENTED: dict[str, Any] = {"epochs": 30, "batch_size": 16}
TABLE: dict[str, Any] = {"epochs": 60}
ROADS: dict[str, Any] = {"epochs": 20, "batch_size": 8}
PAIRS: dict[str, Any] = {"epochs": 40, "batch_size": 64}
MORE_PAIRS: dict[str, Any] = {"epochs": 20, "batch_size": 64}


def rungs(camvid: Path | None = None) -> list[Rung]:
    """All tasks; `camvid` is the folder of CamVid, which cannot be fetched."""

    def drives(name: str, shared: bool) -> Rung:
        source = "" if camvid is None else str(camvid.resolve())
        read = lambda: arrays.camvid(camvid, shared)  # noqa: E731
        return Rung(name, "segmentation", "miou", read, ROADS, source=source)

    return [*RUNGS, drives("camvid", True), drives("camvid-apart", False)]


RUNGS = [
    Rung(
        "scenes",
        "segmentation",
        "miou",
        lambda: arrays.parts(digits.digit_scenes(0, Sizes(1500, 300, 600))),
        {"epochs": 15, "batch_size": 16},
    ),
    Rung(
        "strokes",
        "segmentation",
        "image-iou",
        lambda: arrays.parts(digits.strokes(0, Sizes(600, 200, 400))),
        SEGMENTED,
    ),
    Rung(
        "landsat",
        "segmentation",
        "miou",
        lambda: arrays.parts(mapped.land_tiles(0, Sizes(100, 30, 60))),
        SEGMENTED,
    ),
    Rung("brain", "segmentation", "miou", arrays.brain, {"epochs": 60, "batch_size": 8}),
    Rung("earth-lakes", "segmentation", "miou", lambda: arrays.earth(True), SEGMENTED),
    Rung("earth-land", "segmentation", "dice", lambda: arrays.earth(False), SEGMENTED),
    Rung("noisy-digit", "ranking", "ap", lambda: arrays.one_digit(0.4, 8), TABLE),
    Rung("digit", "ranking", "f1", lambda: arrays.one_digit(0.0, 8), TABLE),
    Rung("yeast4", "ranking", "f1", lambda: arrays.keel("yeast4"), TABLE),
    Rung("winequality-red-4", "ranking", "ap", lambda: arrays.keel("winequality-red-4"), TABLE),
    Rung(
        "page-blocks0",
        "ranking",
        "recall@precision=0.9",
        lambda: arrays.keel("page-blocks0"),
        TABLE,
    ),
    Rung("yeast3", "ranking", "precision@recall=0.9", lambda: arrays.keel("yeast3"), TABLE),
    Rung(
        "yeast1",
        "ranking",
        "sensitivity@specificity=0.9",
        lambda: arrays.keel("yeast1"),
        TABLE,
    ),
    Rung("segment0", "ranking", "ndcg@10", lambda: arrays.keel("segment0"), TABLE),
    Rung(
        "digit-pairs",
        "classification",
        "top5",
        lambda: arrays.pairs(digits.digit_pairs(0, Sizes(4000, 1000, 2000), noise=0.0)),
        PAIRS,
    ),
    Rung(
        "noisy-pairs",
        "classification",
        "top5",
        lambda: arrays.pairs(digits.digit_pairs(0, Sizes(4000, 1000, 2000), noise=1.0)),
        PAIRS,
    ),
    Rung(
        "mnist-pairs",
        "classification",
        "top5",
        lambda: arrays.pairs(labelled.mnist_pairs(0, Sizes(8000, 2000, 4000), noise=0.5)),
        MORE_PAIRS,
    ),
    Rung(
        "cifar-pairs",
        "classification",
        "top5",
        lambda: arrays.pairs(arrays.cifar_pairs(0, Sizes(8000, 2000, 4000), noise=0.0)),
        MORE_PAIRS,
    ),
    # Not looked at until the recipe was frozen.
    Rung(
        "nuclei",
        "segmentation",
        "image-iou",
        lambda: arrays.parts(mapped.nucleus_tiles(0, Sizes(128, 48, 80))),
        SEGMENTED,
        held_out=True,
    ),
    Rung(
        "fashion-tail",
        "classification",
        "f1",
        lambda: arrays.long_tail(labelled.images("fashion-mnist")[0], 1500, 50.0),
        PAIRS,
        held_out=True,
    ),
    Rung("pima", "ranking", "f1", lambda: arrays.keel("pima"), TABLE, held_out=True),
    Rung("vehicle1", "ranking", "ap", lambda: arrays.keel("vehicle1"), TABLE, held_out=True),
]
