"""The surrogate errors of the S-measures: weighted by class with their gradient, and their totals.

A batch is one launch, a program for each of its rows, which hold all their items in registers. The
items of longer rows, and of the data, are in tiles: the totals of each, which torch adds up, and
then the gradient.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from evalgrad._triton import ROUNDED, implements

_BLOCK = 4096  # items of a tile
_MOST_ITEMS = (2**16 - 1) * _BLOCK  # the second axis of a grid has no more tiles
_BITS = tl.constexpr(1.4426950408889634)  # in a nat


@triton.jit
def _log1p(t):
    """Of t in [0, 1]. The rounding of 1 + t cancels, as it is in both factors."""
    more = 1 + t
    return tl.where(more == 1, t, tl.log(more) * (t / tl.where(more == 1, 1.0, more - 1)))


@triton.jit
def _surrogate(z, KIND: tl.constexpr):
    """Value and slope at a shortfall, by the numbers of `surrogates.SURROGATES`; NaN stays NaN."""
    if KIND == 0:  # hinge
        return tl.where(z < 0, 0.0, z), tl.where(z > 0, 1.0, 0.0)
    elif KIND == 1:  # square
        return z * z, 2 * z
    elif KIND == 2:  # cross-entropy
        x = z - 1
        tail = tl.exp(-tl.abs(x))
        value = tl.where(x < 0, 0.0, x) + _log1p(tail)
        return value * _BITS, tl.where(x < 0, tail, 1.0) / (1 + tail) * _BITS
    else:  # margin
        value = tl.where(z < 0, 0.0, tl.where(z > 1, 1.0, z))
        return value, tl.where((z > 0) & (z < 1), 1.0, 0.0)


@triton.jit
def _add_up(violation, error, member):
    """Of one side: the sum of errors, the hard errors, the items."""
    wrong = tl.sum((member & (violation >= 0)).to(tl.int32))
    return tl.sum(tl.where(member, error, 0.0)), wrong, tl.sum(member.to(tl.int32))


@triton.jit
def _store_side(out, total, wrong, items):
    tl.store(out, total)
    tl.store(out + 1, wrong.to(tl.float32))
    tl.store(out + 2, items.to(tl.float32))


@triton.jit
def _error_totals(
    scores, positive, scale, threshold, totals, n, KIND: tl.constexpr, BLOCK: tl.constexpr
):
    """Of each tile of each row, at its threshold if there is one: then all rows have the same
    scores, and NaN is an item not seen yet.
    """
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    first = row * n if threshold is None else row * 0
    own = tl.load(positive + first + i, mask=i < n, other=0) != 0
    offset = tl.load(scores + first + i, mask=i < n, other=0.0)
    seen = i < n
    if threshold is not None:
        offset = tl.load(scale + row) * (offset - tl.load(threshold + row))
        seen = seen & (offset == offset)
    violation = tl.where(own, -offset, offset)
    error, _ = _surrogate(1 + violation, KIND)
    out = totals + (row * tl.num_programs(1) + tl.program_id(1)) * 6
    missed, wrong, items = _add_up(violation, error, own & seen)
    _store_side(out, missed, wrong, items)
    alarms, wrong, items = _add_up(violation, error, (own == 0) & seen)
    _store_side(out + 3, alarms, wrong, items)


@triton.jit
def _weighted_errors(
    offset, positive, weight, totals, value, gradient, n, square, prior,
    KIND: tl.constexpr, ALONE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of each tile of each row, and the value, from totals which a tile that is alone
    finds out and stores.
    """
    row, tile = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i = tile * BLOCK + tl.arange(0, BLOCK)
    own = tl.load(positive + row * n + i, mask=i < n, other=0) != 0
    x = tl.load(offset + row * n + i, mask=i < n, other=0.0)
    violation = tl.where(own, -x, x)
    error, slope = _surrogate(1 + violation, KIND)
    totals += row * 6
    if ALONE:
        missed, wrong, hits = _add_up(violation, error, own)
        _store_side(totals, missed, wrong, hits)
        alarms, wrong, others = _add_up(violation, error, (own == 0) & (i < n))
        _store_side(totals + 3, alarms, wrong, others)
    else:
        missed, hits = tl.load(totals), tl.load(totals + 2)
        alarms, others = tl.load(totals + 3), tl.load(totals + 5)
    missed, hits = missed.to(tl.float64), hits.to(tl.float64)
    alarms, others = alarms.to(tl.float64), others.to(tl.float64)
    hit = _mean_weight(tl.load(weight + row * 2), hits, others)
    alarm = _mean_weight(tl.load(weight + row * 2 + 1), others, hits)
    shown = _weighed(hit, missed) + _weighed(alarm, alarms)
    if square > 0:
        shown = _ratio(missed, hits, alarms, others, square, prior)
    tl.store(value + row, shown.to(tl.float32), mask=tile == 0)
    each = tl.where(own, -hit, alarm).to(tl.float32)
    tl.store(gradient + row * n + i, tl.where(each == 0, 0.0, slope * each), mask=i < n)


