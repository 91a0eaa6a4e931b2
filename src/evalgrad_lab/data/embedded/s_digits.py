"""s-digits, after S-MNIST of S-measures: the digit is doubled in size in half of the images."""

import torch
import torch.nn.functional as F

from evalgrad_lab.data.dataset import Dataset, Part
from evalgrad_lab.data.embedded.glyphs import Glyphs, pools, resized

CANVAS = 16


def s_digits(seed: int) -> Dataset[Part]:
    """Pixels (n, 256) of a 16x16 canvas, and targets (n, 2): the digit, and 1 where it fills the
    canvas instead of its middle.
    """
    generator = torch.Generator().manual_seed(seed)
    return Dataset(*(_part(glyphs, generator) for glyphs in pools(seed)))


def _part(glyphs: Glyphs, generator: torch.Generator) -> Part:
    large = torch.randperm(len(glyphs), generator=generator) < len(glyphs) // 2
    small = F.pad(glyphs.images, [CANVAS // 4] * 4)
    images = torch.where(large[:, None, None], resized(glyphs.images, CANVAS), small)
    return Part(3 * (images.flatten(1) - 0.3), torch.stack([glyphs.digit, large.long()], 1))
