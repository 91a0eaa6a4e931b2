"""The Lovász losses with `bins=`: count the errors in equal bins, walk the bins from the largest
errors down for a table of slopes, look up the slope of each pixel.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from evalgrad._triton import ROUNDED
from evalgrad._triton.lovasz_errors import Maps, add_counts, first_row, read_errors, through
from evalgrad._triton.lovasz_weights import tied_weights

BLOCK = 1024  # slots at a time


@triton.jit
def _bin_of(errors, highest, bins):
    """From the largest errors down; NaN, which compares as False, is in the first."""
    place = errors * (bins / highest)
    return bins - 1 - tl.where(place < bins - 1, place, bins - 1).to(tl.int32)


@triton.jit
def _highest_of_tiles(x, label, mask, highest, tiles, S, PIXELS: tl.constexpr):
    """The largest loss of each tile of a hinge, as bits, which have its order; NaN the largest."""
    tile = tl.program_id(0)
    _, _, _, errors, _, valid, _ = read_errors(x, label, mask, tile, tiles, 1, S, True, 1, PIXELS)
    bits = tl.where(valid, errors, 0.0).to(tl.int32, bitcast=True) & 0x7FFFFFFF
    tl.store(highest + tile, tl.max(bits))


@triton.jit
def _count(
    x, label, mask, highest, counts, without, images, tiles, C, S, bins,
    HINGE: tl.constexpr, CLASSES: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    _, _, _, errors, front, valid, _ = read_errors(
        x, label, mask, tile, tiles, C, S, HINGE, CLASSES, PIXELS
    )
    row = first_row(tile, tiles, images, C)
    top = 1.0
    counted = valid
    if HINGE:
        top = tl.load(highest + row)
        counted = valid & ((errors <= 0) == 0)  # this way round, NaN counts
        fronts = tl.sum((front & (counted == 0)).to(tl.int32))
        tl.atomic_add(without + row, fronts, mask=fronts > 0, sem="relaxed")
    add_counts(counts, row, _bin_of(errors, top, bins), bins - 1, front, counted, bins)


@triton.jit
def _walk(counts, without, factor, slopes, bins, m, w, HINGE: tl.constexpr, BLOCK: tl.constexpr):
    """A program per row: slopes ``(rows, 2, bins)`` from its counts."""
    row = tl.program_id(0).to(tl.int64)
    place = row * 2 * bins
    P = tl.sum(tl.zeros((BLOCK,), tl.int32))
    if HINGE:
        P += tl.load(without + row)
    for start in range(0, bins, BLOCK):
        i = start + tl.arange(0, BLOCK)
        P += tl.sum(tl.load(counts + place + bins + i, mask=i < bins, other=0))
    scale = tl.load(factor + row)
    a = tl.sum(tl.zeros((BLOCK,), tl.int32))
    b = a
    for start in range(0, bins, BLOCK):
        i = start + tl.arange(0, BLOCK)
        g = tl.load(counts + place + i, mask=i < bins, other=0)
        f = tl.load(counts + place + bins + i, mask=i < bins, other=0)
        ahead_f, ahead_g = a + tl.cumsum(f) - f, b + tl.cumsum(g) - g
        of_front, of_back = tied_weights(P, ahead_f, ahead_g, f, g, m, w)
        tl.store(slopes + place + i, scale * of_back, mask=i < bins)
        tl.store(slopes + place + bins + i, -scale * of_front, mask=i < bins)
        a += tl.sum(f)
        b += tl.sum(g)


@triton.jit
def _look_up(
    x, label, mask, highest, slopes, value, gradient, images, tiles, C, S, bins,
    HINGE: tl.constexpr, CLASSES: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    first, place, inside, errors, front, valid, inner = read_errors(
        x, label, mask, tile, tiles, C, S, HINGE, CLASSES, PIXELS
    )
    row = first_row(tile, tiles, images, C)
    top = 1.0
    counted = valid
    if HINGE:
        top = tl.load(highest + row)
        counted = valid & ((errors <= 0) == 0)
    kind = tl.arange(0, CLASSES)[:, None] * 2 + front.to(tl.int32)
    slope = tl.load(
        slopes + row * 2 * bins + (kind * bins + _bin_of(errors, top, bins)),
        mask=counted,
        other=0.0,
    )
    # a weight of 0 takes part with 0, even where a loss is infinite
    part = tl.where(counted & ((slope == 0) & HINGE == 0), errors * tl.abs(slope), 0.0)
    tl.store(value + tile, tl.sum(part))
    tl.store(gradient + first + place, through(slope, inner, HINGE, CLASSES), mask=inside)


def highest_losses(maps: Maps) -> Tensor:
    """The largest loss of each row of a hinge."""
    x = maps.x
    found = torch.empty(maps.rows, maps.tiles, dtype=torch.int32, device=x.device)
    options = {name: maps.options[name] for name in ("PIXELS", "num_warps")}
    _highest_of_tiles[maps.grid](
        *maps.tensors, found, maps.tiles, maps.shape[3], **options, **ROUNDED
    )
    return found.amax(1).view(torch.float32)


def count(maps: Maps, bins: int, highest: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    """Counts ``(rows, 2, K)``, background and foreground, and of a hinge how much foreground of a
    row is without a loss and in no bin.
    """
    counts = torch.zeros(maps.rows, 2, bins, dtype=torch.int32, device=maps.x.device)
    without = None if highest is None else torch.zeros_like(counts[:, 0, 0])
    _count[maps.grid](*maps.tensors, highest, counts, without, *maps.sizes, bins, **maps.options)
    return counts, without


def walk(
    counts: Tensor, without: Tensor | None, factor: Tensor, misses: float, false_alarms: float
) -> Tensor:
    """Slopes ``(rows, 2, K)`` in the errors: positive on the background, negative else."""
    slopes = torch.empty(counts.shape, device=counts.device)
    rows, _, bins = counts.shape
    _walk[(rows,)](
        counts, without, factor, slopes, bins, misses, false_alarms,
        HINGE=without is not None, BLOCK=BLOCK, **ROUNDED,
    )  # fmt: skip
    return slopes


def look_up(maps: Maps, slopes: Tensor, highest: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Value ``(G,)`` and gradient."""
    value, gradient = maps.results()
    _look_up[maps.grid](
        *maps.tensors, highest, slopes, value, gradient, *maps.sizes, slopes.shape[-1],
        **maps.options,
    )  # fmt: skip
    return value.sum(1, dtype=torch.float64).to(value.dtype), gradient


def in_bins(
    maps: Maps, factor: Tensor, bins: int, misses: float, false_alarms: float
) -> tuple[Tensor, Tensor]:
    """Value ``(G,)`` and gradient of either loss, a factor for each row."""
    highest = highest_losses(maps) if maps.options["HINGE"] else None
    counts, without = count(maps, bins, highest)
    return look_up(maps, walk(counts, without, factor, misses, false_alarms), highest)
