"""Direct losses of rankings: Delta of y_w and of y_direct, and the gradient, of binary lists.

A sort by torch, and a number of launches that does not depend on the length of the lists: the keys
and the lists (direct_lists), the inference in the positive direction (direct_places) or by the
chain (direct_chain), and the results.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from evalgrad._triton import ROUNDED, implements
from evalgrad._triton.direct_chain import run_chain
from evalgrad._triton.direct_lists import gain_table, sort_keys, split_rows
from evalgrad._triton.direct_places import place_negatives
from evalgrad._triton.exact import in_two, sum_of_two

MOST_ITEMS = 2**22
MOST_RECORDS = 2**28  # words of 32 cells, of all rows
_BLOCK, _WIDTH, _LEVELS = 1024, 1024, 3


@triton.jit
def _lost(i, above, table, mask, AP: tl.constexpr):
    """a_i (T(i) - T(i + n_i)): what a positive loses, exactly 0 where it is in its place."""
    gain = tl.load(table + i, mask=mask, other=0.0)
    lost = gain - tl.load(table + i + above, mask=mask, other=0.0)
    return tl.sum(lost * i if AP else lost)


@triton.jit
def _write_gradient(
    numbers, rank, item, table, moved, gradient, lost, n, tiles, factor, factor_rest,
    AP: tl.constexpr, CHAIN: tl.constexpr, BITS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of a tile of columns, and what its positives lose in y_w and in y_direct.

    The chain has found the n_i, and o_j is the number of n_i < j; or else the o_j are known, and
    n_i is the number of o_j < i.
    """
    row, tile = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = tile * BLOCK + tl.arange(0, BLOCK)
    numbers += row * 3
    P, N, nans = tl.load(numbers), tl.load(numbers + 1), tl.load(numbers + 2)
    rank, item, moved = rank + row * n, item + row * n, moved + row * n
    positive, counts = column < P, column < P + N
    number = tl.where(positive, column, column - P) + 1
    known = positive if CHAIN else counts & (column >= P)
    others = moved if CHAIN else moved + P
    low = tl.zeros((BLOCK,), tl.int32)
    high = tl.where(counts & (known == 0), P if CHAIN else N, 0)
    for _ in range(BITS):
        middle, between = (low + high) // 2, low < high
        less = between & (tl.load(others + middle, mask=between, other=0) < number)
        low, high = tl.where(less, middle + 1, low), tl.where(less, high, tl.minimum(middle, high))
    place = tl.where(known, tl.load(moved + column, mask=known, other=0), low)
    own = tl.load(rank + column, mask=counts, other=0)
    unit = -2 * sum_of_two(factor, factor_rest) / tl.maximum(P.to(tl.float64) * N, 1)
    unit = tl.where(nans > 0, float("nan"), unit)
    slope = tl.where(counts, (place - own) * unit + 0.0, 0.0)  # no -0
    target = gradient + row * n + tl.load(item + column, mask=column < n, other=0)
    tl.store(target, slope.to(tl.float32), mask=column < n)
    part = lost + (row * tiles + tile) * 2
    tl.store(part, _lost(number, own, table, positive, AP))
    tl.store(part + 1, _lost(number, place, table, positive, AP))


