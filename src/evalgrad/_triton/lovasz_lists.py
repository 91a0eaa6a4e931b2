"""Lists of the errors in those slots of the exact Lovász losses where ties would cost too much:
there errors are compared one by one.
"""

import triton
import triton.language as tl

from evalgrad._triton.lovasz_errors import first_row, read_errors
from evalgrad._triton.lovasz_plan import CLOSE, PLAN, key_of, last_slot, read_plan, slot_of
from evalgrad._triton.lovasz_walk import LISTED, cost_of, slots_ahead
from evalgrad._triton.lovasz_weights import tied_weights

LONGEST = tl.constexpr(64)  # list
LEVELS = tl.constexpr(8)  # of cost, among which the least to be listed is chosen


@triton.jit
def list_slots(
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
        top, bottom, shift, rest = read_plan(plan, row, row >= 0)
        total = last_slot(top, bottom, shift, COARSE) + 1
        place = row * 2 * size
        P = tl.load(foreground + row)
        level = tl.arange(0, LEVELS)
        limits = norm * CLOSE / size * tl.exp2(2.0 * level)
        unlisted = limits * 0
        a, b = P * 0, P * 0
        for start in range(0, total, BLOCK):
            slot, _, ahead, f, g, of_front, of_back = slots_ahead(
                counts, place, size, start, total, P, a, b, m, w, BLOCK
            )
            cost, _ = cost_of(
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
            slot, ahead_f, ahead_g, f, g, of_front, of_back = slots_ahead(
                counts, place, size, start, total, P, a, b, m, w, BLOCK
            )
            cost, _ = cost_of(
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
def fill(
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
        top, bottom, shift, rest = read_plan(plan, row + c, c < C)
        slot = slot_of(errors, top, bottom, shift, rest, COARSE)
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
            key_of(errors) | kind,
            mask=listed & (place < end),
        )


@triton.jit
def rank(
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
def slopes_in_lists(bits, errors, front, row, c, lists, cursor, pool, ranked, most, room):
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
        off = tl.abs((other & 0x7FFFFFFF) - key_of(errors))
        off = tl.where((other < 0) == front, off, off | 0x40000000)
        better = (j < length) & (off < nearest)
        nearest = tl.where(better, off, nearest)
        slope = tl.load(ranked + row * room + (start + j), mask=better, other=slope)
    return tl.where(front, -tl.abs(slope), tl.abs(slope))
