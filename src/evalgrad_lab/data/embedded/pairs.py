"""digits-100: two digits side by side, 100 classes in 20 groups of 5, with the label noise of
smooth top-k, 5.1.
"""

import torch
from torch import Tensor

from evalgrad_lab.data.dataset import Dataset, Part, Sizes
from evalgrad_lab.data.embedded.glyphs import Glyphs, pools

CLASSES, GROUP = 100, 5


def digit_pairs(seed: int, sizes: Sizes, *, noise: float) -> Dataset[Part]:
    """Pixels (n, 128) and the class 10 a + b of the digits a and b; the parts share no glyph.

    With chance `noise` a training or validation label is replaced by one of its group, itself
    included. The test labels are clean.
    """
    generator = torch.Generator().manual_seed(seed)
    train, validation, test = (
        _pairs(glyphs, count, generator) for glyphs, count in zip(pools(seed), sizes, strict=True)
    )
    noisy = (
        Part(part.inputs, within_group(part.target, noise, generator))
        for part in (train, validation)
    )
    return Dataset(next(noisy), next(noisy), test)


def within_group(target: Tensor, noise: float, generator: torch.Generator) -> Tensor:
    """With chance `noise` a label becomes a uniformly drawn one of its group of five."""
    other = target // GROUP * GROUP + torch.randint(GROUP, target.shape, generator=generator)
    return torch.where(torch.rand(target.shape, generator=generator) < noise, other, target)


def _pairs(glyphs: Glyphs, count: int, generator: torch.Generator) -> Part:
    first, second = torch.randint(len(glyphs), (2, count), generator=generator)
    images = torch.cat([glyphs.images[first], glyphs.images[second]], 2).flatten(1)
    return Part(3 * (images - 0.3), 10 * glyphs.digit[first] + glyphs.digit[second])
