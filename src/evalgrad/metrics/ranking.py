"""Metrics of whole rankings with binary relevance: average precision and the area under the ROC
curve.

They differ in what a tied group counts. ``ties="standard"`` is scikit-learn's definition of each;
``ties="worst"`` ranks the negatives of a group above its positives, as the losses do, so that a
network whose scores have collapsed does not look good.
"""

from math import nan

from torch import Tensor

from evalgrad._options import checked
from evalgrad.metrics.curves import Curve, ListReduction, Ties, curve, list_reduction, over_lists
from evalgrad.metrics.first_places import CUTOFF, share_within


@checked(k=CUTOFF, reduction=list_reduction)
def average_precision(
    scores: Tensor,
    target: Tensor,
    *,
    k: int | None = None,
    dim: int | None = None,
    mask: Tensor | None = None,
    ties: Ties = "standard",
    zero_division: float = nan,
    reduction: ListReduction = "mean",
) -> Tensor:
    """Average precision of rankings: the mean over the positives of the precision at their rank.

    Args:
        scores: the scores by which items are ranked, of any shape; by default the last dimension is
            one list.
        target: the same shape, 1 or True for positives.
        k: use only the first k items: a positive after them adds 0 to the mean over all positives,
            as in TF-Ranking and trec_eval. None uses all.
        dim: the dimension of the items; with ``dim=0``, ``(batch, classes)`` is one list per class,
            and the mean is the macro average. Required for ``(N, 1)``.
        mask: bool, the same shape, True = keep; the other items are ignored.
        ties: ``"standard"`` takes the precision at the end of the tied group, as scikit-learn does;
            a group that the cutoff divides counts in proportion. ``"worst"`` puts the negatives of
            the group first.
        zero_division: value of 0/0, a list without positives; NaN leaves it out of the mean.
        reduction: ``"mean"`` over the lists, or ``"none"``: the shape of `scores` without `dim`.

    Returns:
        float64. A list that is entirely masked is left out of the mean, and NaN with "none"; the
        mean of no list is NaN. A NaN score makes its list NaN, unless it is masked.

    Example:
        >>> average_precision(torch.tensor([0.9, 0.8, 0.7]), torch.tensor([1, 0, 1]))
        tensor(0.8333, dtype=torch.float64)
        >>> tied, target = torch.zeros(4), torch.tensor([1, 0, 0, 1])
        >>> average_precision(tied, target)
        tensor(0.5000, dtype=torch.float64)
        >>> average_precision(tied, target, ties="worst")
        tensor(0.4167, dtype=torch.float64)
    """
    found = curve("average_precision", scores, target, mask, dim=dim)
    value = mean_precision(found, k, ties)
    return over_lists(value, found, found.positives() == 0, zero_division, reduction)


def mean_precision(found: Curve, k: int | Tensor | None, ties: Ties) -> Tensor:
    """``(R,)``: the precision at the places of the positives, those behind the k-th counting 0."""
    precision = found.precision()
    at = precision.gather(-1, found.end()) if ties == "standard" else precision[:, 1:]
    return (found.hits() * at * share_within(found, k, ties)).sum(-1) / found.positives()


@checked(reduction=list_reduction)
def roc_auc(
    scores: Tensor,
    target: Tensor,
    *,
    dim: int | None = None,
    mask: Tensor | None = None,
    ties: Ties = "standard",
    zero_division: float = nan,
    reduction: ListReduction = "mean",
) -> Tensor:
    """Area under the ROC curve: the fraction of (positive, negative) pairs in the right order.

    Args:
        scores: the scores by which items are ranked, of any shape; by default the last dimension is
            one list.
        target: the same shape, 1 or True for positives.
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
        >>> roc_auc(torch.tensor([0.9, 0.8, 0.8]), torch.tensor([1, 0, 1]))
        tensor(0.7500, dtype=torch.float64)
        >>> roc_auc(torch.tensor([0.9, 0.8, 0.8]), torch.tensor([1, 0, 1]), ties="worst")
        tensor(0.5000, dtype=torch.float64)
    """
    found = curve("roc_auc", scores, target, mask, dim=dim)
    above = found.tp.gather(-1, found.start())  # positives strictly above each item
    if ties == "standard":
        above = (above + found.tp.gather(-1, found.end())) / 2
    pairs = found.positives() * found.fp[:, -1]
    value = (found.misses() * above).sum(-1) / pairs
    return over_lists(value, found, pairs == 0, zero_division, reduction)