@triton.jit
def _add_up(numbers, scales, lost, value, reached, tiles, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    own, direct = tl.full((), 0.0, tl.float64), tl.full((), 0.0, tl.float64)
    for start in range(0, tiles, BLOCK):
        tile = start + tl.arange(0, BLOCK)
        part = lost + (row * tiles + tile) * 2
        own += tl.sum(tl.load(part, mask=tile < tiles, other=0.0))
        direct += tl.sum(tl.load(part + 1, mask=tile < tiles, other=0.0))
    ideal = tl.load(scales + row * 2 + 1)
    void, nan = tl.load(numbers + row * 3) == 0, tl.load(numbers + row * 3 + 2) > 0
    ideal = tl.where(nan, float("nan"), ideal)
    tl.store(value + row, tl.where(void, 0.0, own / ideal).to(tl.float32))
    tl.store(reached + row, tl.where(void, 0.0, direct / ideal).to(tl.float32))


def _example(dtype: torch.dtype) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(3, 50, generator=generator, dtype=torch.float64).to(dtype)
    target = torch.rand(3, 50, generator=generator) < 0.4
    return scores, target, torch.rand(3, 50, generator=generator) < 0.9, 0.3, -1, False, 0


@implements(_example)
def direct_ranking(
    scores: Tensor,
    target: Tensor,
    mask: Tensor | None,
    epsilon: float,
    sign: int,
    ndcg: bool,
    k: int,
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Delta of y_w and of y_direct ``(R,)`` and the gradient ``(R, n)``; up to MOST_ITEMS in a
    list, and for the chain up to MOST_RECORDS.
    """
    rows, n = scores.shape
    cut = ndcg and 0 < k < n
    chain = sign < 0 or cut
    words = _words(n, k if cut else n)
    if not 0 < n <= MOST_ITEMS or not 1e-30 < epsilon < 1e30 or not rows:
        return None
    if chain and rows * words > MOST_RECORDS:
        return None
    BLOCK = min(_BLOCK, triton.next_power_of_2(n))
    options = {"BLOCK": BLOCK, "num_warps": max(1, BLOCK // 128), **ROUNDED}
    lists = _Lists(scores, target, mask, epsilon, k if cut else n, not ndcg, options)
    if chain:
        _chain(lists, sign, k if cut else n, cut, words)
    else:
        _place(lists)
    return _results(lists, sign / epsilon, chain, options)


def _words(n: int, k: int) -> int:
    """A bound on the words of records of a row, whatever its |P| and |N|."""
    return min(k * triton.cdiv(k, 32), n * n // 128 + n)


class _Lists:
    """What the kernels of direct_lists write."""

    def __init__(
        self,
        scores: Tensor,
        target: Tensor,
        mask: Tensor | None,
        epsilon: float,
        k: int,
        AP: bool,
        options: dict[str, Any],
    ) -> None:
        rows, n = scores.shape
        self.n, self.AP, self.scores = n, AP, scores
        keys = torch.empty_like(scores, dtype=torch.int64)
        sort_keys[(rows, triton.cdiv(n, options["BLOCK"]))](
            scores, target, mask, keys, n, **options
        )
        keys, order = keys.sort(dim=1, stable=True)
        self.table = torch.empty(2, n + 1, dtype=torch.float64, device=scores.device)
        gain_table[(1,)](self.table, n, k, AP=AP, **options)
        self.z, self.sums, self.base = (
            torch.empty_like(scores, dtype=torch.float64) for _ in range(3)
        )
        self.rank, self.item, self.moved = (
            torch.empty_like(scores, dtype=torch.int32) for _ in range(3)
        )
        self.numbers = torch.empty(rows, 3, dtype=torch.int32, device=scores.device)
        self.scales = torch.empty(rows, 2, dtype=torch.float64, device=scores.device)
        split_rows[(rows,)](
            keys, order, self.table, self.z, self.sums, self.base, self.rank, self.item,
            self.numbers, self.scales, n, *in_two(epsilon), AP=AP, **options,
        )  # fmt: skip


def _place(lists: _Lists) -> None:
    """o_j into the columns of the negatives of `moved`, by direct_places."""
    rows, n = lists.scores.shape
    bits = n.bit_length()
    everything = 1 << bits
    for left in range(_LEVELS, 0, -1):
        step = 1 << bits
        bits = bits * (left - 1) // left
        between = (step >> bits) - 1
        if between:
            intervals, NEGATIVES = everything // step, min(8, triton.next_power_of_2(between))
            place_negatives[(rows * intervals, triton.cdiv(between, NEGATIVES))](
                lists.numbers, lists.scales, lists.z, lists.sums, lists.table, lists.moved, n,
                intervals, step, 1 << bits, AP=lists.AP, NEGATIVES=NEGATIVES,
                PLACES=min(128, triton.next_power_of_2(n)), num_warps=4, **ROUNDED,
            )  # fmt: skip


def _chain(lists: _Lists, sign: int, k: int, cut: bool, words: int) -> None:
    """n_i into the columns of the positives of `moved`, by direct_chain."""
    rows, n = lists.scores.shape
    WIDTH = max(32, min(_WIDTH, triton.next_power_of_2(k)))
    edges = torch.empty(rows, 2, n, dtype=torch.float64, device=lists.z.device)
    records = lists.rank.new_empty(rows, words)
    run_chain[(rows,)](
        lists.numbers, lists.scales, lists.z, lists.sums, lists.base, lists.rank, lists.table,
        lists.moved, edges, records, n, k, words, SIGN=sign, AP=lists.AP, CUT=cut, WIDTH=WIDTH,
        WORDS=min(16, WIDTH // 32), num_warps=max(1, min(8, WIDTH // 128)), **ROUNDED,
    )  # fmt: skip


def _results(
    lists: _Lists, factor: float, chain: bool, options: dict[str, Any]
) -> tuple[Tensor, Tensor, Tensor]:
    rows, n = lists.scores.shape
    tiles = triton.cdiv(n, options["BLOCK"])
    value = lists.scores.new_empty(rows)
    reached, gradient = torch.empty_like(value), torch.empty_like(lists.scores)
    lost = lists.z.new_empty(rows, tiles, 2)
    _write_gradient[(rows, tiles)](
        lists.numbers, lists.rank, lists.item, lists.table, lists.moved, gradient, lost, n, tiles,
        *in_two(factor), AP=lists.AP, CHAIN=chain, BITS=n.bit_length(), **options,
    )  # fmt: skip
    _add_up[(rows,)](
        lists.numbers, lists.scales, lost, value, reached, tiles, BLOCK=64, num_warps=1, **ROUNDED
    )
    return value, reached, gradient
