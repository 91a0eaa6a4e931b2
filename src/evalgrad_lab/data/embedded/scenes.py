"""Digit scenes: several digits on one canvas, ten classes with a long tail and a dominant
background.
"""

import torch
from torch import Tensor

from evalgrad_lab.data.dataset import Dataset, Part, Sizes
from evalgrad_lab.data.embedded.glyphs import Glyphs, pools, resized

CLASSES = 11  # the background is class 0, digit d is class d + 1
GLYPH_SIZES = range(11, 17)
MOST_DIGITS = 3
INK = 0.3  # from this grey value on, a pixel belongs to its digit


def class_chances(tail: float) -> Tensor:
    """(10,) chance of each digit: falls exponentially, digit 0 is `tail` times as frequent as digit
    9.
    """
    return torch.softmax(-torch.arange(10) / 9 * torch.tensor(tail).log(), 0)


def digit_scenes(seed: int, sizes: Sizes, *, canvas: int = 32, tail: float = 9.0) -> Dataset[Part]:
    """Images (n, 1, canvas, canvas) and label maps (n, canvas, canvas); the parts share no
    glyph.
    """
    generator = torch.Generator().manual_seed(seed)
    parts = zip(pools(seed), sizes, strict=True)
    return Dataset(
        *(scenes(glyphs, count, generator, canvas=canvas, tail=tail) for glyphs, count in parts)
    )


def scenes(
    glyphs: Glyphs, count: int, generator: torch.Generator, *, canvas: int, tail: float
) -> Part:
    """`count` scenes of one to three of these glyphs, 11 to 16 pixels large; a later digit covers
    an earlier one.
    """
    ladder = {size: resized(glyphs.images, size) for size in GLYPH_SIZES}
    among = torch.bincount(glyphs.digit, minlength=10)[glyphs.digit]
    drawn = torch.multinomial(
        class_chances(tail)[glyphs.digit] / among,
        count * MOST_DIGITS,
        replacement=True,
        generator=generator,
    )
    size, top, left = torch.rand(3, count, MOST_DIGITS, generator=generator)
    number = torch.randint(1, MOST_DIGITS + 1, (count,), generator=generator)
    images, labels = (
        torch.zeros(count, 1, canvas, canvas),
        torch.zeros(count, canvas, canvas, dtype=torch.int64),
    )
    for i, which in enumerate(drawn.view(count, MOST_DIGITS).tolist()):
        for j in range(int(number[i])):
            side = GLYPH_SIZES[int(size[i, j] * len(GLYPH_SIZES))]
            glyph, (y, x) = (
                ladder[side][which[j]],
                (int(place[i, j] * (canvas - side + 1)) for place in (top, left)),
            )
            ink = glyph > INK
            images[i, 0, y : y + side, x : x + side][ink] = glyph[ink]
            labels[i, y : y + side, x : x + side][ink] = glyphs.digit[which[j]] + 1
    return Part(images, labels)
