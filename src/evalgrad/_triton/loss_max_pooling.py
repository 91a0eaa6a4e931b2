"""Loss max-pooling: w* = tau min(1, l/alpha)^(q-1), alpha the largest root of h(alpha) = m, where
h(e) = sum min(l/e, 1)^q falls with e (docs/maths.md). No sort: alpha is found digit by digit.

The bits of a positive float order like integers, its *key*. Three passes over the losses count them
by 11, 10 and 10 bits of their keys, the second and third only those that share the bits found so
far, and add up (l/e)^q over each slot, e its lower edge, in fixed point, so that the sum does not
depend on the order of its terms. A program per row then knows h at the edge of every slot, and the
slot that alpha is in. After the last pass that is one float32 and the next: all losses up to it are
below alpha, all others above, and alpha follows. A fourth pass writes the weights.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from evalgrad._triton import ROUNDED, implements

_BLOCK = 4096  # losses of a tile
_MOST_Q = 64  # beyond, q times the error of a logarithm would show in float32

INFINITY = tl.constexpr(0x7F800000)
NORMAL = tl.constexpr(1.17549435e-38)  # smaller losses count as 0, as in the C++ kernel
UNIT = tl.constexpr(2.0**20)  # of the sums in fixed point


@triton.jit
def _read(losses, mask, tile, tiles, n, BLOCK: tl.constexpr):
    """Of a tile: its row, its places, which of them there are and count, losses, their keys."""
    row = (tile // tiles).to(tl.int64)
    i = (tile % tiles) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    valid = inside
    if mask is not None:
        valid = tl.load(mask + row * n + i, mask=inside, other=0) != 0
    x = tl.load(losses + row * n + i, mask=valid, other=0.0)
    key = tl.where(x >= NORMAL, x.to(tl.int32, bitcast=True), 0)
    return row, row * n + i, inside, valid, x, tl.where(x == x, key, INFINITY)


@triton.jit
def _count(
    losses, mask, found, counts, sums, valid_in_tile, n, tiles, q,
    FIRST: tl.constexpr, SHIFT: tl.constexpr, SLOTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Count the losses that share the bits found, and add up their powers. At first also: how many
    of the tile are valid, -1 if one of them is NaN.
    """
    tile = tl.program_id(0)
    row, _, _, valid, x, key = _read(losses, mask, tile, tiles, n, BLOCK)
    counted = key > 0
    if FIRST:
        nan = tl.max((x != x).to(tl.int32))
        tl.store(valid_in_tile + tile, tl.where(nan > 0, -1, tl.sum(valid.to(tl.int32))))
    else:
        counted = counted & (key // SLOTS >> SHIFT == tl.load(found + row) // SLOTS >> SHIFT)
    edge = ((key >> SHIFT) << SHIFT).to(tl.float32, bitcast=True)
    power = tl.where(x == edge, 1.0, tl.exp2(q * tl.log2(x / edge)))
    slot = row * SLOTS + ((key >> SHIFT) & (SLOTS - 1))
    tl.atomic_add(counts + slot, 1, mask=counted, sem="relaxed")
    fixed = (power * UNIT + 0.5).to(tl.int64)
    tl.atomic_add(sums + slot, fixed, mask=counted, sem="relaxed")


@triton.jit
def _valid_in_row(valid_in_tile, row, tiles, BLOCK: tl.constexpr):
    """How many losses of a row count; less than 0 if one of them is NaN."""
    number, least = tiles * 0, tiles * 0
    for start in range(0, tiles, BLOCK):
        i = start + tl.arange(0, BLOCK)
        part = tl.load(valid_in_tile + row * tiles + i, mask=i < tiles, other=0)
        number += tl.sum(part)
        least = tl.minimum(least, tl.min(part))
    return tl.where(least < 0, -1, number)


@triton.jit
def _choose(
    counts, sums, valid_in_tile, found, numbers, below, support, tiles, q,
    FIRST: tl.constexpr, SHIFT: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    """A program per row: the slot with alpha, the largest with h >= m at its lower edge L.

    Keeps the key of L in `found`; in `numbers` how many losses are valid, above the slot and in it;
    in `below` the sum of (l/L)^q over l < L.
    """
    row = tl.program_id(0).to(tl.int64)
    if FIRST:
        valid = _valid_in_row(valid_in_tile, row, tiles, SLOTS)
        low, above, under = valid * 0, valid * 0, (valid * 0).to(tl.float64)
    else:
        valid = tl.load(numbers + row * 3)
        above = tl.load(numbers + row * 3 + 1)
        low = tl.load(found + row)
        under = tl.load(below + row)
    m = tl.maximum((support * valid).to(tl.float64), 1.0)
    j = tl.arange(0, SLOTS)
    count = tl.load(counts + row * SLOTS + j)
    power = tl.load(sums + row * SLOTS + j).to(tl.float64) / UNIT
    at_or_above = above + tl.sum(count) - tl.cumsum(count) + count
    key = low + (j << SHIFT)
    # Powers are taken relative to an edge with at least m losses from it on, where h >= m, or to L.
    certain = tl.max(tl.where(at_or_above >= m, j, 0))
    edge = tl.where(key <= INFINITY, key, 0).to(tl.float32, bitcast=True).to(tl.float64)
    reference = tl.sum(tl.where(j == certain, edge, 0.0))
    ratio = tl.where(j == certain, 1.0, tl.exp2(q * (tl.log2(edge) - tl.log2(reference))))
    ratio = tl.where(ratio < 1e200, ratio, 1e200)
    start = under * tl.sum(tl.where(j == 0, ratio, 0.0))
    parts = tl.where(count > 0, ratio * power, 0.0)
    smaller = (start + tl.cumsum(parts) - parts) / ratio
    enough = (key <= INFINITY) & (ratio < 1e200) & (at_or_above + smaller >= m)
    chosen = tl.max(tl.where(enough & (j > certain), j, certain))
    here = j == chosen
    tl.store(numbers + row * 3, valid)
    tl.store(numbers + row * 3 + 1, above + tl.sum(tl.where(j > chosen, count, 0)))
    tl.store(numbers + row * 3 + 2, tl.sum(tl.where(here, count, 0)))
    tl.store(below + row, tl.sum(tl.where(here, smaller, 0.0)))
    tl.store(found + row, low + (chosen << SHIFT))


@triton.jit
def _weigh(
    losses, mask, found, numbers, below, value, weights, support, n, tiles, q, BLOCK: tl.constexpr
):
    tile = tl.program_id(0)
    row, place, inside, valid, x, key = _read(losses, mask, tile, tiles, n, BLOCK)
    number = tl.load(numbers + row * 3)
    above = tl.load(numbers + row * 3 + 1)
    tied = tl.load(numbers + row * 3 + 2)
    limit = tl.load(found + row)
    m = tl.maximum((support * number).to(tl.float64), 1.0)
    # s = (alpha/L)^q, where L is the largest loss that is not above alpha
    s = tl.maximum((tl.load(below + row) + tied) / (m - above), 1.0)
    log_tau = -tl.log2(tl.maximum(number, 1).to(tl.float64)) / q - tl.log2(m) * (1 - 1 / q)
    largest = limit.to(tl.float32, bitcast=True)
    ratio = tl.where(key == limit, 1.0, x / largest)
    log_share = (q - 1) * tl.log2(ratio) - (tl.log2(s) * (1 - 1 / q)).to(tl.float32)
    share = tl.where(key > limit, 1.0, tl.where(key > 0, tl.exp2(log_share), 0.0))
    weight = share * tl.exp2(log_tau).to(tl.float32)
    weight = tl.where(number < 0, float("nan"), weight)
    tl.store(value + tile, tl.sum(tl.where(valid, weight * x, 0.0)))
    tl.store(weights + place, tl.where(valid, weight, 0.0), mask=inside)


def _example(dtype: torch.dtype) -> tuple[Tensor | float, ...]:
    generator = torch.Generator().manual_seed(0)
    losses = torch.rand(2, 500, generator=generator, dtype=torch.float64).square().to(dtype)
    return losses, torch.rand(2, 500, generator=generator) < 0.8, 1.3, 0.25


@implements(_example)
def loss_max_pooling(
    losses: Tensor, mask: Tensor | None, p: float, support: float
) -> tuple[Tensor, Tensor] | None:
    """Values ``(R,)`` and weights w* ``(R, n)``."""
    rows, n = losses.shape
    q = p / (p - 1) if p > 1 else float("inf")
    if not 1 < q <= _MOST_Q or n >= 2**31 or not losses.numel():
        return None
    tiles = triton.cdiv(n, _BLOCK)
    sizes, options = (n, tiles, q), {"BLOCK": _BLOCK, "num_warps": 8, **ROUNDED}
    found, numbers, valid = (
        torch.empty(size, dtype=torch.int32, device=losses.device)
        for size in (rows, (rows, 3), rows * tiles)
    )
    below = losses.new_empty(rows, dtype=torch.float64)
    for shift, slots in ((20, 2048), (10, 1024), (0, 1024)):
        digit: dict[str, Any] = {"FIRST": shift == 20, "SHIFT": shift, "SLOTS": slots}
        counts = found.new_zeros(rows, slots)
        sums = found.new_zeros(rows, slots, dtype=torch.int64)
        _count[(rows * tiles,)](
            losses, mask, found, counts, sums, valid, *sizes, **digit, **options
        )
        _choose[(rows,)](
            counts, sums, valid, found, numbers, below, support, tiles, q,
            num_warps=8, **digit, **ROUNDED,
        )  # fmt: skip
    value, weights = losses.new_empty(rows, tiles), torch.empty_like(losses)
    _weigh[(rows * tiles,)](
        losses, mask, found, numbers, below, value, weights, support, *sizes, **options
    )
    return value.sum(1, dtype=torch.float64).to(losses.dtype), weights
