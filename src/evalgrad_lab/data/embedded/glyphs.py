"""scikit-learn's 1797 handwritten digits of 8x8 pixels, and their division into three pools that
share no glyph.
"""

from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor

from evalgrad_lab.data.dataset import Sizes, permutation

POOLS = Sizes(1077, 270, 450)  # 60, 15 and 25 per cent of the glyphs


@dataclass(frozen=True)
class Glyphs:
    """`images` (n, 8, 8) in 0..1 and the `digit` each shows."""

    images: Tensor
    digit: Tensor

    def __len__(self) -> int:
        return len(self.digit)


@cache
def all_glyphs() -> Glyphs:
    """The 1797 glyphs in scikit-learn's order."""
    data = load_digits()
    return Glyphs(
        torch.tensor(data.images, dtype=torch.float32) / 16,
        torch.tensor(data.target, dtype=torch.int64),
    )


def pools(seed: int) -> tuple[Glyphs, Glyphs, Glyphs]:
    """The glyphs of training, validation and test: a seeded partition."""
    glyphs = all_glyphs()
    parts = permutation(len(glyphs), seed).split(list(POOLS))
    first, second, third = (Glyphs(glyphs.images[part], glyphs.digit[part]) for part in parts)
    return first, second, third


def resized(images: Tensor, size: int) -> Tensor:
    """(n, 8, 8) glyphs at `size` x `size` pixels."""
    return F.interpolate(images[:, None], size=(size, size), mode="bilinear")[:, 0]
