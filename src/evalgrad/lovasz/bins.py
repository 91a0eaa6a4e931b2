"""The extension without a sort: errors counted in K equal bins (docs/maths.md, "Counting instead of
sorting").

Items of one bin count as tied: its foreground items share one weight, its background items another,
such that together they add up to the exact step of the Jaccard loss across the bin. The value is
therefore within the width of a bin of the exact one, whatever the data. The gradient has no such
bound: it is close for a class with many pixels, and can be off by some percent for one with a few
dozen. Counts of several ranks or micro-batches add up to those of the whole batch.

Three steps: `count` items per kind and bin, turn the counts into weights (`bin_weights`), and
`look_up` the weight of each item. Kind 0 is background, kind 1 foreground.
"""

import torch
from torch import Tensor


def bin_of(errors: Tensor, bins: int, highest: Tensor | float = 1.0) -> Tensor:
    """Number of the bin of each error in [0, highest], from the largest errors down: bin 0 holds
    them, `highest` included, and NaN.
    """
    # This way round NaN, which compares as False, and inf / inf land in bin 0.
    place = errors * (bins / highest)
    return bins - 1 - torch.where(place < bins - 1, place, bins - 1).long()


def count(number: Tensor, foreground: Tensor, mask: Tensor, bins: int) -> Tensor:
    """Items of the last axis per kind (background, foreground) and number of bin: ``(*, 2, K)``
    integers.
    """
    # What is left out falls behind the last bin, which is dropped.
    column = torch.where(mask, number + foreground * bins, 2 * bins)
    counts = torch.zeros(
        (*number.shape[:-1], 2 * bins + 1), dtype=torch.int64, device=number.device
    )
    return (
        counts.scatter_add(-1, column, torch.ones_like(column))[..., :-1]
        .unflatten(-1, (2, bins))
        .contiguous()
    )


def bin_weights(counts: Tensor, total: Tensor | None = None) -> Tensor:
    """Weight of one item per kind and bin, from counts ``(*, 2, K)``; float64.

    A bin with f foreground and g background items moves the Jaccard loss from F(a, b) to
    F(a + f, b + g), with a and b of them in the bins above. Its items may come in any order.
    Foreground first, a foreground item weighs 1/(P + b); background first, 1/(P + b + g). The
    background items have (P - a - f) g / ((P + b)(P + b + g)) between them in the first order and
    (P - a) g / (the same) in the second. Either adds up to the step of the bin, and so does their
    mean, which is taken: it favours neither kind.

    `total` ``(*)`` is P, if some of the foreground, without an error, is in no bin.
    """
    g, f = counts.double().unbind(-2)  # largest errors first
    P = (f.sum(-1) if total is None else total.double()).unsqueeze(-1)
    a, b = f.cumsum(-1) - f, g.cumsum(-1) - g  # in the bins above
    before, after = P + b, P + b + g  # the union of prediction and truth, before and after the bin
    of_front = 0.5 / before.clamp(min=1) + 0.5 / after.clamp(min=1)
    of_back = (P - a - f / 2) / (before * after).clamp(min=1)
    # Without foreground the largest error has all the weight: the topmost bin shares it.
    first = torch.where((b == 0) & (g > 0), 1 / g.clamp(min=1), 0.0)
    return torch.stack([torch.where(P > 0, of_back, first), of_front], dim=-2)


def look_up(table: Tensor, number: Tensor, foreground: Tensor, mask: Tensor) -> Tensor:
    """Entry of ``table (*, 2, K)`` for each item of the last axis, of which `number` is the bin; 0
    for what the mask leaves out.
    """
    column = number + foreground * table.shape[-1]
    return torch.where(mask, table.flatten(-2).gather(-1, column), 0.0)
