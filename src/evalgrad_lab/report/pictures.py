"""Images and label maps as PNG inside the page; a class has one colour in light and dark."""

import base64
import io
from collections.abc import Sequence

import numpy as np
from PIL import Image

from evalgrad_lab.report.records import Grid

# Background first. Neighbours differ in lightness, so that classes stay apart without colour
# vision.
FIRST = "22262e e69f00 56b4e9 009e73 f0e442 0072b2 d55e00 cc79a7"
SECOND = "ffffff 785ef0 96dcbe aa4499 888888 661100 ddcc77 332288"
CLASS_COLOURS = [tuple(bytes.fromhex(colour)) for colour in f"{FIRST} {SECOND}".split()]


def image_picture(image: Grid | list[Grid]) -> str:
    """An image (H, W) or (1, H, W) in grey, (3, H, W) in colour, the first of any other number of
    channels, from its darkest to its brightest value, as a data URI.
    """
    array = np.asarray(image, dtype=np.float64)
    if array.ndim == 3:
        array = np.moveaxis(array, 0, -1) if len(array) == 3 else array[0]
    low, high = array.min(), array.max()
    return _uri(Image.fromarray(np.uint8(np.round(255 * (array - low) / ((high - low) or 1.0)))))


def label_picture(labels: Sequence[Sequence[int]]) -> str:
    """A label map as a data URI. Colours begin again after the last; ignored is background."""
    array = np.maximum(np.asarray(labels), 0)
    colours = len(CLASS_COLOURS) - 1
    picture = Image.fromarray(np.uint8(np.where(array > 0, (array - 1) % colours + 1, 0)), mode="P")
    picture.putpalette([channel for colour in CLASS_COLOURS for channel in colour])
    return _uri(picture)


def _uri(picture: Image.Image) -> str:
    file = io.BytesIO()
    picture.save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