@triton.jit
def _mean_weight(weight, items, others):
    """Of an item; nothing where a class is missing."""
    return tl.where(tl.minimum(items, others) > 0, weight / tl.maximum(items, 1), 0.0)


@triton.jit
def _weighed(weight, error):
    """A class without weight adds nothing, not even where its error is infinite; NaN shows."""
    return tl.where((weight == 0) & (error == error), 0.0, weight * error)


@triton.jit
def _ratio(missed, hits, alarms, others, square, prior):
    """V = (beta^2 + F) / T; see `surrogate_errors.Ratio`."""
    n, m = tl.maximum(hits, 1), tl.maximum(others, 1)
    false = tl.where(prior > 0, prior * alarms / m, alarms / n)
    found = 1 - missed / n
    found = tl.where(found < 1 / n, 1 / n, found)  # NaN stays NaN
    both = tl.minimum(hits, others) > 0
    return tl.where(both, (square + false) / found, 0 * missed * alarms)


# ---- launches


def _tiling(items: int) -> tuple[int, dict[str, Any]]:
    """Number of tiles, and the options of a launch."""
    block = min(max(triton.next_power_of_2(items), 128), _BLOCK)
    return triton.cdiv(items, block), {
        "BLOCK": block,
        "num_warps": max(block // 512, 1),
        **ROUNDED,
    }


def _fits(items: int, rows: int) -> bool:
    return 0 < items <= _MOST_ITEMS and 0 < rows < 2**31


def _totals(
    scores: Tensor, positive: Tensor, rows: int, surrogate: int, *at: Tensor | None
) -> Tensor:
    """Of all tiles ``(rows, 2, 3)`` in float64, at a scale and a threshold or at none."""
    items = scores.shape[-1]
    tiles, options = _tiling(items)
    found = scores.new_empty(rows, tiles, 2, 3)
    _error_totals[(rows, tiles)](scores, positive, *at, found, items, KIND=surrogate, **options)
    return found.sum(1, dtype=torch.float64)


def _batch(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(2, 300, generator=generator, dtype=torch.float64).to(dtype)
    return scores, torch.rand(2, 300, generator=generator) < 0.3


@implements(lambda dtype: (*_batch(dtype), torch.tensor([[0.7, 2.0], [1.0, 0.5]]), 2, 0.0, 0.0))
def s_measure_errors(
    offset: Tensor, positive: Tensor, weight: Tensor, surrogate: int, square: float, prior: float
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Values ``(R,)``, gradient ``(R, n)`` and totals ``(R, 2, 3)``."""
    rows, items = offset.shape
    if not _fits(items, rows):
        return None
    tiles, options = _tiling(items)
    value, gradient, alone = offset.new_empty(rows), torch.empty_like(offset), tiles == 1
    if alone:
        totals = offset.new_empty(rows, 2, 3)
    else:
        totals = _totals(offset, positive, rows, surrogate, None, None)
    _weighted_errors[(rows, tiles)](
        offset, positive, weight, totals, value, gradient, items, square, prior,
        KIND=surrogate, ALONE=alone, **options,
    )  # fmt: skip
    return value, gradient, totals.to(offset.dtype)


def _data(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    scores, positive = (x[0] for x in _batch(dtype))
    scores[::7] = torch.nan
    thresholds = torch.tensor([-0.5, 0.0, 1.0]).to(dtype)
    return scores, positive, thresholds + 2, thresholds, torch.tensor(True)


@implements(lambda dtype: (*_data(dtype), 2))
def s_measure_totals(
    scores: Tensor, positive: Tensor, scale: Tensor, threshold: Tensor, due: Tensor, surrogate: int
) -> Tensor | None:
    """Totals ``(K, 2, 3)`` at K thresholds; `due` is on the CPU: a look at it costs no sync."""
    if not (due and _fits(len(scores), len(threshold))):
        return None
    totals = _totals(scores, positive, len(threshold), surrogate, scale, threshold)
    return totals.to(scores.dtype)
