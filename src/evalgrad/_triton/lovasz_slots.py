"""The Lovász losses without `bins=`: exact, without a sort and without a look at values.

As in bins, errors are counted in slots, whose items count as tied. Here the slots are chosen such
that ties do not show, and where they would, the items of a slot are compared one by one:

  sample     some tiles are counted in coarse slots, eight to an octave, by the bits of the error;
  aim        from those a program per row finds out where ties would show: there slots shall be as
             fine as the table allows. Farther down coarse ones do, and one for all the rest;
  count      all errors;
  walk       slopes from the counts, and by the control of the CPU's kernel (`bins_needed` of
             csrc/lovasz/histogram.h) what the ties cost. Too much: the slots that cost most get
             lists;
  fill       lists the errors of those slots; nothing to do and to read where there are none;
  rank       the slope of each error in a list, by its own place;
  look_up    finds the slope of each pixel, of its slot or in a list.

"Too much" is 3e-5 of the norm of the gradient, as on the CPU. Errors that differ are told apart
then, but for more than LONGEST in one slot.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from evalgrad._triton import ROUNDED
from evalgrad._triton.lovasz_errors import Maps, add_counts, first_row, read_errors, through
from evalgrad._triton.lovasz_weights import cost_of_ties, tied_weights

CLOSE = tl.constexpr(9e-10)  # the square of 3e-5
LONGEST = tl.constexpr(64)  # list
STEP = tl.constexpr(20)  # bits of an error within a coarse slot
SPAN = tl.constexpr(2**20)  # numbers in it
LISTED = tl.constexpr(0x7FC00000)  # a NaN in the table of slopes; more is the number of a list
LEVELS = tl.constexpr(8)  # of cost, among which the least to be listed is chosen

# Where slots are fine, as numbers of coarse slots from the largest errors down: from `top` to
# `bottom`, in steps of 2^shift; from `rest` on, one slot holds all. A table of slots is in the
# order of errors: coarse ones above `top`, fine ones, coarse ones below `bottom`, the rest.
PLAN = tl.constexpr(4)  # top, bottom, shift, rest


# ---- slots


@triton.jit
def _read_plan(plan, row, there):
    place = plan + row * PLAN
    top = tl.load(place, mask=there, other=0)
    bottom = tl.load(place + 1, mask=there, other=0)
    shift = tl.load(place + 2, mask=there, other=STEP)
    rest = tl.load(place + 3, mask=there, other=0)
    return top, bottom, shift, rest


@triton.jit
def _last_slot(top, bottom, shift, COARSE: tl.constexpr):
    return top + ((bottom + 1 - top) << (-shift + STEP)) + COARSE - 2 - bottom


@triton.jit
def _key(errors):
    """The bits of a number >= 0 have its order; NaN is more than infinity."""
    return errors.to(tl.int32, bitcast=True) & 0x7FFFFFFF


@triton.jit
def _down(errors, COARSE: tl.constexpr):
    """How many numbers an error is below the largest."""
    largest = COARSE * SPAN - 1
    return -tl.minimum(_key(errors), largest) + largest


@triton.jit
def _up(down, COARSE: tl.constexpr):
    """The error that is so many numbers below the largest."""
    return (-down + (COARSE * SPAN - 1)).to(tl.float32, bitcast=True)


@triton.jit
def _slot_of(errors, top, bottom, shift, rest, COARSE: tl.constexpr):
    down = _down(errors, COARSE)
    coarse = down >> STEP
    fine = top + ((down - (top << STEP)) >> shift)
    below = top + ((bottom + 1 - top) << (-shift + STEP)) + coarse - bottom - 1
    below = tl.where(coarse >= rest, _last_slot(top, bottom, shift, COARSE), below)
    return tl.where(coarse < top, coarse, tl.where(coarse <= bottom, fine, below))


@triton.jit
def _error_at(slot, top, bottom, shift, rest, COARSE: tl.constexpr):
    """An error in the middle of a slot, the largest of the rest."""
    used = (bottom + 1 - top) << (-shift + STEP)
    fine = (top << STEP) + ((slot - top) << shift) + ((shift * 0 + SPAN) >> (-shift + (STEP + 1)))
    below = ((slot - top - used + bottom + 1) << STEP) + SPAN // 2
    below = tl.where(slot >= _last_slot(top, bottom, shift, COARSE), rest << STEP, below)
    down = tl.where(
        slot < top, (slot << STEP) + SPAN // 2, tl.where(slot < top + used, fine, below)
    )
    return _up(down, COARSE)


@triton.jit
def _relevance(errors, HINGE: tl.constexpr):
    """The square of what a slope in an error is multiplied with on its way to the gradient."""
    if HINGE:
        return tl.where(errors > 0, 1.0, 0.0)
    else:
        through_p = errors * (1 - errors)
        return tl.where(errors < 1, through_p * through_p, 0.0)


# ---- kernels


@triton.jit
def _sample(
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
def _aim(counts, plan, rate, slots, m, w, COARSE: tl.constexpr, HINGE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, COARSE)
    g = tl.load(counts + row * 2 * COARSE + i) * rate
    f = tl.load(counts + (row * 2 + 1) * COARSE + i) * rate
    P, a, b = tl.sum(f), tl.cumsum(f) - f, tl.cumsum(g) - g
    error = _up(i * SPAN + SPAN // 2, COARSE)
    relevance = _relevance(error, HINGE)
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


@triton.jit
def _count(
    x, label, mask, plan, counts, images, tiles, C, S, size,
    COARSE: tl.constexpr, HINGE: tl.constexpr, CLASSES: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    _, _, _, errors, front, valid, _ = read_errors(
        x, label, mask, tile, tiles, C, S, HINGE, CLASSES, PIXELS
    )
    row, c = first_row(tile, tiles, images, C), tl.arange(0, CLASSES)[:, None]
    top, bottom, shift, rest = _read_plan(plan, row + c, c < C)
    slot = _slot_of(errors, top, bottom, shift, rest, COARSE)
    add_counts(counts, row, slot, _last_slot(top, bottom, shift, COARSE), front, valid, size)


@triton.jit
def _slots_ahead(counts, place, size, start, total, P, a, b, m, w, BLOCK: tl.constexpr):
    """Some slots of a row from `start` on: what is ahead of each, what is in it, and weights."""
    slot = start + tl.arange(0, BLOCK)
    g = tl.load(counts + place + slot, mask=slot < total, other=0)
    f = tl.load(counts + place + size + slot, mask=slot < total, other=0)
    a += tl.cumsum(f) - f
    b += tl.cumsum(g) - g
    of_front, of_back = tied_weights(P, a, b, f, g, m, w)
    return slot, a, b, f, g, of_front, of_back


@triton.jit
def _cost(
    slot, b, f, g, of_front, of_back, P, top, bottom, shift, rest, m, w,
    COARSE: tl.constexpr, HINGE: tl.constexpr,
):  # fmt: skip
    """What ties cost in each slot, and the part of its items in the norm."""
    relevance = _relevance(_error_at(slot, top, bottom, shift, rest, COARSE), HINGE)
    cost = cost_of_ties(f, g, of_front, of_back, m, w)
    # a slot per number has equal errors, whose order does not matter
    used = (bottom + 1 - top) << (-shift + STEP)
    cost = tl.where((shift == 0) & (slot >= top) & (slot < top + used), 0.0, cost)
    # without foreground all depends on which error is the largest
    cost = tl.where(P > 0, cost, ((b == 0) & (g > 1)).to(tl.float32))
    norm = f * of_front * of_front + g * of_back * of_back
    return cost * relevance, norm * relevance


@triton.jit
def _walk(
    counts, plan, factor, slopes, foreground, costs, size, m, w,
    COARSE: tl.constexpr, HINGE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A program per row: slopes, the foreground in all, and what ties cost and the norm."""
    row = tl.program_id(0).to(tl.int64)
    top, bottom, shift, rest = _read_plan(plan, row, row >= 0)
    total = _last_slot(top, bottom, shift, COARSE) + 1
    place = row * 2 * size
    P = top * 0
    for start in range(0, total, BLOCK):
        slot = start + tl.arange(0, BLOCK)
        P += tl.sum(tl.load(counts + place + size + slot, mask=slot < total, other=0))
    scale = tl.load(factor + row)
    a, b, cost, norm = P * 0, P * 0, P * 0.0, P * 0.0
    for start in range(0, total, BLOCK):
        slot, _, ahead, f, g, of_front, of_back = _slots_ahead(
            counts, place, size, start, total, P, a, b, m, w, BLOCK
        )
        own_cost, own_norm = _cost(
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


@triton.jit
def _list(
    counts, plan, slopes, foreground, costs, lists, number, size, most, room, m, w,
    COARSE: tl.constexpr, HINGE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A program per row: lists for the slots that cost most, such that the others cost little.

    A list is its start and end in the pool of the row, and what is ahead of it.
    """
    row = tl.program_id(0).to(tl.int64)
    norm = tl.load(costs + row * 2 + 1)
    listed_slots = tl.load(plan + row * PLAN) * 0
    if tl.load(costs + row * 2) > norm * CLOSE:
        top, bottom, shift, rest = _read_plan(plan, row, row >= 0)
        total = _last_slot(top, bottom, shift, COARSE) + 1
        place = row * 2 * size
        P = tl.load(foreground + row)
        level = tl.arange(0, LEVELS)
        limits = norm * CLOSE / size * tl.exp2(2.0 * level)
        unlisted = limits * 0
        a, b = P * 0, P * 0
        for start in range(0, total, BLOCK):
            slot, _, ahead, f, g, of_front, of_back = _slots_ahead(
                counts, place, size, start, total, P, a, b, m, w, BLOCK
            )
            cost, _ = _cost(
                slot, ahead, f, g, of_front, of_back, P, top, bottom, shift, rest, m, w,
                COARSE, HINGE,
            )  # fmt: skip
            long = (f + g > LONGEST)[:, None]
            kept = (cost[:, None] <= limits[None, :]) | long
            unlisted += tl.sum(tl.where(kept, cost[:, None], 0.0), 0)
            a += tl.sum(f)
            b += tl.sum(g)
        allowed = (unlisted <= norm * CLOSE) | (level == 0)
        limit = tl.max(tl.where(allowed, limits, 0.0))
        a, b, taken = P * 0, P * 0, P * 0
        for start in range(0, total, BLOCK):
            slot, ahead_f, ahead_g, f, g, of_front, of_back = _slots_ahead(
                counts, place, size, start, total, P, a, b, m, w, BLOCK
            )
            cost, _ = _cost(
                slot, ahead_g, f, g, of_front, of_back, P, top, bottom, shift, rest, m, w,
                COARSE, HINGE,
            )  # fmt: skip
            wanted = (cost > limit) & (f + g > 1) & (f + g <= LONGEST)
            items = tl.where(wanted, f + g, 0)
            place_in_pool = taken + tl.cumsum(items) - items
            one = listed_slots + tl.cumsum(wanted.to(tl.int32)) - 1
            wanted = wanted & (one < most) & (place_in_pool + items <= room)
            entry = lists + (row * most + one) * 4
            tl.store(entry, place_in_pool, mask=wanted)
            tl.store(entry + 1, place_in_pool + items, mask=wanted)
            tl.store(entry + 2, ahead_f, mask=wanted)
            tl.store(entry + 3, ahead_g, mask=wanted)
            tl.store(slopes + place + slot, one + (LISTED + 1), mask=wanted)
            tl.store(slopes + place + size + slot, one + (LISTED + 1), mask=wanted)
            listed_slots += tl.sum(wanted.to(tl.int32))
            taken += tl.sum(tl.where(wanted, items, 0))
            a += tl.sum(f)
            b += tl.sum(g)
    tl.store(number + row, listed_slots)


@triton.jit
def _fill(
    x, label, mask, plan, slopes, lists, cursor, number, pool,
    images, tiles, C, S, size, most, room,
    COARSE: tl.constexpr, HINGE: tl.constexpr, CLASSES: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    row, c = first_row(tile, tiles, images, C), tl.arange(0, CLASSES)[:, None]
    some = tl.load(number + row + c, mask=c < C, other=0) > 0
    if tl.max(some.to(tl.int32)) > 0:
        _, _, _, errors, front, valid, _ = read_errors(
            x, label, mask, tile, tiles, C, S, HINGE, CLASSES, PIXELS
        )
        top, bottom, shift, rest = _read_plan(plan, row + c, c < C)
        slot = _slot_of(errors, top, bottom, shift, rest, COARSE)
        bits = tl.load(slopes + row * 2 * size + (c * 2 * size + slot), mask=valid & some, other=0)
        listed = bits > LISTED
        one = c * most + bits - (LISTED + 1)
        start = tl.load(lists + row * most * 4 + one * 4, mask=listed, other=0)
        end = tl.load(lists + row * most * 4 + one * 4 + 1, mask=listed, other=0)
        place = start + tl.atomic_add(cursor + row * most + one, 1, mask=listed, sem="relaxed")
        kind = tl.where(front, -0x80000000, 0).to(tl.int32)
        # an error that rounds otherwise than when it was counted may find no room
        tl.store(
            pool + row * room + (c * room + place),
            _key(errors) | kind,
            mask=listed & (place < end),
        )


@triton.jit
def _rank(
    lists, cursor, number, pool, ranked, foreground, factor, most, room, m, w,
    MANY: tl.constexpr,
):  # fmt: skip
    """A program per some lists of a row: the slope of each error in them, by its own place."""
    row = tl.program_id(0).to(tl.int64)
    one = tl.program_id(1) * MANY + tl.arange(0, MANY)[:, None]
    lists_of_row = tl.load(number + row)
    if tl.program_id(1) * MANY < lists_of_row:
        there = one < lists_of_row
        entry = lists + row * most * 4 + one * 4
        start = tl.load(entry, mask=there, other=0)
        length = tl.load(entry + 1, mask=there, other=0) - start
        a = tl.load(entry + 2, mask=there, other=0)
        b = tl.load(entry + 3, mask=there, other=0)
        length = tl.minimum(length, tl.load(cursor + row * most + one, mask=there, other=0))
        i = tl.arange(0, LONGEST)[None, :]
        own = tl.load(pool + row * room + start + i, mask=i < length, other=0)
        key, front = own & 0x7FFFFFFF, own < 0
        a, b, f, g = a + key * 0, b + key * 0, key * 0, key * 0
        for j in range(0, tl.max(length)):
            other = tl.load(pool + row * room + start + j, mask=j < length, other=-1)
            other_key, other_front = other & 0x7FFFFFFF, (other < 0).to(tl.int32)
            inside = j < length
            ahead = (inside & (other_key > key)).to(tl.int32)
            tied = (inside & (other_key == key)).to(tl.int32)
            a += ahead * other_front
            b += ahead * (1 - other_front)
            f += tied * other_front
            g += tied * (1 - other_front)
        of_front, of_back = tied_weights(tl.load(foreground + row), a, b, f, g, m, w)
        slope = tl.load(factor + row) * tl.where(front, -of_front, of_back)
        tl.store(ranked + row * room + start + i, slope, mask=i < length)


@triton.jit
def _slopes_in_lists(bits, errors, front, row, c, lists, cursor, pool, ranked, most, room):
    """Of errors in lists: the slope of that of their own kind which is nearest, their own but for
    rounding.
    """
    listed = bits > LISTED
    one = c * most + bits - (LISTED + 1)
    start = tl.load(lists + row * most * 4 + one * 4, mask=listed, other=0)
    length = tl.load(lists + row * most * 4 + one * 4 + 1, mask=listed, other=0) - start
    length = tl.minimum(length, tl.load(cursor + row * most + one, mask=listed, other=0))
    start += c * room
    nearest = length * 0 + 0x7FFFFFFF
    slope = errors * 0
    for j in range(0, tl.max(length)):
        other = tl.load(pool + row * room + (start + j), mask=j < length, other=0)
        off = tl.abs((other & 0x7FFFFFFF) - _key(errors))
        off = tl.where((other < 0) == front, off, off | 0x40000000)
        better = (j < length) & (off < nearest)
        nearest = tl.where(better, off, nearest)
        slope = tl.load(ranked + row * room + (start + j), mask=better, other=slope)
    return tl.where(front, -tl.abs(slope), tl.abs(slope))


@triton.jit
def _look_up(
    x, label, mask, plan, slopes, lists, cursor, pool, ranked, value, gradient,
    images, tiles, C, S, size, most, room,
    COARSE: tl.constexpr, HINGE: tl.constexpr, CLASSES: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    first, place, inside, errors, front, valid, inner = read_errors(
        x, label, mask, tile, tiles, C, S, HINGE, CLASSES, PIXELS
    )
    row, c = first_row(tile, tiles, images, C), tl.arange(0, CLASSES)[:, None]
    top, bottom, shift, rest = _read_plan(plan, row + c, c < C)
    slot = _slot_of(errors, top, bottom, shift, rest, COARSE)
    kind = c * 2 + front.to(tl.int32)
    bits = tl.load(slopes + row * 2 * size + (kind * size + slot), mask=valid, other=0)
    slope = bits.to(tl.float32, bitcast=True)
    if tl.max((bits > LISTED).to(tl.int32)) > 0:
        own = _slopes_in_lists(bits, errors, front, row, c, lists, cursor, pool, ranked, most, room)
        slope = tl.where(bits > LISTED, own, slope)
    # a weight of 0 takes part with 0, even where a loss is infinite
    part = tl.where(valid & ((slope == 0) & HINGE == 0), errors * tl.abs(slope), 0.0)
    tl.store(value + tile, tl.sum(part))
    tl.store(gradient + first + place, through(slope, inner, HINGE, CLASSES), mask=inside)


# ---- launches

BLOCK = 1024  # slots at a time
MANY = 32  # lists at a time


def _plan(maps: Maps, slots: int, metric: tuple[float, float], options: dict[str, Any]) -> Tensor:
    """Where slots shall be fine, from one tile in eight if there are many."""
    tiles = maps.grid[0]
    rate = min(8, max(1, tiles // maps.shape[0] // 32))
    coarse = options["COARSE"]
    counts = torch.zeros(maps.rows, 2, coarse, dtype=torch.int32, device=maps.x.device)
    _sample[(triton.cdiv(tiles, rate),)](*maps.tensors, counts, *maps.sizes, rate, **options)
    plan = counts.new_empty(maps.rows, PLAN.value)
    per_row = {"COARSE": coarse, "HINGE": options["HINGE"], "num_warps": coarse // 256, **ROUNDED}
    _aim[(maps.rows,)](counts, plan, rate, slots, *metric, **per_row)
    return plan


def in_slots(
    maps: Maps, factor: Tensor, misses: float, false_alarms: float
) -> tuple[Tensor, Tensor]:
    """Value ``(G,)`` and gradient of either loss, a factor for each row."""
    metric = (misses, false_alarms)
    coarse = 2048 if maps.options["HINGE"] else 1024  # as many as there are up to an error of 1
    options = {**maps.options, "COARSE": coarse}
    per_row = {"COARSE": coarse, "HINGE": maps.options["HINGE"], "BLOCK": BLOCK, **ROUNDED}
    many = triton.next_power_of_2(maps.items)
    slots = min(max(many // 16, min(many, 8192), coarse), 2**18)
    size, most = coarse + slots, slots // 4
    room = max(maps.items // 8, min(maps.items, 2**15))
    plan = _plan(maps, slots, metric, options)
    counts = torch.zeros(maps.rows, 2, size, dtype=torch.int32, device=maps.x.device)
    _count[maps.grid](*maps.tensors, plan, counts, *maps.sizes, size, **options)
    slopes = torch.empty_like(counts)
    foreground, number = counts.new_empty(2, maps.rows)
    costs = factor.new_empty(maps.rows, 2)
    rows = (maps.rows,)
    _walk[rows](counts, plan, factor, slopes, foreground, costs, size, *metric, **per_row)
    lists = counts.new_empty(maps.rows, most, 4)
    cursor = counts.new_zeros(maps.rows, most)
    pool = counts.new_empty(maps.rows, room)
    _list[rows](
        counts, plan, slopes, foreground, costs, lists, number, size, most, room, *metric, **per_row
    )
    sizes = (*maps.sizes, size, most, room)
    ranked = factor.new_empty(pool.shape)
    _fill[maps.grid](*maps.tensors, plan, slopes, lists, cursor, number, pool, *sizes, **options)
    _rank[(maps.rows, triton.cdiv(most, MANY))](
        lists, cursor, number, pool, ranked, foreground, factor, most, room, *metric,
        MANY=MANY, num_warps=8, **ROUNDED,
    )  # fmt: skip
    value, gradient = maps.results()
    _look_up[maps.grid](
        *maps.tensors, plan, slopes, lists, cursor, pool, ranked, value, gradient, *sizes, **options
    )
    return value.sum(1, dtype=torch.float64).to(value.dtype), gradient
