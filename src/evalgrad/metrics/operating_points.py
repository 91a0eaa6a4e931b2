"""Rates over all thresholds: the best of one given another, and areas.

A threshold cuts behind a group of tied items, never inside, so that ties have one meaning here.
"""

from math import nan

import torch
from torch import Tensor

from evalgrad._options import checked, number
from evalgrad.metrics.curves import Curve, ListReduction, Ties, curve, list_reduction, over_lists

ROUNDING = 1e-9  # of `rate * count`, so that a rate reached exactly is reached
rate = number(above=0, at_most=1, repair="Pass a fraction, not a percentage.")


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
        scores: the scores by which items are ranked, of any shape; by default the last dimension is
            one list.
        target: the same shape, 1 or True for positives.
        recall: the recall to reach.
        dim: the dimension of the items; with ``dim=0``, ``(batch, classes)`` is one list per class.
        mask: bool, the same shape, True = keep; the other items are ignored.
        zero_division: value of 0/0, a list without positives; NaN leaves it out of the mean.
        reduction: ``"mean"`` over the lists, or ``"none"``: the shape of `scores` without `dim`.

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
    """Highest recall of any threshold whose precision is at least `precision`; 0 if no threshold
    reaches it.

    Args:
        scores: the scores by which items are ranked, of any shape; by default the last dimension is
            one list.
        target: the same shape, 1 or True for positives.
        precision: the precision to reach, in (0, 1].
        dim: the dimension of the items; with ``dim=0``, ``(batch, classes)`` is one list per class.
        mask: bool, the same shape, True = keep; the other items are ignored.
        zero_division: value of 0/0, a list without positives; NaN leaves it out of the mean.
        reduction: ``"mean"`` over the lists, or ``"none"``: the shape of `scores` without `dim`.

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
        scores: the scores by which items are ranked, of any shape; by default the last dimension is
            one list.
        target: the same shape, 1 or True for positives.
        dim: the dimension of the items; with ``dim=0``, ``(batch, classes)`` is one list per class.
        mask: bool, the same shape, True = keep; the other items are ignored.
        zero_division: value of 0/0, a list without positives; NaN leaves it out of the mean.
        reduction: ``"mean"`` over the lists, or ``"none"``: the shape of `scores` without `dim`.

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


@checked(specificity=rate, reduction=list_reduction)
def sensitivity_at_specificity(
    scores: Tensor,
    target: Tensor,
    *,
    specificity: float,
    dim: int | None = None,
    mask: Tensor | None = None,
    zero_division: float = nan,
    reduction: ListReduction = "mean",
) -> Tensor:
    """Highest sensitivity (recall) of any threshold whose specificity, the fraction of the
    negatives that are predicted negative, is at least `specificity`.

    Args:
        scores: the scores by which items are ranked, of any shape; by default the last dimension is
            one list.
        target: the same shape, 1 or True for positives.
        specificity: the specificity to reach, in (0, 1].
        dim: the dimension of the items; with ``dim=0``, ``(batch, classes)`` is one list per class.
        mask: bool, the same shape, True = keep; the other items are ignored.
        zero_division: value of 0/0, a list without positives or without negatives; NaN leaves it
            out of the mean.
        reduction: ``"mean"`` over the lists, or ``"none"``: the shape of `scores` without `dim`.

    Returns:
        As `average_precision`.

    Example:
        >>> scores, target = torch.tensor([0.9, 0.8, 0.7, 0.6]), torch.tensor([1, 0, 1, 0])
        >>> sensitivity_at_specificity(scores, target, specificity=0.9)
        tensor(0.5000, dtype=torch.float64)
    """
    found = curve("sensitivity_at_specificity", scores, target, mask, dim=dim)
    most = (1 - specificity) * found.fp[:, -1:] + ROUNDING
    reached = torch.where(found.cut & (found.fp <= most), found.tp, 0.0).amax(-1)
    undefined = found.positives() * found.fp[:, -1] == 0
    return over_lists(reached / found.positives(), found, undefined, zero_division, reduction)


@checked(max_fpr=rate, reduction=list_reduction)
def partial_roc_auc(
    scores: Tensor,
    target: Tensor,
    *,
    max_fpr: float,
    dim: int | None = None,
    mask: Tensor | None = None,
    ties: Ties = "standard",
    zero_division: float = nan,
    reduction: ListReduction = "mean",
) -> Tensor:
    """Area under the ROC curve up to the false-positive rate `max_fpr`, standardised by McClish as
    in scikit-learn and torchmetrics: 0.5 for the diagonal, 1 for a perfect ranking.

    Args:
        scores: the scores by which items are ranked, of any shape; by default the last dimension is
            one list.
        target: the same shape, 1 or True for positives.
        max_fpr: the false-positive rate at which the area ends, in (0, 1]; 1 gives `roc_auc`.
        dim: the dimension of the items; with ``dim=0``, ``(batch, classes)`` is one list per class,
            and the mean is the macro average. Required for ``(N, 1)``.
        mask: bool, the same shape, True = keep; the other items are ignored.
        ties: with ``"standard"`` a tied pair counts 1/2, as in scikit-learn; with ``"worst"`` it
            counts as in the wrong order.
        zero_division: value of 0/0, a list without pairs; NaN leaves it out of the mean.
        reduction: ``"mean"`` over the lists, or ``"none"``: the shape of `scores` without `dim`.

    Returns:
        As `average_precision`.

    Example:
        >>> scores, target = torch.tensor([0.9, 0.8, 0.7, 0.6]), torch.tensor([1, 0, 1, 0])
        >>> partial_roc_auc(scores, target, max_fpr=0.5)
        tensor(0.6667, dtype=torch.float64)
    """
    found = curve("partial_roc_auc", scores, target, mask, dim=dim)
    negatives = found.fp[:, -1:]
    left, right = (x.minimum(max_fpr * negatives) for x in (found.fp[:, :-1], found.fp[:, 1:]))
    height = _height(found, (left + right) / 2, ties)
    pairs = found.positives() * negatives[:, 0]
    area = ((right - left) * height).sum(-1) / pairs
    return over_lists(standardised(area, max_fpr), found, pairs == 0, zero_division, reduction)


def standardised(area: Tensor, max_fpr: float) -> Tensor:
    """McClish: what a partial area has of the way from the diagonal's to the largest, from 0.5 to
    1.
    """
    least = max_fpr**2 / 2
    return (1 + (area - least) / (max_fpr - least)) / 2


def _height(found: Curve, place: Tensor, ties: Ties) -> Tensor:
    """(R, n): the true positives at a number `place` of false ones within the step of each item.

    Across a tied group the curve is a straight line by default, and at its worst a step.
    """
    start, end = found.start(), found.end()
    before = found.tp.gather(-1, start)
    if ties == "worst":
        return before
    first, last = found.fp.gather(-1, start), found.fp.gather(-1, end)
    rise = found.tp.gather(-1, end) - before
    return before + rise * (place - first) / (last - first).clamp(min=1)
