"""Direct losses of rankings, positive direction without a cutoff: where each negative goes.

The negatives decouple and their places o_j rise with j (docs/maths.md, "The positive direction").
So a launch places every 2^b-th negative, each among all positives, the next ones place those
between, each among the places of its two neighbours: as many launches for a million items as for a
hundred.
"""

import triton
import triton.language as tl

TIE = tl.constexpr(1e-13)  # as evalgrad.direct_loss.inference has it


@triton.jit
def _values(o, high, j, psi, n, c, sums, table, AP: tl.constexpr):
    """Of the places o (1, M) for negatives j (J, 1), up to what does not depend on o."""
    there = o <= high
    phi = tl.load(sums + o - 1, mask=there & (o > 0), other=0.0)
    rank = o + j
    known = there & (rank <= n)
    if AP:
        w = tl.load(table + n + 1 + rank, mask=known, other=0.0)
        w -= (o + 1) / tl.maximum(rank, 1).to(tl.float64)
    else:
        w = -tl.load(table + rank, mask=known, other=0.0)
    return tl.where(there, phi - o * psi - c * w, float("-inf"))


@triton.jit
def place_negatives(
    numbers, scales, z, sums, table, moved, n, intervals, step, next_step,
    AP: tl.constexpr, NEGATIVES: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    """Of the least best places o_j for j = next_step, 2 next_step, .. in an interval of `step`
    negatives, whose two ends are placed; NEGATIVES of them a program.
    """
    row = (tl.program_id(0) // intervals).to(tl.int64)
    start = tl.program_id(0) % intervals * step
    first = tl.program_id(1) * NEGATIVES + 1
    P, N = tl.load(numbers + row * 3), tl.load(numbers + row * 3 + 1)
    if start + first * next_step <= N:
        c = tl.load(scales + row * 2)
        j = start + (first + tl.arange(0, NEGATIVES)) * next_step
        mine = (j < start + step) & (j <= N)
        o_of = moved + row * n + P - 1
        low = tl.load(o_of + start, mask=start > 0, other=0)
        high = tl.load(o_of + start + step, mask=start + step <= N, other=0)
        high = tl.where(start + step <= N, high, P)
        psi = tl.load(z + row * n + P - 1 + j, mask=mine, other=0.0)[:, None]
        best = tl.full((NEGATIVES,), float("-inf"), tl.float64)
        for begin in range(low, high + 1, PLACES):
            o = begin + tl.arange(0, PLACES)[None, :]
            value = _values(o, high, j[:, None], psi, n, c, sums + row * n, table, AP)
            best = tl.maximum(best, tl.max(value, 1))
        limit = (best - TIE * c)[:, None]
        least = tl.zeros((NEGATIVES,), tl.int32) + high
        for begin in range(low, high + 1, PLACES):
            o = begin + tl.arange(0, PLACES)[None, :]
            value = _values(o, high, j[:, None], psi, n, c, sums + row * n, table, AP)
            least = tl.minimum(least, tl.min(tl.where(value >= limit, o, high), 1))
        tl.store(o_of + j, least, mask=mine)
