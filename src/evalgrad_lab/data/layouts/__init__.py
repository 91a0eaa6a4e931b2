"""Readers of the folders in which the papers' data sets are published; nothing is downloaded,
copied or rewritten. `--data cityscapes:/data/cityscapes` names one.

Each module has a function from the root folder and the split to examples.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from evalgrad_lab.data.dataset import Examples, Found
from evalgrad_lab.data.layouts import label_maps as maps
from evalgrad_lab.data.layouts.image_classes import cifar10, cifar100, class_folders, imagenet
from evalgrad_lab.data.layouts.images import resized
from evalgrad_lab.data.layouts.voc_regions import voc_regions
from evalgrad_lab.errors import UserError


class Layout(NamedTuple):
    """A reader ``(root, split, **options)``, its task, and the names or the number of its classes;
    None: the folders of the root name them.
    """

    read: Callable[..., Examples]
    task: str
    classes: tuple[str, ...] | int | None


LAYOUTS = {
    "cityscapes": Layout(maps.cityscapes, "segmentation", maps.CITYSCAPES),
    "voc": Layout(maps.voc, "segmentation", maps.VOC_CLASSES),
    "coco_stuff": Layout(maps.coco_stuff, "segmentation", maps.COCO_CLASSES),
    "coco_sky": Layout(maps.coco_sky, "segmentation", ("other", "sky")),
    "cifar10": Layout(cifar10, "classification", 10),
    "cifar100": Layout(cifar100, "classification", 100),
    "imagenet": Layout(imagenet, "classification", None),
    "voc_regions": Layout(voc_regions, "ranking", ("0", "1")),
}


def read_layout(name: str, root: Path, task: str, options: dict[str, Any]) -> Found:
    """The training and validation parts. The options are `train` and `validation`, the names of
    the splits (train, val), `resize`, and those of the reader.
    """
    layout = LAYOUTS[name]
    if task != layout.task:
        raise UserError(f"--data {name}:... is for --task {layout.task}; got {task}.")
    rest = {"train": "train", "validation": "val", "resize": None} | options
    *splits, size = (rest.pop(name) for name in ("train", "validation", "resize"))
    try:
        parts = [layout.read(root, split, **rest) for split in splits]
    except TypeError as error:
        raise UserError(f"--data-options: {name} does not take {rest}: {error}.") from error
    train, validation = parts if size is None else [resized(part, size) for part in parts]
    classes = class_folders(root) if layout.classes is None else layout.classes
    names = range(classes) if isinstance(classes, int) else classes
    return Found(train, validation, classes=[str(name) for name in names])
