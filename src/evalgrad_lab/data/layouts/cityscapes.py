"""Cityscapes: leftImg8bit/<split>/<city>/*_leftImg8bit.png and
gtFine/<split>/<city>/*_gtFine_labelIds.png.
"""

from pathlib import Path

import torch
from torch import Tensor

from evalgrad_lab.data.dataset import Examples
from evalgrad_lab.data.files.folders import read_mask
from evalgrad_lab.data.layouts.images import IGNORE, existing, found, images_and_masks

# The 19 classes that are evaluated, as the ids of the label files, and the 7 categories that they
# belong to.
IDS = (7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33)
STUFF = "road,sidewalk,building,wall,fence,pole,traffic light,traffic sign,vegetation,terrain,sky"
THINGS = "person,rider,car,truck,bus,train,motorcycle,bicycle"
NAMES = (*STUFF.split(","), *THINGS.split(","))
# flat, construction, object, nature, sky, human, vehicle
CATEGORIES = (0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 4, 5, 5, 6, 6, 6, 6, 6, 6)


def cityscapes(root: Path, split: str) -> Examples:
    """The finely annotated images of `train`, `val` or `test`, classes 0..18 and `IGNORE`."""
    folder = existing(root / "leftImg8bit" / split, f"the images of the {split} split")
    images = found(folder.glob("*/*_leftImg8bit.png"), folder, "*/*_leftImg8bit.png")
    masks, pairs = root / "gtFine" / split, []
    for image in images:
        name = image.name.replace("_leftImg8bit.png", "_gtFine_labelIds.png")
        pairs.append((image, masks / image.parent.name / name))
    return images_and_masks(pairs, read_train_ids)


def read_train_ids(path: Path) -> Tensor:
    """The label file with its ids replaced by the classes that are evaluated."""
    table = torch.full((256,), IGNORE)
    table[list(IDS)] = torch.arange(len(IDS))
    return table[read_mask(path) % 256]
