"""Slots of errors in the exact Lovász losses: where they are fine, found out from a sample.

Numbers >= 0 have the order of their bits. Coarse slots are eight to an octave; where ties would
show, a plan makes them finer.
"""

import triton
import triton.language as tl

from evalgrad._triton.lovasz_errors import add_counts, first_row, read_errors
from evalgrad._triton.lovasz_weights import cost_of_ties, tied_weights

CLOSE = tl.constexpr(9e-10)  # the square of 3e-5
STEP = tl.constexpr(20)  # bits of an error within a coarse slot
SPAN = tl.constexpr(2**20)  # numbers in it

# Where slots are fine, as numbers of coarse slots from the largest errors down: from `top` to
# `bottom`, in steps of 2^shift; from `rest` on, one slot holds all. A table of slots is in the
# order of errors: coarse ones above `top`, fine ones, coarse ones below `bottom`, the rest.
PLAN = tl.constexpr(4)  # top, bottom, shift, rest


@triton.jit
def read_plan(plan, row, there):
    place = plan + row * PLAN
    top = tl.load(place, mask=there, other=0)
    bottom = tl.load(place + 1, mask=there, other=0)
    shift = tl.load(place + 2, mask=there, other=STEP)
    rest = tl.load(place + 3, mask=there, other=0)
    return top, bottom, shift, rest


@triton.jit
def last_slot(top, bottom, shift, COARSE: tl.constexpr):
    return top + ((bottom + 1 - top) << (-shift + STEP)) + COARSE - 2 - bottom


@triton.jit
def key_of(errors):
    """The bits of a number >= 0 have its order; NaN is more than infinity."""
    return errors.to(tl.int32, bitcast=True) & 0x7FFFFFFF


@triton.jit
def _down(errors, COARSE: tl.constexpr):
    """How many numbers an error is below the largest."""
    largest = COARSE * SPAN - 1
    return -tl.minimum(key_of(errors), largest) + largest


@triton.jit
def _up(down, COARSE: tl.constexpr):
    """The error that is so many numbers below the largest."""
    return (-down + (COARSE * SPAN - 1)).to(tl.float32, bitcast=True)


@triton.jit
def slot_of(errors, top, bottom, shift, rest, COARSE: tl.constexpr):
    down = _down(errors, COARSE)
    coarse = down >> STEP
    fine = top + ((down - (top << STEP)) >> shift)
    below = top + ((bottom + 1 - top) << (-shift + STEP)) + coarse - bottom - 1
    below = tl.where(coarse >= rest, last_slot(top, bottom, shift, COARSE), below)
    return tl.where(coarse < top, coarse, tl.where(coarse <= bottom, fine, below))


@triton.jit
def error_at(slot, top, bottom, shift, rest, COARSE: tl.constexpr):
    """An error in the middle of a slot, the largest of the rest."""
    used = (bottom + 1 - top) << (-shift + STEP)
    fine = (top << STEP) + ((slot - top) << shift) + ((shift * 0 + SPAN) >> (-shift + (STEP + 1)))
    below = ((slot - top - used + bottom + 1) << STEP) + SPAN // 2
    below = tl.where(slot >= last_slot(top, bottom, shift, COARSE), rest << STEP, below)
    down = tl.where(
        slot < top, (slot << STEP) + SPAN // 2, tl.where(slot < top + used, fine, below)
    )
    return _up(down, COARSE)


@triton.jit
def relevance_of(errors, HINGE: tl.constexpr):
    """The square of what a slope in an error is multiplied with on its way to the gradient."""
    if HINGE:  # 1 - x y is 0 or at least 2^-24; a power of 2 is where a coarse slot ends
        return tl.where(errors > 2.0**-26, 1.0, 0.0)
    else:
        through_p = errors * (1 - errors)
        return tl.where(errors < 1, through_p * through_p, 0.0)


# ---- the plan


@triton.jit
def sample(
    x, label, mask, counts, images, tiles, C, S, rate,
    COARSE: tl.constexpr, HINGE: tl.constexpr, CLASSES: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0) * rate
    _, _, _, errors, front, valid, _ = read_errors(
        x, label, mask, tile, tiles, C, S, HINGE, CLASSES, PIXELS
    )
    row = first_row(tile, tiles, images, C)
    slot = _down(errors, COARSE) >> STEP
    add_counts(counts, row, slot, COARSE - 1, front, valid, COARSE)


@triton.jit
def aim(counts, plan, rate, slots, m, w, COARSE: tl.constexpr, HINGE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, COARSE)
    g = tl.load(counts + row * 2 * COARSE + i) * rate
    f = tl.load(counts + (row * 2 + 1) * COARSE + i) * rate
    P, a, b = tl.sum(f), tl.cumsum(f) - f, tl.cumsum(g) - g
    error = _up(i * SPAN + SPAN // 2, COARSE)
    relevance = relevance_of(error, HINGE)
    of_front, of_back = tied_weights(P, a, b, f, g, m, w)
    mass = f * of_front + g * of_back
    norm = tl.sum((f * of_front * of_front + g * of_back * of_back) * relevance)
    value = tl.sum(tl.where(relevance > 0, mass * error, 0.0))
    top = tl.min(tl.where(f + g > 0, i, COARSE - 1))
    # The rest from slot i on, with some foreground that the sample has not seen
    behind_f, behind_g = P - a + rate, tl.sum(g) - b
    rest_front, rest_back = tied_weights(P + rate, a, b, behind_f, behind_g, m, w)
    rest_cost = cost_of_ties(behind_f, behind_g, rest_front, rest_back, m, w) * relevance
    # errors and weights fall together: tied, they make the value smaller
    rest_mass = behind_f * rest_front + behind_g * rest_back
    rest_value = error * rest_mass * _spread(P, b, behind_g, w)
    enough = (rest_cost <= norm * (0.2 * CLOSE)) & (rest_value <= 1e-7 * value) & (i > top)
    rest = tl.min(tl.where(enough, i, COARSE - 1))
    # Coarse slots do where all of them from there on cost little
    between = (i >= top) & (i < rest)
    cost = cost_of_ties(f + rate, g + rate, of_front, of_back, m, w) * relevance
    off = 0.1 * error * mass * _spread(P, b, g, w)  # of an error a coarse slot is a tenth
    cost, off = tl.where(between, cost, 0.0), tl.where(between, off, 0.0)
    cost_behind, off_behind = (
        tl.sum(cost) - tl.cumsum(cost) + cost,
        tl.sum(off) - tl.cumsum(off) + off,
    )
    wanted = between & ((cost_behind > norm * (0.2 * CLOSE)) | (off_behind > 1e-7 * value))
    bottom = tl.minimum(tl.max(tl.where(wanted, i, top)), COARSE - 2)
    finer = top * 0
    for bits in tl.static_range(1, 19):
        finer += ((bottom + 1 - top) << bits <= slots).to(tl.int32)
    place = plan + row * PLAN
    tl.store(place, top)
    tl.store(place + 1, bottom)
    tl.store(place + 2, -finer + STEP)
    tl.store(place + 3, rest)


@triton.jit
def _spread(P, b, g, w):
    """How much the weights in a slot differ, and how much of that ties can cost."""
    return w * g / (P + w * (b + g) + 1) / 12
