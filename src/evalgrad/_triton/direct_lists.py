"""Direct losses of rankings: the lists of every row, from sorted keys.

The two classes of a row of n items stand one behind the other in n *columns*: positive i in column
i - 1, negative j in column |P| + j - 1, what does not count behind both. For the names see
evalgrad.direct_loss.inference and docs/maths.md, "Rankings". Void rows have |P| = |N| = 0 here, so
that nothing is done on them.
"""

import triton
import triton.language as tl

from evalgrad._triton.exact import sum_of_two

LEFT_OUT = tl.constexpr(1 << 40)  # the key of what does not count
_NAN = tl.constexpr(-(1 << 31))  # below -inf, which a NaN counts as


@triton.jit
def sort_keys(scores, target, mask, keys, n, BLOCK: tl.constexpr):
    """Keys that rise down the model's ranking: by falling score, among equal ones first the
    negatives, what does not count last.
    """
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    place = row * n + i
    x = tl.load(scores + place, mask=i < n, other=0.0)
    bits = tl.where(x == 0, 0.0, x).to(tl.int32, bitcast=True)  # -0 ties with 0
    # The bits of floats order like integers, those below 0 the other way round.
    rising = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.int64)
    rising = tl.where(x == x, rising, _NAN)
    positive = tl.load(target + place, mask=i < n, other=0) != 0
    key = positive.to(tl.int64) - 2 * rising
    if mask is not None:
        key = tl.where(tl.load(mask + place, mask=i < n, other=0) != 0, key, LEFT_OUT)
    tl.store(keys + place, key, mask=i < n)


@triton.jit
def gain_table(table, n, k, AP: tl.constexpr, BLOCK: tl.constexpr):
    """T(0) = 0, T(1), .. T(n), and behind them their running sums."""
    total = tl.full((), 0.0, tl.float64)
    for start in range(0, n + 1, BLOCK):
        r = start + tl.arange(0, BLOCK)
        rank = tl.maximum(r, 1).to(tl.float64)
        gain = 1 / rank if AP else 1 / tl.log2(1 + rank)
        gain = tl.where((r >= 1) & (r <= k), gain, 0.0)
        tl.store(table + r, gain, mask=r <= n)
        tl.store(table + n + 1 + r, total + tl.cumsum(gain), mask=r <= n)
        total += tl.sum(gain)


@triton.jit
def _score(key):
    """The score behind a key; -inf for a NaN."""
    rising = -(key >> 1)
    bits = tl.where(rising < 0, rising ^ 0x7FFFFFFF, rising).to(tl.int32)
    score = bits.to(tl.float32, bitcast=True).to(tl.float64)
    return tl.where(rising == _NAN, float("-inf"), score)


@triton.jit
def _count(keys, n, BLOCK: tl.constexpr):
    """|P|, |N| and the number of NaNs of a row."""
    P, N, nans = n * 0, n * 0, n * 0
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        key = tl.load(keys + i, mask=i < n, other=LEFT_OUT)
        counts = key < LEFT_OUT
        positives = tl.sum((counts & (key & 1 == 1)).to(tl.int32))
        P += positives
        N += tl.sum(counts.to(tl.int32)) - positives
        nans += tl.sum((counts & (-(key >> 1) == _NAN)).to(tl.int32))
    return P, N, nans


@triton.jit
def split_rows(
    keys, order, table, z, sums, base, rank, item, numbers, scales, n, epsilon, epsilon_rest,
    AP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A program per row, from its sorted keys and the order that sorts them.

    Of every column: z, the score up to a constant with wide gaps closed, and its running sum over
    the class; rank, how many of the other class are above in y_w; item, its place in the row. Of
    the positives also base, the running sum of S(n_i) - n_i phi_i. Of the row: |P|, |N|, whether a
    NaN counts; c and `ideal`.
    """
    row = tl.program_id(0).to(tl.int64)
    keys += row * n
    P, N, nans = _count(keys, n, BLOCK)
    pairs = P.to(tl.float64) * N
    widest = sum_of_two(epsilon, epsilon_rest) * pairs
    above, height = n * 0, tl.full((), 0.0, tl.float64)  # carried from block to block
    phi, psi, kept = height, height, height
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        key = tl.load(keys + i, mask=i < n, other=LEFT_OUT)
        before = tl.load(keys + i - 1, mask=(i > 0) & (i < n), other=LEFT_OUT)
        counts = key < LEFT_OUT
        positive = counts & (key & 1 == 1)
        positives = above + tl.cumsum(positive.to(tl.int32)) - positive.to(tl.int32)
        negatives = i - positives
        score, higher = _score(key), _score(before)
        fall = tl.where(counts & (i > 0) & (score < higher), score - higher, 0.0)
        fall = tl.maximum(fall, -widest)
        place = height + tl.cumsum(fall)
        phi_sum = phi + tl.cumsum(tl.where(positive, place, 0.0))
        psi_sum = psi + tl.cumsum(tl.where(counts & (key & 1 == 0), place, 0.0))
        inverted = tl.where(positive, psi_sum - negatives * place, 0.0)
        column = tl.where(positive, positives, tl.where(counts, P + negatives, i)) + row * n
        tl.store(z + column, place, mask=i < n)
        tl.store(sums + column, tl.where(positive, phi_sum, psi_sum), mask=i < n)
        tl.store(base + column, kept + tl.cumsum(inverted), mask=positive)
        tl.store(rank + column, tl.where(positive, negatives, positives), mask=i < n)
        tl.store(item + column, tl.load(order + row * n + i, mask=i < n).to(tl.int32), mask=i < n)
        above += tl.sum(positive.to(tl.int32))
        height += tl.sum(fall)
        phi += tl.sum(tl.where(positive, place, 0.0))
        psi += tl.sum(tl.where(counts & (key & 1 == 0), place, 0.0))
        kept += tl.sum(inverted)
    live = (P > 0) & (N > 0)
    tl.store(numbers + row * 3, tl.where(live, P, 0))
    tl.store(numbers + row * 3 + 1, tl.where(live, N, 0))
    tl.store(numbers + row * 3 + 2, tl.where(live, nans, 0))
    ideal = tl.load(table + n + 1 + P)
    if AP:
        ideal = P.to(tl.float64)
    tl.store(scales + row * 2, widest / (2 * ideal))
    tl.store(scales + row * 2 + 1, ideal)
