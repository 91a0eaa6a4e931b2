"""Precision and recall over all thresholds: the best of one given the other, and the area.

A threshold cuts behind a group of tied items, never inside, so that ties have one meaning here.
"""

from math import nan

import torch
from torch import Tensor

from evalgrad._options import checked, number
from evalgrad.metrics.curves import ListReduction, curve, list_reduction, over_lists

ROUNDING = 1e-9  # of `rate * count`, so that a rate reached exactly is reached
rate = number(above=0, at_most=1, repair="Give it as a fraction, not in per cent.")


@checked(recall=rate, reduction=list_reduction)
def precision_at_recall(
    scores: Tensor,
    target: Tensor,
    *,
    recall: float,
    dim: int | None = None,
    mask: Tensor | None = None,
    zero_division: float = nan,
    reduction: ListReduction = "mean",
) -> Tensor:
    """Highest precision of any threshold whose recall is at least `recall`, 0 < recall <= 1.

    Args:
        scores: what ranks the items, of any shape; one list by default along the last axis.
        target: the same shape, 1 or True for positives.
        recall: to be reached.
        dim: the axis of the items; ``dim=0`` of ``(batch, classes)`` is a list per class.
        mask: bool, the same shape, True = counts; items left out are as if absent.
        zero_division: value of 0/0, a list without positives; NaN leaves it out of the mean.
        reduction: ``"mean"`` over the lists, or ``"none"``: the axes of `scores` without `dim`.

    Returns:
        As `average_precision`.

    Example:
        >>> precision_at_recall(torch.tensor([0.9, 0.8, 0.7]), torch.tensor([1, 0, 1]), recall=1.0)
        tensor(0.6667, dtype=torch.float64)
    """
    found = curve("precision_at_recall", scores, target, mask, dim=dim)
    least = recall * found.positives().unsqueeze(-1) - ROUNDING
    value = torch.where(found.cut & (found.tp >= least), found.precision(), 0.0).amax(-1)
    return over_lists(value, found, found.positives() == 0, zero_division, reduction)


@checked(precision=rate, reduction=list_reduction)
def recall_at_precision(
    scores: Tensor,
    target: Tensor,
    *,
    precision: float,
    dim: int | None = None,
    mask: Tensor | None = None,
    zero_division: float = nan,
    reduction: ListReduction = "mean",
) -> Tensor:
    """Highest recall of any threshold whose precision is at least `precision`; 0 where no threshold
    reaches it.

    Args:
        scores: as `precision_at_recall`.
        target: the same shape, 1 or True for positives.
        precision: to be reached, in (0, 1].
        dim: as `precision_at_recall`.
        mask: as `precision_at_recall`.
        zero_division: as `precision_at_recall`.
        reduction: as `precision_at_recall`.

    Returns:
        As `average_precision`.

    Example:
        >>> scores, target = torch.tensor([0.9, 0.8, 0.7]), torch.tensor([1, 0, 1])
        >>> recall_at_precision(scores, target, precision=0.9)
        tensor(0.5000, dtype=torch.float64)
    """
    found = curve("recall_at_precision", scores, target, mask, dim=dim)
    least = precision * (found.tp + found.fp) - ROUNDING
    reached = torch.where(found.cut & (found.tp >= least), found.tp, 0.0).amax(-1)
    value = reached / found.positives()
    return over_lists(value, found, found.positives() == 0, zero_division, reduction)


@checked(reduction=list_reduction)
def pr_auc(
    scores: Tensor,
    target: Tensor,
    *,
    dim: int | None = None,
    mask: Tensor | None = None,
    zero_division: float = nan,
    reduction: ListReduction = "mean",
) -> Tensor:
    """Area of the points (r, p) that some threshold reaches with recall >= r and precision >= p.

    That is the integral of `recall_at_precision` over the precision, and of `precision_at_recall`
    over the recall: the interpolated precision-recall curve. Average precision is the same sum
    without interpolation.

    Args:
        scores: as `precision_at_recall`.
        target: the same shape, 1 or True for positives.
        dim: as `precision_at_recall`.
        mask: as `precision_at_recall`.
        zero_division: as `precision_at_recall`.
        reduction: as `precision_at_recall`.

    Returns:
        As `average_precision`.

    Example:
        >>> pr_auc(torch.tensor([0.9, 0.8, 0.7]), torch.tensor([1, 0, 1]))
        tensor(0.8333, dtype=torch.float64)
    """
    found = curve("pr_auc", scores, target, mask, dim=dim)
    precision = torch.where(found.cut, found.precision(), 0.0)
    best = precision.flip(-1).cummax(-1).values.flip(-1)  # at this recall or a higher one
    value = (best[:, 1:] * found.hits()).sum(-1) / found.positives()
    return over_lists(value, found, found.positives() == 0, zero_division, reduction)
