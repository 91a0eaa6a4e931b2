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
from evalgrad_lab.data.layouts.voc_regions import (
    VOC_OBJECTS,
    voc_actions,
    voc_region_classes,
    voc_regions,
)
from evalgrad_lab.data.layouts.volumes import IBSR_CLASSES, ibsr
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
    "voc_class": Layout(maps.voc_class, "segmentation", ("other", "foreground")),
    "coco_stuff": Layout(maps.coco_stuff, "segmentation", maps.COCO_CLASSES),
    "coco_sky": Layout(maps.coco_sky, "segmentation", ("other", "sky")),
    "cifar10": Layout(cifar10, "classification", 10),
    "cifar100": Layout(cifar100, "classification", 100),
    "imagenet": Layout(imagenet, "classification", None),
    "voc_regions": Layout(voc_regions, "ranking", ("0", "1")),
    "voc_region_classes": Layout(
        voc_region_classes, "classification", ("background", *VOC_OBJECTS)
    ),
    "voc_actions": Layout(voc_actions, "ranking", ("0", "1")),
    "ibsr": Layout(ibsr, "segmentation", IBSR_CLASSES),
}


def read_layout(name: str, root: Path, task: str, options: dict[str, Any]) -> Found:
    """The parts of the data. The options are `train`, `validation` and `test`, the names of the
    splits (train, val, None), `resize`, and those of the reader. Where the split is None, a share
    of the training part is set aside.
    """
    layout = LAYOUTS[name]
    if task != layout.task:
        raise UserError(f"--data {name}:... is for --task {layout.task}; got {task}.")
    rest = {"train": "train", "validation": "val", "test": None, "resize": None} | options
    splits = {part: rest.pop(part) for part in ("train", "validation", "test")}
    size = rest.pop("resize")
    if not splits["train"]:
        raise UserError("--data-options: `train` must be the name of a split; got none.")
    try:
        parts = {p: layout.read(root, split, **rest) for p, split in splits.items() if split}
    except TypeError as error:
        raise UserError(f"--data-options: {name} does not take {rest}: {error}.") from error
    if size is not None:
        parts = {part: resized(examples, size) for part, examples in parts.items()}
    classes = class_folders(root) if layout.classes is None else layout.classes
    names = range(classes) if isinstance(classes, int) else classes
    given = [parts.get(part) for part in ("validation", "test")]
    return Found(parts["train"], *given, classes=[str(name) for name in names])
