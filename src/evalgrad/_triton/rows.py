"""The gradient times what arrives from above, in place: nothing to do where that is 1, as for a
loss that is alone, and to find that out the host need not wait.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from evalgrad._triton import ROUNDED, implements

_BLOCK = 4096


@triton.jit
def _scale(gradient, upstream, n, tiles, BLOCK: tl.constexpr):
    row = tl.program_id(0) // tiles
    factor = tl.load(upstream + row)
    if factor != 1:  # NaN is not 1 either
        i = (tl.program_id(0) % tiles).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        place = gradient + row.to(tl.int64) * n + i
        tl.store(place, tl.load(place, mask=i < n, other=0.0) * factor, mask=i < n)


def _example(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    gradient = torch.randn(3, 5000, generator=generator, dtype=torch.float64).to(dtype)
    return gradient, torch.tensor([1.0, 0.5, -3.0], dtype=dtype)


@implements(_example)
def scale_rows(gradient: Tensor, upstream: Tensor) -> Tensor | None:
    """`gradient (*, ...)` itself, times `upstream (*)`."""
    n = gradient.numel() // max(upstream.numel(), 1)
    if n < 256 or upstream.dtype != gradient.dtype:  # less is not worth a program
        return None
    tiles = triton.cdiv(n, _BLOCK)
    grid = (upstream.numel() * tiles,)
    _scale[grid](gradient, upstream.contiguous(), n, tiles, BLOCK=_BLOCK, num_warps=8, **ROUNDED)
    return gradient
