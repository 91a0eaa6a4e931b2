"""The extension without a sort: errors counted in K equal bins (docs/maths.md, "Counting instead of
sorting").

Items of one bin count as tied: its foreground items share one weight, its background items another,
such that together they add up to the exact step of the loss 1 - metric across the bin. The value is
therefore within the width of a bin of the exact one, whatever the data. The gradient has no such
bound: it is close for a class with many pixels, and can be off by some percent for one with a few
dozen. Counts of several ranks or micro-batches add up to those of the whole batch.

Three steps: `count` items per kind and bin, turn the counts into weights (`bin_weights`), and
`look_up` the weight of each item. Kind 0 is background, kind 1 foreground; counts and weights go
from the largest errors down. An item knows its place in them as a *column*.
"""

import torch
from torch import Tensor, nn

from evalgrad._errors import fail


def columns_of(
    errors: Tensor, foreground: Tensor, bins: int, highest: Tensor | float = 1.0
) -> Tensor:
    """Column of each error in [0, highest]: its bin from the smallest errors up, after K others if
    it is foreground. The last bin holds `highest`, too, and NaN.

    2 K is the column of what counts nowhere and has no weight.
    """
    number = bins_of(errors, bins, highest).long()
    return torch.add(number, foreground, alpha=bins)


def bins_of(errors: Tensor, bins: int, highest: Tensor | float = 1.0) -> Tensor:
    """Number of the bin of each error, not yet rounded down."""
    last = torch.full((), bins - 1, dtype=errors.dtype, device=errors.device)
    # fmin takes the last for NaN, and for inf / inf
    return torch.fmin(errors * (bins / highest), last)


# Bins of all rows together, 200 bytes each. Beyond what a machine has, Linux kills the process; a
# GPU raises by itself.
MOST_BINS = 2**26


def check_bins(function: str, x: Tensor, rows: int, bins: int) -> None:
    """Refuse more bins than memory holds; the kernels of the losses keep those of one row."""
    if x.is_cpu and not torch.compiler.is_compiling() and rows * bins > MOST_BINS:
        repair = "4096 is a good choice; None is exact."
        must = f"at most {MOST_BINS // rows} for {rows} classes or images"
        fail(ValueError, function, "bins", must, repr(bins), repair)


def count(columns: Tensor, bins: int) -> Tensor:
    """Items of the last axis per kind and bin, ``(*, 2, K)`` integers."""
    counts = torch.zeros(
        (*columns.shape[:-1], 2 * bins + 1), dtype=torch.int64, device=columns.device
    )
    counts = counts.scatter_add(-1, columns, counts.new_ones(()).expand_as(columns))
    return counts[..., :-1].unflatten(-1, (2, bins)).flip(-1)


def bin_weights(
    counts: Tensor, misses: float, false_alarms: float, total: Tensor | None = None
) -> Tensor:
    """Weight of one item per kind and bin, from counts ``(*, 2, K)``; float64.

    A bin with f foreground and g background items moves the loss from F(a, b) to F(a + f, b + g),
    with a and b of them in the bins above. Its items may come in any order. Foreground first, its
    foreground has the step from F(a, b) to F(a + f, b) and its background the rest; background
    first, they have the steps over F(a, b + g). Either adds up to the step of the bin, and so does
    their mean, which is taken: it favours neither kind.

    `total` ``(*)`` is P, if some of the foreground, without an error, is in no bin.
    """
    g, f = counts.double().unbind(-2)  # largest errors first
    P = (f.sum(-1) if total is None else total.double()).unsqueeze(-1)
    m, w = misses, false_alarms
    a, b = f.cumsum(-1), g.cumsum(-1)  # with the bin; a - f and b - g are in the bins above
    # D = P - a + m a + w b with all, with none, and with one kind of the items of the bin
    all_, no_front = P + (m - 1) * a + w * b, P + (m - 1) * (a - f) + w * b
    no_back, none = all_ - w * g, no_front - w * g
    of_front = 0.5 * (
        (m * P + w * (b - g)) / (none * no_back) + (m * P + w * b) / (no_front * all_)
    )
    of_back = 0.5 * w * ((P - a) / (no_back * all_) + (P - a + f) / (none * no_front))
    # Without foreground the largest error has all the weight: the topmost bin shares it.
    topmost = torch.where((b == g) & (g > 0), 1 / g.clamp(min=1), 0.0)
    kinds = torch.where(P > 0, of_back, topmost), torch.where(P > 0, of_front, 0.0)
    return torch.stack(kinds, dim=-2)


def look_up(table: Tensor, columns: Tensor) -> Tensor:
    """Entry of ``table (*, 2, K)`` for each item of the last axis."""
    return nn.functional.pad(table.flip(-1).flatten(-2), (0, 1)).gather(-1, columns)
