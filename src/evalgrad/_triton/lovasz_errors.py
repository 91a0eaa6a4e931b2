"""Tiles of errors, of a softmax or of a hinge: what the kernels of both losses read and count.

A tile is (rows, pixels): the classes of some pixels, or one row of a hinge. `x` and `label` are as
for the operators: class maps ``(G, M, C, S)`` with labels ``(G, M, S)``, or rows ``(R, 1, 1, n)``
with the foreground, bool, as `label` and perhaps a mask.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from evalgrad._triton import ROUNDED
from evalgrad._triton.class_maps import fits, read_tile, through_softmax, tiling


class Maps(NamedTuple):
    """What a launch over all tiles needs."""

    tensors: tuple[Tensor, Tensor, Tensor | None]  # x, label, mask
    shape: tuple[int, int, int, int]  # groups, images, classes, pixels
    tiles: int  # of an image
    options: dict[str, Any]

    @property
    def x(self) -> Tensor:
        return self.tensors[0]

    @property
    def rows(self) -> int:
        """The classes of the groups, or the rows of a hinge: each is an extension by itself."""
        return self.shape[0] * self.shape[2]

    @property
    def items(self) -> int:
        """Pixels of a row."""
        return self.shape[1] * self.shape[3]

    @property
    def grid(self) -> tuple[int]:
        return (self.shape[0] * self.shape[1] * self.tiles,)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """As the kernels take them: images, tiles, C, S."""
        return self.shape[1], self.tiles, self.shape[2], self.shape[3]

    def results(self) -> tuple[Tensor, Tensor]:
        """A value per tile, and the gradient, to be filled in."""
        value = self.x.new_empty(self.shape[0], self.shape[1] * self.tiles)
        return value, torch.empty_like(self.x)


def class_maps(x: Tensor, label: Tensor) -> Maps | None:
    """Of a softmax; None where they do not fit."""
    if not fits(x):
        return None
    tiles, options = tiling(x)
    groups, images, classes, pixels = x.shape
    shape = (groups, images, classes, pixels)
    return Maps((x, label, None), shape, tiles, {**options, "HINGE": False})


def hinge_rows(x: Tensor, foreground: Tensor, mask: Tensor | None) -> Maps | None:
    """Of a hinge of x ``(R, n)``; None as above."""
    if x.shape[1] >= 2**31 or not x.numel():
        return None
    options = {"CLASSES": 1, "PIXELS": 1024, "HINGE": True, "num_warps": 8, **ROUNDED}
    shape = (x.shape[0], 1, 1, x.shape[1])
    return Maps((x, foreground, mask), shape, triton.cdiv(x.shape[1], 1024), options)


@triton.jit
def read_errors(
    x,
    label,
    mask,
    tile,
    tiles,
    C,
    S,
    HINGE: tl.constexpr,
    CLASSES: tl.constexpr,
    PIXELS: tl.constexpr,
):
    """Of a tile: the place of its image, the places of its numbers in that, and which of them there
    are; the errors, the foreground, what counts; and the probabilities, or the slopes of a hinge's
    losses.
    """
    if HINGE:
        first = (tile // tiles).to(tl.int64) * S
        s = (tile % tiles) * PIXELS + tl.arange(0, PIXELS)[None, :]
        inside = s < S
        front = tl.load(label + first + s, mask=inside, other=0) != 0
        valid = inside
        if mask is not None:
            valid = tl.load(mask + first + s, mask=inside, other=0) != 0
        sign = tl.where(front, -1.0, 1.0)
        margin = 1 + sign * tl.load(x + first + s, mask=valid, other=0.0)
        slope = tl.where(margin > 0, sign, 0.0)
        return first, s, inside, tl.where(margin < 0, 0.0, margin), front & valid, valid, slope
    else:
        first, place, inside, p, front, valid = read_tile(
            x, label, tile, tiles, C, S, CLASSES, PIXELS
        )
        return first, place, inside, tl.where(front, 1 - p, p), front, valid, p


@triton.jit
def first_row(tile, tiles, images, C):
    """Of the classes of a tile, among the rows of all groups."""
    return (tile // tiles // images).to(tl.int64) * C


@triton.jit
def through(slope, inner, HINGE: tl.constexpr, CLASSES: tl.constexpr):
    """From slopes in the errors to the gradient in x; `inner` as read."""
    if HINGE:
        return tl.abs(slope) * inner
    else:
        return through_softmax(inner, slope, CLASSES)


@triton.jit
def add_counts(counts, row, slot, last, front, counted, size):
    """Count items in their slots, ``(rows, 2, size)``, background and foreground; `row` is that of
    the first class.

    The last slot, that of the smallest errors, has heaps of items: they are added up in the tile
    first, so that not all of them wait for one place in memory.
    """
    counts += row * 2 * size
    place = tl.arange(0, slot.shape[0])[:, None] * 2 * size
    by_item = counted & (slot != last)
    tl.atomic_add(
        counts + (place + front.to(tl.int32) * size + slot), 1, mask=by_item, sem="relaxed"
    )
    in_last = counted & (slot == last)
    backs = tl.sum((in_last & (front == 0)).to(tl.int32), 1)[:, None]
    fronts = tl.sum((in_last & front).to(tl.int32), 1)[:, None]
    tl.atomic_add(counts + place + last, backs, mask=backs > 0, sem="relaxed")
    tl.atomic_add(counts + place + size + last, fronts, mask=fronts > 0, sem="relaxed")
