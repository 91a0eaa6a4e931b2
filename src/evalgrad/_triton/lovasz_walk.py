"""From the counts of a row to the slopes of its slots, and what ties in them cost."""

import triton
import triton.language as tl

from evalgrad._triton.lovasz_plan import STEP, error_at, last_slot, read_plan, relevance_of
from evalgrad._triton.lovasz_weights import cost_of_ties, tied_weights

LISTED = tl.constexpr(0x7FC00000)  # a NaN in the table of slopes; more is the number of a list


@triton.jit
def slots_ahead(counts, place, size, start, total, P, a, b, m, w, BLOCK: tl.constexpr):
    """Some slots of a row from `start` on: what is ahead of each, what is in it, and weights."""
    slot = start + tl.arange(0, BLOCK)
    g = tl.load(counts + place + slot, mask=slot < total, other=0)
    f = tl.load(counts + place + size + slot, mask=slot < total, other=0)
    a += tl.cumsum(f) - f
    b += tl.cumsum(g) - g
    of_front, of_back = tied_weights(P, a, b, f, g, m, w)
    return slot, a, b, f, g, of_front, of_back


@triton.jit
def cost_of(
    slot, b, f, g, of_front, of_back, P, top, bottom, shift, rest, m, w,
    COARSE: tl.constexpr, HINGE: tl.constexpr,
):  # fmt: skip
    """What ties cost in each slot, and the part of its items in the norm."""
    relevance = relevance_of(error_at(slot, top, bottom, shift, rest, COARSE), HINGE)
    cost = cost_of_ties(f, g, of_front, of_back, m, w)
    # a slot per number has equal errors, whose order does not matter
    used = (bottom + 1 - top) << (-shift + STEP)
    cost = tl.where((shift == 0) & (slot >= top) & (slot < top + used), 0.0, cost)
    # without foreground all depends on which error is the largest
    cost = tl.where(P > 0, cost, ((b == 0) & (g > 1)).to(tl.float32))
    norm = f * of_front * of_front + g * of_back * of_back
    return cost * relevance, norm * relevance


@triton.jit
def walk(
    counts, plan, factor, slopes, foreground, costs, size, m, w,
    COARSE: tl.constexpr, HINGE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A program per row: slopes, the foreground in all, and what ties cost and the norm."""
    row = tl.program_id(0).to(tl.int64)
    top, bottom, shift, rest = read_plan(plan, row, row >= 0)
    total = last_slot(top, bottom, shift, COARSE) + 1
    place = row * 2 * size
    P = top * 0
    for start in range(0, total, BLOCK):
        slot = start + tl.arange(0, BLOCK)
        P += tl.sum(tl.load(counts + place + size + slot, mask=slot < total, other=0))
    scale = tl.load(factor + row)
    a, b, cost, norm = P * 0, P * 0, P * 0.0, P * 0.0
    for start in range(0, total, BLOCK):
        slot, _, ahead, f, g, of_front, of_back = slots_ahead(
            counts, place, size, start, total, P, a, b, m, w, BLOCK
        )
        own_cost, own_norm = cost_of(
            slot, ahead, f, g, of_front, of_back, P, top, bottom, shift, rest, m, w, COARSE, HINGE
        )
        cost += tl.sum(own_cost)
        norm += tl.sum(own_norm)
        tl.store(slopes + place + slot, _as_bits(scale * of_back), mask=slot < total)
        tl.store(slopes + place + size + slot, _as_bits(-scale * of_front), mask=slot < total)
        a += tl.sum(f)
        b += tl.sum(g)
    tl.store(foreground + row, P)
    tl.store(costs + row * 2, cost)
    tl.store(costs + row * 2 + 1, norm)


@triton.jit
def _as_bits(slope):
    return tl.where(slope == slope, slope.to(tl.int32, bitcast=True), LISTED)
