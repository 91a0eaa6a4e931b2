"""The extension without a sort: errors counted in K equal bins.

Items of one bin count as tied: its foreground items share one weight, its background items another,
such that together they add up to the exact step of the Jaccard loss across the bin. The value is
therefore within the width of a bin of the exact one, whatever the data. The gradient has no such
bound: it is close (1e-4) for a class with many pixels, and can be off by some percent for one with
a few dozen. Counts of several ranks or micro-batches simply add up.
"""

import torch
from torch import Tensor


def bin_of(errors: Tensor, bins: int, highest: Tensor | float = 1.0) -> Tensor:
    """Number of the bin of each error in [0, highest], from the largest errors down: bin 0 holds
    them, `highest` included, and NaN.
    """
    place = errors * (bins / highest)
    return bins - 1 - torch.where(place < bins - 1, place, bins - 1).long()


def count(number: Tensor, foreground: Tensor, mask: Tensor, bins: int) -> Tensor:
    """Items of the last axis per kind (background, foreground) and number of bin: ``(*, 2, K)``
    integers.
    """
    # what is left out falls behind the last bin
    place = torch.where(mask, number + foreground * bins, 2 * bins)
    counts = torch.zeros(
        (*number.shape[:-1], 2 * bins + 1), dtype=torch.int64, device=number.device
    )
    return (
        counts.scatter_add(-1, place, torch.ones_like(place))[..., :-1]
        .unflatten(-1, (2, bins))
        .contiguous()
    )


def bin_weights(counts: Tensor, total: Tensor | None = None) -> Tensor:
    """Weight of one item per kind and bin, from counts ``(*, 2, K)``; float64.

    `total` ``(*)`` is the size of the foreground if some of it, without an error, is in no bin.
    """
    g, f = counts.double().unbind(-2)
    total = (f.sum(-1) if total is None else total.double()).unsqueeze(-1)
    a, b = f.cumsum(-1) - f, g.cumsum(-1) - g
    before, after = total + b, total + b + g
    # The mean of "foreground first" and "background first": both are orders of the tie, and so is
    # every mixture.
    of_front = 0.5 / before.clamp(min=1) + 0.5 / after.clamp(min=1)
    of_back = (total - a - f / 2) / (before * after).clamp(min=1)
    # no foreground: the topmost bin has all the weight
    first = torch.where((b == 0) & (g > 0), 1 / g.clamp(min=1), 0.0)
    return torch.stack([torch.where(total > 0, of_back, first), of_front], dim=-2)


def look_up(table: Tensor, number: Tensor, foreground: Tensor, mask: Tensor) -> Tensor:
    """Entry of ``table (*, 2, K)`` for each item of the last axis, of which `number` is the bin; 0
    for what the mask leaves out.
    """
    place = number + foreground * table.shape[-1]
    return torch.where(mask, table.flatten(-2).gather(-1, place), 0.0)
