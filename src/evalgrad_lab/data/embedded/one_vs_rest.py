"""Real digits, one digit against the rest: ten rankings with noisy labels, or one
imbalanced table.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from evalgrad_lab.data.dataset import Dataset, Part
from evalgrad_lab.data.embedded.glyphs import Glyphs, pools


def noisy_digits(seed: int, *, swapped: float = 0.4) -> Dataset[Part]:
    """Pixels (n, 64) and membership (n, 10): in training and validation a share `swapped` of each
    digit's members is swapped with as many others, drawn anew for each digit. The test labels are
    clean.
    """
    generator = torch.Generator().manual_seed(seed)
    train, validation, test = (
        Part(_pixels(glyphs), F.one_hot(glyphs.digit, 10)) for glyphs in pools(seed)
    )
    noisy = (
        Part(part.inputs, swap_members(part.target, swapped, generator))
        for part in (train, validation)
    )
    return Dataset(next(noisy), next(noisy), test)


def swap_members(target: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """In each column turn round `share` of the ones and as many zeros: the class
    frequencies stay.
    """
    result = target.clone()
    for column in result.T:
        ones, zeros = (torch.nonzero(column == value)[:, 0] for value in (1, 0))
        count = round(share * len(ones))
        for members in (ones, zeros):
            turned = members[torch.randperm(len(members), generator=generator)[:count]]
            column[turned] = 1 - column[turned]
    return result


def digit_table(seed: int, *, digit: int = 8) -> Dataset[Part]:
    """A table of 16 numbers, the grey values of 4x4 pixels, and whether they show `digit`: one in
    ten does.
    """
    return Dataset(*(_table(glyphs, digit) for glyphs in pools(seed)))


def _table(glyphs: Glyphs, digit: int) -> Part:
    coarse = F.avg_pool2d(glyphs.images[:, None], 2).flatten(1)
    return Part(4 * (coarse - 0.3), (glyphs.digit == digit).long())


def _pixels(glyphs: Glyphs) -> Tensor:
    """(n, 64) grey values, roughly centred and of unit size: fixed numbers, so that nothing is
    learnt from validation or test.
    """
    return 3 * (glyphs.images.flatten(1) - 0.3)
