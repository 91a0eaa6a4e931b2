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
from evalgrad._triton.lovasz_lists import fill, list_slots, rank, slopes_in_lists
from evalgrad._triton.lovasz_plan import PLAN, aim, last_slot, read_plan, sample, slot_of
from evalgrad._triton.lovasz_walk import LISTED, walk


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
    top, bottom, shift, rest = read_plan(plan, row + c, c < C)
    slot = slot_of(errors, top, bottom, shift, rest, COARSE)
    add_counts(counts, row, slot, last_slot(top, bottom, shift, COARSE), front, valid, size)


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
    top, bottom, shift, rest = read_plan(plan, row + c, c < C)
    slot = slot_of(errors, top, bottom, shift, rest, COARSE)
    kind = c * 2 + front.to(tl.int32)
    bits = tl.load(slopes + row * 2 * size + (kind * size + slot), mask=valid, other=0)
    slope = bits.to(tl.float32, bitcast=True)
    if tl.max((bits > LISTED).to(tl.int32)) > 0:
        own = slopes_in_lists(bits, errors, front, row, c, lists, cursor, pool, ranked, most, room)
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
    sample[(triton.cdiv(tiles, rate),)](*maps.tensors, counts, *maps.sizes, rate, **options)
    plan = counts.new_empty(maps.rows, PLAN.value)
    per_row = {"COARSE": coarse, "HINGE": options["HINGE"], "num_warps": coarse // 256, **ROUNDED}
    aim[(maps.rows,)](counts, plan, rate, slots, *metric, **per_row)
    return plan


def table_sizes(items: int, coarse: int) -> tuple[int, int]:
    """Of a row: how many fine slots there are, and how many errors its lists have room for."""
    many = triton.next_power_of_2(items)
    slots = min(max(many // 16, min(many, 8192), coarse), 2**18)
    return slots, max(items // 8, min(items, 2**15))


def in_slots(
    maps: Maps, factor: Tensor, misses: float, false_alarms: float
) -> tuple[Tensor, Tensor]:
    """Value ``(G,)`` and gradient of either loss, a factor for each row."""
    metric = (misses, false_alarms)
    coarse = 2048 if maps.options["HINGE"] else 1024  # as many as there are up to an error of 1
    options = {**maps.options, "COARSE": coarse}
    per_row = {"COARSE": coarse, "HINGE": maps.options["HINGE"], "BLOCK": BLOCK, **ROUNDED}
    slots, room = table_sizes(maps.items, coarse)
    size, most = coarse + slots, slots // 4
    plan = _plan(maps, slots, metric, options)
    counts = torch.zeros(maps.rows, 2, size, dtype=torch.int32, device=maps.x.device)
    _count[maps.grid](*maps.tensors, plan, counts, *maps.sizes, size, **options)
    slopes = torch.empty_like(counts)
    foreground, number = counts.new_empty(2, maps.rows)
    costs = factor.new_empty(maps.rows, 2)
    rows = (maps.rows,)
    walk[rows](counts, plan, factor, slopes, foreground, costs, size, *metric, **per_row)
    lists = counts.new_empty(maps.rows, most, 4)
    cursor = counts.new_zeros(maps.rows, most)
    pool = counts.new_empty(maps.rows, room)
    list_slots[rows](
        counts, plan, slopes, foreground, costs, lists, number, size, most, room, *metric, **per_row
    )
    sizes = (*maps.sizes, size, most, room)
    ranked = factor.new_empty(pool.shape)
    fill[maps.grid](*maps.tensors, plan, slopes, lists, cursor, number, pool, *sizes, **options)
    rank[(maps.rows, triton.cdiv(most, MANY))](
        lists, cursor, number, pool, ranked, foreground, factor, most, room, *metric,
        MANY=MANY, num_warps=8, **ROUNDED,
    )  # fmt: skip
    value, gradient = maps.results()
    _look_up[maps.grid](
        *maps.tensors, plan, slopes, lists, cursor, pool, ranked, value, gradient, *sizes, **options
    )
    return value.sum(1, dtype=torch.float64).to(value.dtype), gradient
