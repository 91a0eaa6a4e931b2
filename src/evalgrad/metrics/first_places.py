"""Metrics of the first places of a ranking: precision and recall at k, and the reciprocal rank.

``ties="standard"`` averages over the orders of a tied group, as scikit-learn's NDCG does, since a
cutoff may divide one; ``ties="worst"`` puts its negatives first.
"""

from math import nan

import torch
from torch import Tensor

from evalgrad._options import checked, integer
from evalgrad.metrics.curves import Curve, ListReduction, Ties, curve, list_reduction, over_lists
from evalgrad.metrics.tied_groups import group_mean

PLACES = integer(1, repair="Pass the cutoff, the number of first items to use.")
CUTOFF = integer(
    1, none=True, repair="Pass the cutoff, the number of first items to use; None uses all."
)


@checked(k=PLACES, reduction=list_reduction)
def precision_at_k(
    scores: Tensor,
    target: Tensor,
    *,
    k: int,
    dim: int | None = None,
    mask: Tensor | None = None,
    ties: Ties = "standard",
    reduction: ListReduction = "mean",
) -> Tensor:
    """Fraction of the first k items that are positive.

    Args:
        scores: the scores by which items are ranked, of any shape; by default the last dimension is
            one list.
        target: the same shape, 1 or True for positives. A list without positives has the value 0.
        k: the cutoff. In a shorter list the missing items count as negatives.
        dim: the dimension of the items; with ``dim=0``, ``(batch, classes)`` is one list per class.
        mask: bool, the same shape, True = keep; the other items are ignored.
        ties: ``"standard"`` averages over the orders of a tied group; ``"worst"`` puts its
            negatives first.
        reduction: ``"mean"`` over the lists, or ``"none"``: the shape of `scores` without `dim`.

    Returns:
        As `average_precision`.

    Example:
        >>> precision_at_k(torch.tensor([0.9, 0.8, 0.7]), torch.tensor([1, 0, 1]), k=2)
        tensor(0.5000, dtype=torch.float64)
    """
    found = curve("precision_at_k", scores, target, mask, dim=dim)
    value = (found.hits() * share_within(found, k, ties)).sum(-1) / k
    return over_lists(value, found, torch.zeros_like(value, dtype=torch.bool), nan, reduction)


@checked(k=PLACES, reduction=list_reduction)
def recall_at_k(
    scores: Tensor,
    target: Tensor,
    *,
    k: int,
    dim: int | None = None,
    mask: Tensor | None = None,
    ties: Ties = "standard",
    zero_division: float = nan,
    reduction: ListReduction = "mean",
) -> Tensor:
    """Fraction of the positives that are among the first k items.

    Args:
        scores: the scores by which items are ranked, of any shape; by default the last dimension is
            one list.
        target: the same shape, 1 or True for positives.
        k: the cutoff. With more than k positives the value stays below 1.
        dim: the dimension of the items; with ``dim=0``, ``(batch, classes)`` is one list per class.
        mask: bool, the same shape, True = keep; the other items are ignored.
        ties: ``"standard"`` averages over the orders of a tied group; ``"worst"`` puts its
            negatives first.
        zero_division: value of 0/0, a list without positives; NaN leaves it out of the mean.
        reduction: ``"mean"`` over the lists, or ``"none"``: the shape of `scores` without `dim`.

    Returns:
        As `average_precision`.

    Example:
        >>> recall_at_k(torch.tensor([0.9, 0.8, 0.7, 0.1]), torch.tensor([1, 0, 1, 1]), k=2)
        tensor(0.3333, dtype=torch.float64)
    """
    found = curve("recall_at_k", scores, target, mask, dim=dim)
    value = (found.hits() * share_within(found, k, ties)).sum(-1) / found.positives()
    return over_lists(value, found, found.positives() == 0, zero_division, reduction)


@checked(k=CUTOFF, reduction=list_reduction)
def reciprocal_rank(
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
    """1 over the rank of the first positive; the mean over lists is the mean reciprocal rank.

    Args:
        scores: the scores by which items are ranked, of any shape; by default the last dimension is
            one list.
        target: the same shape, 1 or True for positives.
        k: use only the first k items: without a positive there the value is 0. None uses all.
        dim: the dimension of the items; with ``dim=0``, ``(batch, classes)`` is one list per class.
        mask: bool, the same shape, True = keep; the other items are ignored.
        ties: ``"standard"`` averages over the orders of a tied group; ``"worst"`` puts its
            negatives first.
        zero_division: value of a list without positives; NaN leaves it out of the mean.
        reduction: ``"mean"`` over the lists, or ``"none"``: the shape of `scores` without `dim`.

    Returns:
        As `average_precision`.

    Example:
        >>> reciprocal_rank(torch.tensor([0.9, 0.8, 0.7]), torch.tensor([0, 1, 1]))
        tensor(0.5000, dtype=torch.float64)
    """
    found = curve("reciprocal_rank", scores, target, mask, dim=dim)
    rank = torch.arange(1, found.tp.shape[-1], device=found.tp.device)
    worth = 1 / rank.to(found.tp)
    worth = worth if k is None else worth.masked_fill(rank > k, 0.0)
    value = (first_positive(found, ties) * worth).sum(-1)
    return over_lists(value, found, found.positives() == 0, zero_division, reduction)


def share_within(found: Curve, k: int | Tensor | None, ties: Ties) -> Tensor:
    """``(R, n)``: how much of each item stands in the first k places, None being all of them, a
    tensor ``(R, 1)`` a number for each list.

    A group that the cutoff divides stands there with the share of its places.
    """
    rank = torch.arange(1, found.tp.shape[-1], device=found.tp.device)
    within = torch.ones_like(rank) if k is None else rank <= k
    within = within.to(found.tp.dtype).expand(found.tp.shape[0], -1)
    if ties == "worst":
        return within
    return group_mean(within, found.start(), found.hits() + found.misses())


def first_positive(found: Curve, ties: Ties) -> Tensor:
    """``(R, n)``: the probability that the first positive stands at each place."""
    start, end = found.start(), found.end()
    ahead = found.tp.gather(-1, start)
    if ties == "worst":
        return found.hits() * (found.tp[:, :-1] == 0)
    # Of the first group with a positive, p of m items: all of its orders are equally probable.
    there = found.hits() + found.misses()
    p = found.tp.gather(-1, end) - ahead
    m = p + found.fp.gather(-1, end) - found.fp.gather(-1, start)
    place = torch.arange(found.tp.shape[-1] - 1, device=found.tp.device)
    left = (m - (place - start)).clamp(min=1)  # places of the group from here on
    here = torch.where((ahead == 0) & (p > 0) & (there > 0), p / left, 0.0).clamp(max=1)
    passed = (1 - here).cumprod(-1)
    return here * torch.nn.functional.pad(passed, (1, 0), value=1.0)[:, :-1]
