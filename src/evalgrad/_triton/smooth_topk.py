"""Smooth top-k. Rows are split into chunks of classes that fit a program's registers:

1. `_chunk_tops`: the largest scores of each chunk, in order;
2. `_chunk_sums`: the head of the row from them, and the power sums of the bulk;
3. `_row_ratios`: one program per row: value, gradient of the head, and the q_j of the bulk;
4. `_chunk_gradients`: the gradient of the bulk.

So the scores are read three times and the gradient is written once. The names are those of
evalgrad.smooth_topk.expansion and docs/maths.md. Small tensors are float64. The head goes item by
item, and the polynomial of the bulk follows from its power sums by Newton's identities: there
positive and negative terms meet, but because 3k classes of the head are larger than all of the
bulk, what they lose is at most exp(k/8) roundings of the whole.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from evalgrad._triton import ROUNDED, implements
from evalgrad._triton.exact import in_two, sum_of_two

MOST_GUESSES = 31  # the states of a head of 3k items have to fit the registers of a program
_CHUNK = 8192
_CHUNKS = 64  # all their tops are merged at once
MOST_CLASSES = _CHUNK * _CHUNKS
_LARGEST = tl.constexpr(3.4028234663852886e38)


@triton.jit
def _ordered(x, row, chunk, label, C, CHUNK: tl.constexpr):
    """Classes of a chunk, and their scores as they are ordered: finite, NaN as the largest, the
    label ruled out, and -inf where there is no class.
    """
    c = chunk * CHUNK + tl.arange(0, CHUNK)
    scores = tl.load(x + row * C + c, mask=c < C, other=0.0)
    nan = (scores != scores) & (c < C)
    ordered = tl.where(nan, _LARGEST, tl.minimum(tl.maximum(scores, -_LARGEST), _LARGEST))
    ordered = tl.where(c == tl.load(label + row), -_LARGEST, ordered)
    return c, tl.where(c < C, ordered, float("-inf")), nan


@triton.jit
def _largest(scores, number, H, HEAD: tl.constexpr):
    """The first H of scores, in descending order, equal ones in the order of their numbers, and
    these numbers; -1 where there are no more.
    """
    slot = tl.arange(0, HEAD)
    top = tl.full((HEAD,), float("-inf"), tl.float32)
    places = tl.full((HEAD,), -1, tl.int32)
    for i in range(H):
        largest, at = tl.max(scores, 0, return_indices=True)
        here = tl.arange(0, scores.shape[0]) == at
        place = tl.max(tl.where(here & (scores > float("-inf")), number, -1), 0)
        top = tl.where(slot == i, largest, top)
        places = tl.where(slot == i, place, places)
        scores = tl.where(here, float("-inf"), scores)
    return top, places


@triton.jit
def _chunk_tops(
    x, label, tops, places, nans, C, H, chunks, CHUNK: tl.constexpr, HEAD: tl.constexpr
):
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    c, scores, nan = _ordered(x, row, chunk, label, C, CHUNK)
    top, place = _largest(scores, c, H, HEAD)
    out = (row * chunks + chunk) * HEAD + tl.arange(0, HEAD)
    tl.store(tops + out, top)
    tl.store(places + out, place)
    tl.store(nans + row * chunks + chunk, tl.max(nan.to(tl.int32), 0))


@triton.jit
def _entry(vector, at, SIZE: tl.constexpr):
    """One number of a vector."""
    return tl.sum(tl.where(tl.arange(0, SIZE) == at, vector, 0.0), 0)


@triton.jit
def _bulk(scores, c, pivot, last, last_place, inverse):
    """u of the classes of a chunk, and which of them are in the bulk: behind the last of the head,
    in the order of `_largest`.
    """
    bulk = (scores < last) | ((scores == last) & (c > last_place))
    return tl.where(bulk, tl.exp((tl.minimum(scores, pivot) - pivot) * inverse), 0.0), bulk


@triton.jit
def _chunk_sums(
    x, label, tops, places, head, head_places, sums, C, H, k, chunks, inverse,
    CHUNK: tl.constexpr, HEAD: tl.constexpr, MERGED: tl.constexpr, DEGREES: tl.constexpr,
):  # fmt: skip
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    candidate = tl.arange(0, MERGED)
    there = candidate < chunks * HEAD
    given = row * chunks * HEAD + candidate
    candidates = tl.load(tops + given, mask=there, other=float("-inf"))
    top, place = _largest(candidates, tl.load(places + given, mask=there, other=-1), H, HEAD)
    if chunk == 0:
        slot = row * HEAD + tl.arange(0, HEAD)
        tl.store(head + slot, top)
        tl.store(head_places + slot, place)
    c, scores, _ = _ordered(x, row, chunk, label, C, CHUNK)
    slot = tl.arange(0, HEAD)
    pivot = tl.max(tl.where(slot == k - 1, top, float("-inf")), 0)
    last = tl.max(tl.where(slot == H - 1, top, float("-inf")), 0)
    u, _ = _bulk(scores, c, pivot, last, tl.max(tl.where(slot == H - 1, place, -1), 0), inverse)
    u = u.to(tl.float64)
    degree = tl.arange(0, DEGREES)
    power, totals = u, tl.zeros((DEGREES,), tl.float64)
    for t in range(1, k + 1):
        totals = tl.where(degree == t, tl.sum(power, 0), totals)
        power *= u
    tl.store(sums + (row * chunks + chunk) * DEGREES + degree, totals)


@triton.jit
def _moved(vector, by: tl.constexpr, SIZE: tl.constexpr):
    """The entry of j at j + by; 0 where none came from."""
    there, here = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :]
    return tl.sum(tl.where(there + by == here, vector[:, None], 0.0), 0)


@triton.jit
def _line(matrix, at, LINES: tl.constexpr):
    """One line of a matrix."""
    return tl.sum(tl.where(tl.arange(0, LINES)[:, None] == at, matrix, 0.0), 0)


@triton.jit
def _run_head(factors, H, HEAD: tl.constexpr, DEGREES: tl.constexpr):
    """S_{j-1} before each item, (HEAD, DEGREES), and S_j after the last."""
    state = tl.where(tl.arange(0, DEGREES) == 0, 1.0, 0.0).to(tl.float64)
    before = tl.zeros((HEAD, DEGREES), tl.float64)
    for i in range(H):
        lower = _moved(state, 1, DEGREES)
        before = tl.where(tl.arange(0, HEAD)[:, None] == i, lower[None, :], before)
        state += _line(factors, i, HEAD) * lower
    return before, state


@triton.jit
def _head_derivative(adjoint, factors, before, H, HEAD: tl.constexpr, DEGREES: tl.constexpr):
    """By each item of the head, from the derivative by S_j after the last one."""
    slot = tl.arange(0, HEAD)
    derivative = tl.zeros((HEAD,), tl.float64)
    for step in range(H):
        i = H - 1 - step
        flow = adjoint * _line(factors, i, HEAD)
        slope = tl.sum(flow * _line(before, i, HEAD), 0)
        derivative = tl.where(slot == i, slope, derivative)
        adjoint += _moved(flow, -1, DEGREES)
    return derivative


@triton.jit
def _symmetric(power_sums, k, DEGREES: tl.constexpr):
    """sigma_0 .. sigma_k: a sigma_a = p_1 sigma_{a-1} - p_2 sigma_{a-2} + .."""
    degree = tl.arange(0, DEGREES)
    signed = tl.where(degree % 2 == 1, power_sums, -power_sums)  # that of degree 0 is 0
    sigma = tl.where(degree == 0, 1.0, 0.0).to(tl.float64)
    for a in range(1, k + 1):
        terms = tl.where(
            degree[:, None] + degree[None, :] == a, signed[:, None] * sigma[None, :], 0.0
        )
        total = tl.sum(tl.sum(terms, 1), 0)
        sigma = tl.where(degree == a, tl.maximum(total / a, 0.0), sigma)
    return sigma


@triton.jit
def _pairs(sigma, gain, k, DEGREES: tl.constexpr):
    """What S_b of the head is multiplied with in S_j: V_{j-b} gain_{b+1} .. gain_j, row j,
    column b.
    """
    j, b = tl.arange(0, DEGREES)[:, None], tl.arange(0, DEGREES)[None, :]
    pairs = tl.zeros((DEGREES, DEGREES), tl.float64)
    for a in range(0, k + 1):
        pairs = tl.where(j - b == a, _entry(sigma, a, DEGREES), pairs)
    for t in range(1, k + 1):
        pairs = tl.where((b < t) & (t <= j), pairs * _entry(gain, t, DEGREES), pairs)
    return pairs


@triton.jit
def _log1p(t):
    return tl.where(t < 1e-5, t * (1 - t * (0.5 - t / 3)), tl.log(1 + t))


@triton.jit
def _loss(kth, own, ratio, k, tau, margin):
    """L and dL/d s_y of a row: see evalgrad.smooth_topk.loss. kth was made finite."""
    kth = tl.where(kth >= _LARGEST, float("inf"), tl.where(kth <= -_LARGEST, float("-inf"), kth))
    lead = tl.where((kth == own) & (own > 0), 0.0, kth - own)
    z = margin + lead / k + tau * tl.log(ratio)
    tail = tl.exp(-tl.abs(z) / tau)
    slope = -tl.where(z < 0, tail, 1.0) / (1 + tail) / k
    return tl.where(z < 0, 0.0, z) + tau * _log1p(tail), slope


@triton.jit
def _row_ratios(
    x, label, factor, nans, head, places, sums, value, gradient, steps, C, H, k, chunks,
    inverse, inverse_rest, tau, tau_rest, margin, margin_rest,
    HEAD: tl.constexpr, CHUNKS: tl.constexpr, DEGREES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    slot, j, chunk = tl.arange(0, HEAD), tl.arange(0, DEGREES), tl.arange(0, CHUNKS)
    inverse = sum_of_two(inverse, inverse_rest)
    # x_i - x_[j] of the head, and x_[k] - x_[j]
    top = tl.load(head + row * HEAD + slot, mask=slot < H, other=0.0).to(tl.float64)
    pivots = tl.sum(tl.where(slot[:, None] + 1 == j[None, :], top[:, None], 0.0), 0)
    enters = (slot[:, None] < H) & (j[None, :] >= 1) & (j[None, :] <= slot[:, None] + 1)
    factors = tl.exp(tl.minimum((top[:, None] - pivots[None, :]) * inverse, 0.0))
    factors = tl.where(enters & (j[None, :] <= k), factors, 0.0)
    gain = _line(factors, k - 1, HEAD)
    before, state = _run_head(factors, H, HEAD, DEGREES)
    # the whole row
    given = (row * chunks + chunk)[:, None] * DEGREES + j[None, :]
    powers = tl.sum(tl.load(sums + given, mask=(chunk < chunks)[:, None], other=0.0), 0)
    pairs = _pairs(_symmetric(powers, k, DEGREES), gain, k, DEGREES)
    whole = tl.sum(pairs * state[None, :], 1)
    upper, lower = _entry(whole, k, DEGREES), _entry(whole, k - 1, DEGREES)
    # the loss
    y = tl.load(label + row)
    known = (y >= 0) & (y < C)
    own = tl.load(x + row * C + y, mask=known, other=0.0).to(tl.float64)
    found, slope = _loss(
        _entry(top, k - 1, HEAD), own, upper / lower, k,
        sum_of_two(tau, tau_rest), sum_of_two(margin, margin_rest),
    )  # fmt: skip
    nan = tl.max(tl.load(nans + row * chunks + chunk, mask=chunk < chunks, other=0), 0)
    scale = tl.load(factor + row).to(tl.float64)
    broken = (scale != 0) & ((nan != 0) | (y < 0) | (y >= C))
    scale = tl.where(broken, float("nan"), scale)
    absent = scale == 0
    slope = tl.where(absent, 0.0, slope * scale)
    tl.store(value + row, tl.where(absent, 0.0, found * scale).to(tl.float32))
    # its gradient, of the label and of the head
    tl.store(gradient + row * C + y, slope.to(tl.float32), mask=known)
    ends = tl.where(j == k - 1, 1 / lower, 0.0) - tl.where(j == k, 1 / upper, 0.0)
    adjoint = tl.sum(pairs * ends[:, None], 0)
    derivative = slope * _head_derivative(adjoint, factors, before, H, HEAD, DEGREES)
    place = tl.load(places + row * HEAD + slot, mask=slot < H, other=-1)
    derivative = tl.where(absent, 0.0, derivative).to(tl.float32)
    tl.store(gradient + row * C + place, derivative, mask=(place >= 0) & (place != y))
    # q_1 .. q_{k-1}, and the last step of the recursion, on the difference
    q = tl.where((j >= 1) & (j <= k), gain * _moved(whole, 1, DEGREES) / whole, 0.0)
    last = _entry(q, k - 1, DEGREES)
    q = tl.where(j == 0, slope * (last - _entry(q, k, DEGREES)), tl.where(j == k, -slope * last, q))
    tl.store(steps + row * DEGREES + j, q.to(tl.float32))


@triton.jit
def _chunk_gradients(
    x, label, factor, head, places, steps, gradient, C, H, k, inverse,
    CHUNK: tl.constexpr, HEAD: tl.constexpr, DEGREES: tl.constexpr,
):  # fmt: skip
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    c, scores, _ = _ordered(x, row, chunk, label, C, CHUNK)
    head += row * HEAD
    place = tl.load(places + row * HEAD + H - 1)
    u, bulk = _bulk(scores, c, tl.load(head + k - 1), tl.load(head + H - 1), place, inverse)
    steps += row * DEGREES
    p, before = tl.zeros_like(u), tl.zeros_like(u)
    for j in range(1, k):
        odds = u * tl.load(steps + j)
        before, p = p, odds - odds * p
    result = u * (tl.load(steps) * (1 - p) - tl.load(steps + k) * (p - before))
    result = tl.where(tl.load(factor + row) == 0, 0.0, result)
    mask = bulk & (c < C) & (c != tl.load(label + row))
    tl.store(gradient + row * C + c, result, mask=mask)


def _example(dtype: torch.dtype) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 50, generator=generator, dtype=torch.float64).to(dtype)
    label = torch.randint(50, (6,), generator=generator)
    return x, label, torch.ones(6, dtype=dtype), 3, 0.5, 1.0


@implements(_example)
def smooth_topk(
    x: Tensor, label: Tensor, factor: Tensor, k: int, temperature: float, margin: float
) -> tuple[Tensor, Tensor] | None:
    """Values ``(R,)`` and gradients ``(R, C)``; up to MOST_GUESSES and MOST_CLASSES."""
    rows, classes = x.shape
    inverse = 1 / (k * temperature)
    if k > MOST_GUESSES or classes > MOST_CLASSES or not 1e-30 < inverse < 1e30:
        return None
    value, gradient = x.new_empty(rows), torch.empty_like(x)
    if rows:
        _launch(x, label, factor, k, temperature, margin, inverse, value, gradient)
    return value, gradient


def _launch(
    x: Tensor,
    label: Tensor,
    factor: Tensor,
    k: int,
    temperature: float,
    margin: float,
    inverse: float,
    value: Tensor,
    gradient: Tensor,
) -> None:
    rows, C = x.shape
    H = min(3 * k, C)
    HEAD, DEGREES = triton.next_power_of_2(H), triton.next_power_of_2(k + 1)
    CHUNK = min(_CHUNK, triton.next_power_of_2(C))
    chunks = triton.cdiv(C, CHUNK)
    tops, head = x.new_empty(rows, chunks, HEAD), x.new_empty(rows, HEAD)
    places = torch.empty_like(tops, dtype=torch.int32)
    head_places = torch.empty_like(head, dtype=torch.int32)
    nans = places.new_empty(rows, chunks)
    sums = torch.empty(rows, chunks, DEGREES, dtype=torch.float64, device=x.device)
    steps = x.new_empty(rows, DEGREES)
    wide = {"num_warps": max(1, min(8, CHUNK // 512)), **ROUNDED}
    small = {"num_warps": max(1, min(8, HEAD * DEGREES // 512)), **ROUNDED}
    shape = {"CHUNK": CHUNK, "HEAD": HEAD}
    _chunk_tops[(rows, chunks)](x, label, tops, places, nans, C, H, chunks, **shape, **wide)
    _chunk_sums[(rows, chunks)](
        x, label, tops, places, head, head_places, sums, C, H, k, chunks, inverse, **shape,
        MERGED=triton.next_power_of_2(chunks * HEAD), DEGREES=DEGREES, **wide,
    )  # fmt: skip
    _row_ratios[(rows,)](
        x, label, factor, nans, head, head_places, sums, value, gradient, steps, C, H, k, chunks,
        *in_two(inverse), *in_two(temperature), *in_two(margin),
        HEAD=HEAD, CHUNKS=triton.next_power_of_2(chunks), DEGREES=DEGREES, **small,
    )  # fmt: skip
    _chunk_gradients[(rows, chunks)](
        x, label, factor, head, head_places, steps, gradient, C, H, k, inverse, **shape,
        DEGREES=DEGREES, **wide,
    )  # fmt: skip
