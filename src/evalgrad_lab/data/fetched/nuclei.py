"""A microscope image of 512x512 pixels with 125 cell nuclei, as foreground and background."""

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from evalgrad_lab.data.dataset import Dataset, Part, Sizes, cut, permutation
from evalgrad_lab.data.fetched import place


def nuclei() -> tuple[Tensor, Tensor]:
    """Intensities (512, 512) in 0..1, and 1 where a nucleus is."""
    image, mask = (_raster(name) for name in ("img2d.tif", "mask2d.tif"))
    return image / image.max(), (mask > 0).long()


def nucleus_tiles(seed: int, sizes: Sizes, side: int = 32) -> Dataset[Part]:
    """Tiles (n, 1, side, side) that do not overlap, in a seeded order, with their masks; some have
    no nucleus.
    """
    image, mask = (
        plane.unfold(0, side, side).unfold(1, side, side).flatten(0, 1) for plane in nuclei()
    )
    order = permutation(len(mask), seed)
    return cut(((image - image.mean()) / image.std())[order, None], mask[order], sizes)


def _raster(name: str) -> Tensor:
    with Image.open(place("nuclei", "stardist", "data", "images", name)) as image:
        return torch.from_numpy(np.asarray(image).astype(np.float32))
