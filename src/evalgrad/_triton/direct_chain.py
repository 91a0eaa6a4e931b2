"""Direct losses of rankings, any direction and any cutoff: the chain of running maxima

    D_i(n) = H_i(n) + max_{m <= n} D_{i-1}(m)

of docs/maths.md, "The negative direction", by one program per row. It goes through the n in tiles,
and in each from positive to positive: what a positive hands to the next stays in registers, what it
hands to the next tile, its maximum so far, is one number in memory. A bit per cell (i, n) says
whether it is a *record*, at which D_i reaches its running maximum; from the records the n_i follow
backwards.

With a cutoff k a positive is inside, i + n_i <= k, or outside, and so are then all behind it. The
chain has the cells inside, at most k x k; for every number of positives inside the best places of
the others follow in closed form.
"""

import triton
import triton.language as tl

from evalgrad._triton.direct_places import TIE


@triton.jit
def _larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def _run_tile(
    start, first, steps, width, before, came, edge, records, P, k, c, z, sums, rank, table,
    SIGN: tl.constexpr, AP: tl.constexpr, CUT: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The positives from `first` on over n = start .. start + WIDTH - 1: their records, and in
    `edge` their maxima so far, which in `came` are those of the tile before. `before` is the
    maximum of the positive before. Returns how many positives cannot take any n behind the tile.
    """
    lane = tl.arange(0, WIDTH)
    n, word = start + lane, start // 32 + tl.arange(0, WIDTH // 32)
    words = (width + 31) // 32
    S = tl.load(sums + P + n - 1, mask=(n > 0) & (n < width), other=0.0)
    best = tl.zeros((WIDTH,), tl.float64) + before
    finished = first
    for i in range(first, steps):
        phi, own = tl.load(z + i), tl.load(rank + i)
        T = tl.load(table + i + 1 + n, mask=n < width, other=0.0)
        allowed = (n < width) & (n <= own if SIGN < 0 else n >= own)
        if CUT:
            allowed = allowed & (n + i + 1 <= k)
        weight = -SIGN * c
        if AP:
            weight = weight * (i + 1)
        d = tl.where(allowed, S - n * phi + weight * T + best, float("-inf"))
        left = tl.load(came + i, mask=start > 0, other=float("-inf"))
        best = tl.maximum(tl.associative_scan(d, 0, _larger), left)
        record = (allowed & (d + TIE * c >= best)).to(tl.uint32)
        bit = tl.reshape(record, (WIDTH // 32, 32)) << tl.arange(0, 32)[None, :].to(tl.uint32)
        packed = tl.sum(bit, 1).to(tl.int32, bitcast=True)
        tl.store(records + i * words.to(tl.int64) + word, packed, mask=word < words)
        tl.store(edge + i + lane * 0, best, mask=lane == WIDTH - 1)
        if SIGN < 0:
            finished = tl.where(own < start + WIDTH, i + 1, finished)
    return finished


@triton.jit
def _before(sums, o, mask):
    """Of running sums, that of the first o."""
    return tl.load(sums + o - 1, mask=mask & (o > 0), other=0.0)


@triton.jit
def _place_outside(i, P, rank, k, SIGN: tl.constexpr):
    """How many negatives are at least above the positives behind the first i, if these are inside
    the cutoff and those are not.
    """
    own = tl.load(rank + i, mask=i < P, other=0)
    if SIGN > 0:
        own = tl.maximum(own, k - i)
    return tl.where(i < P, own, 0)


@triton.jit
def _keep_inside(
    steps, edge, P, N, k, c, sums, base, rank, SIGN: tl.constexpr, WIDTH: tl.constexpr
):
    """How many positives y_direct has inside the cutoff."""
    outside = P * 0  # the first that y_w has outside
    for start in range(0, steps, WIDTH):
        i = start + tl.arange(0, WIDTH)
        own = tl.load(rank + i, mask=i < steps, other=0)
        outside += tl.sum(((i < steps) & (i + 1 + own <= k)).to(tl.int32))
    low, high = P * 0, outside
    if SIGN < 0:
        low, high = outside, steps
    best, kept = tl.full((), float("-inf"), tl.float64), low
    for start in range(low, high + 1, WIDTH):
        i = start + tl.arange(0, WIDTH)
        there = i <= high
        m = _place_outside(tl.where(there, i, P), P, rank, k, SIGN)
        # positives i + 1 .. pushed of y_w stand above negative m, and have to go below it
        pushes = there & (m > 0) & (m <= N)
        pushed = tl.load(rank + P + m - 1, mask=pushes, other=0)
        pushed = tl.where(pushes, tl.maximum(i, pushed), i)
        total = _before(edge, i, there) - _before(base, pushed, there)
        pushed_phi = _before(sums, pushed, pushes) - _before(sums, i, pushes)
        total += (pushed - i) * _before(sums + P, m, pushes) - m * pushed_phi
        total = tl.where(there & (m <= N), total, float("-inf"))
        largest = tl.max(total)
        least = tl.min(tl.where(total >= largest - TIE * c, i, high))
        kept = tl.where(largest > best + TIE * c, least, kept)
        best = tl.maximum(best, largest)
    return kept


@triton.jit
def _trace_back(kept, width, records, rank, moved, SIGN: tl.constexpr, WORDS: tl.constexpr):
    """n_i from the records: the last of `kept` positives takes its last one, every other its last
    one that is not beyond its successor's.
    """
    words, lane = (width + 31) // 32, tl.arange(0, 32)[None, :]
    limit = width - 1
    for back in range(kept):
        i = kept - 1 - back
        if SIGN < 0:  # the tiles behind have no records of it
            limit = tl.minimum(limit, tl.load(rank + i))
        found, top = limit * 0 - 1, limit // 32
        while (found < 0) & (top >= 0):
            word = top - tl.arange(0, WORDS)
            bits = tl.load(records + i * words.to(tl.int64) + word, mask=word >= 0, other=0)
            cell = word[:, None] * 32 + lane
            is_record = ((bits[:, None] >> lane) & 1 == 1) & (cell <= limit)
            found = tl.max(tl.max(tl.where(is_record, cell, -1), 1), 0)
            top -= WORDS
        limit = tl.maximum(found, 0)
        tl.store(moved + i, limit)


@triton.jit
def run_chain(
    numbers, scales, z, sums, base, rank, table, moved, edges, records, n, k, words_of_row,
    SIGN: tl.constexpr, AP: tl.constexpr, CUT: tl.constexpr, WIDTH: tl.constexpr,
    WORDS: tl.constexpr,
):  # fmt: skip
    """n_i of the maximiser, in the columns of the positives of `moved`."""
    row = tl.program_id(0).to(tl.int64)
    P, N = tl.load(numbers + row * 3), tl.load(numbers + row * 3 + 1)
    c = tl.load(scales + row * 2)
    steps, width = P, N + 1
    if CUT:
        steps, width = tl.minimum(P, k), tl.minimum(N + 1, k)
    z, sums, base = z + row * n, sums + row * n, base + row * n
    rank, moved = rank + row * n, moved + row * n
    edges, records = edges + row * 2 * n, records + row * words_of_row
    first, before = P * 0, tl.full((), 0.0, tl.float64)
    edge = edges
    for start in range(0, width, WIDTH):
        # Two takes of the maxima: a program's threads are not in step, and one may not overwrite
        # what another still has to load.
        odd = (start // WIDTH) % 2
        came, edge = edges + (1 - odd) * n, edges + odd * n
        finished = _run_tile(
            start, first, steps, width, before, came, edge, records, P, k, c, z, sums, rank, table,
            SIGN, AP, CUT, WIDTH,
        )  # fmt: skip
        tl.debug_barrier()
        if not CUT:
            before = tl.load(edge + finished - 1, mask=finished > first, other=before)
            first = finished
    kept = steps
    if CUT:
        kept = _keep_inside(steps, edge, P, N, k, c, sums, base, rank, SIGN, WIDTH)
        place = _place_outside(kept, P, rank, k, SIGN)
        for start in range(kept, P, WIDTH):
            i = start + tl.arange(0, WIDTH)
            own = tl.load(rank + i, mask=i < P, other=0)
            tl.store(moved + i, tl.maximum(own, place), mask=i < P)
    _trace_back(kept, width, records, rank, moved, SIGN, WORDS)
