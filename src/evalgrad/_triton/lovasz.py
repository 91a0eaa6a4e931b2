"""The Lovász losses: count the errors in bins, walk the bins from the largest errors down for a
table of slopes, look up the slope of each pixel. csrc/lovasz/histogram.h and docs/maths.md explain.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from evalgrad._triton import implements
from evalgrad._triton.class_maps import (
    MOST_CLASSES,
    class_maps_example,
    read_tile,
    through_softmax,
    tiling,
)


@triton.jit
def bin_of(errors, bins):
    """From the largest errors down; NaN, which compares as False, is in the first."""
    place = errors * bins
    return bins - 1 - tl.where(place < bins - 1, place, bins - 1).to(tl.int32)


@triton.jit
def _count_bins(
    x, label, counts, images, tiles, C, S, bins, CLASSES: tl.constexpr, PIXELS: tl.constexpr
):
    image, _, _, p, front, valid = read_tile(
        x, label, tl.program_id(0), tiles, C, S, CLASSES, PIXELS
    )
    number = bin_of(tl.where(front, 1 - p, p), bins)
    row = (image // images) * C + tl.arange(0, CLASSES)[:, None]
    # the last bin of the background, the fullest by far, follows from the totals
    counted = valid & (front | (number < bins - 1))
    tl.atomic_add(
        counts + (row * 2 + front.to(tl.int64)) * bins + number, 1, mask=counted, sem="relaxed"
    )


@triton.jit
def _bin_gradient(
    x, label, slopes, value, gradient, images, tiles, C, S, bins,
    CLASSES: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    image, place, inside, p, front, valid = read_tile(x, label, tile, tiles, C, S, CLASSES, PIXELS)
    errors = tl.where(front, 1 - p, p)
    row = (image // images) * C + tl.arange(0, CLASSES)[:, None]
    entry = (row * 2 + front.to(tl.int64)) * bins + bin_of(errors, bins)
    slope = tl.load(slopes + entry, mask=valid, other=0.0)
    tl.store(value + tile, tl.sum(tl.where(valid, errors * tl.abs(slope), 0.0)))
    tl.store(gradient + place, through_softmax(p, slope, CLASSES), mask=inside)


def _count(x: Tensor, label: Tensor, bins: int) -> Tensor:
    """Counts ``(G, C, 2, K)`` in 32 bits."""
    groups, images, classes, pixels = x.shape
    tiles, options = tiling(x)
    counts = torch.zeros(groups, classes, 2, bins, dtype=torch.int32, device=x.device)
    if x.numel():
        _count_bins[(groups * images * tiles,)](
            x, label, counts, images, tiles, classes, pixels, bins, **options
        )
    # Every pixel that counts is the foreground of one class, and the background of all others.
    front = counts[:, :, 1].sum(-1, dtype=torch.int32)
    back = front.sum(-1, keepdim=True, dtype=torch.int32) - front
    counts[:, :, 0, -1] = back - counts[:, :, 0, :-1].sum(-1, dtype=torch.int32)
    return counts


def _look_up(x: Tensor, label: Tensor, slopes: Tensor) -> tuple[Tensor, Tensor]:
    groups, images, classes, pixels = x.shape
    tiles, options = tiling(x)
    value = x.new_zeros(groups, images * tiles)
    gradient = torch.empty_like(x)
    if x.numel():
        _bin_gradient[(groups * images * tiles,)](
            x, label, slopes, value, gradient, images, tiles, classes, pixels, slopes.shape[-1],
            **options,
        )  # fmt: skip
    return value.sum(1, dtype=torch.float64).to(x.dtype), gradient


def _too_large(x: Tensor) -> bool:
    return x.shape[2] > MOST_CLASSES or x[:1, :, 0].numel() >= 2**31


@implements(lambda dtype: (*class_maps_example(dtype), 16))
def lovasz_bin_counts(x: Tensor, label: Tensor, bins: int) -> Tensor | None:
    """Counts ``(G, C, 2, K)`` of errors, by kind and bin."""
    return None if _too_large(x) else _count(x, label, bins).long()


def _gradient_example(dtype: torch.dtype) -> tuple[Tensor, ...]:
    x, label = class_maps_example(dtype)
    generator = torch.Generator().manual_seed(1)
    return x, label, torch.randn(2, 5, 2, 16, generator=generator).to(dtype)


@implements(_gradient_example)
def lovasz_bin_gradient(x: Tensor, label: Tensor, slopes: Tensor) -> tuple[Tensor, Tensor] | None:
    """Value ``(G,)`` and gradient in x, from a table ``(G, C, 2, K)`` of slopes."""
    return None if _too_large(x) else _look_up(x, label, slopes)
