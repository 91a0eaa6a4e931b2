"""COCO-Stuff 164k: <split>2017/*.jpg and stuffthingmaps_trainval2017/<split>2017/*.png, pixels
0..181 and 255 for unlabelled.
"""

from pathlib import Path

import torch
from torch import Tensor

from evalgrad_lab.data.dataset import Examples
from evalgrad_lab.data.files.folders import read_mask
from evalgrad_lab.data.layouts.images import IGNORE, existing, found, images_and_masks

CLASSES = 182
SKY = 156  # "sky-other", id 157 in the list of labels, which counts from 1


def coco_stuff(root: Path, split: str) -> Examples:
    """All images of `train` or `val`, with their 182 thing and stuff classes."""
    return images_and_masks(_pairs(root, split))


def coco_sky(root: Path, split: str) -> Examples:
    """One class against the rest, as in the second experiment of the S-measures paper: 1 is sky."""
    return images_and_masks(_pairs(root, split), read_sky)


def _pairs(root: Path, split: str) -> list[tuple[Path, Path]]:
    images = existing(root / f"{split}2017", f"the {split} images")
    folder = root / "stuffthingmaps_trainval2017" / f"{split}2017"
    maps = existing(folder, f"the maps of the {split} images").glob("*.png")
    return [(images / f"{mask.stem}.jpg", mask) for mask in found(maps, folder, "*.png")]


def read_sky(path: Path) -> Tensor:
    """1 where the sky is, 0 elsewhere, `IGNORE` where nothing is labelled."""
    classes = read_mask(path)
    return torch.where(classes == IGNORE, IGNORE, (classes == SKY).long())
