"""Strokes: the thin inner line of one digit under heavy noise, a binary segmentation with little
foreground.
"""

import torch

from evalgrad_lab.data.dataset import Dataset, Part, Sizes
from evalgrad_lab.data.embedded.glyphs import Glyphs, pools, resized

INNER = 0.9  # only pixels this dark are stroke


def strokes(seed: int, sizes: Sizes, *, canvas: int = 24, noise: float = 1.0) -> Dataset[Part]:
    """Images (n, 1, canvas, canvas) = stroke + noise * N(0, 1) and their masks (n, canvas, canvas);
    the parts share no glyph.
    """
    generator = torch.Generator().manual_seed(seed)
    return Dataset(
        *(
            _part(glyphs, count, generator, canvas, noise)
            for glyphs, count in zip(pools(seed), sizes, strict=True)
        )
    )


def _part(
    glyphs: Glyphs, count: int, generator: torch.Generator, canvas: int, noise: float
) -> Part:
    which = torch.randint(len(glyphs), (count,), generator=generator)
    mask = resized(glyphs.images, canvas)[which] > INNER
    return Part((mask + noise * torch.randn(mask.shape, generator=generator))[:, None], mask.long())
