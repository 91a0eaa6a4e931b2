"""Normalised discounted cumulative gain, for binary or graded relevance.

``ties="standard"`` averages over the orders of a tied group, as scikit-learn does;
``ties="worst"`` puts its items of the lowest gain first, as the losses do.
"""

from math import nan

import torch
import torch.nn.functional as F
from torch import Tensor

from evalgrad._grades import GAIN, Gain, Graded, graded_lists
from evalgrad._options import checked
from evalgrad.metrics.curves import ListReduction, Ties, broken, list_reduction, mean, settled
from evalgrad.metrics.first_places import CUTOFF
from evalgrad.metrics.tied_groups import group_mean


@checked(k=CUTOFF, gain=GAIN, reduction=list_reduction)
def ndcg(
    scores: Tensor,
    target: Tensor,
    *,
    k: int | None = None,
    gain: Gain = "linear",
    item_weight: Tensor | None = None,
    dim: int | None = None,
    mask: Tensor | None = None,
    ties: Ties = "standard",
    zero_division: float = nan,
    reduction: ListReduction = "mean",
) -> Tensor:
    """Normalised discounted cumulative gain of rankings: the sum of the items' gains over log2(1 +
    rank), divided by that of the best order.

    Args:
        scores: the scores by which items are ranked, of any shape; by default the last dimension is
            one list.
        target: the same shape, the relevance of every item: 1 or True and 0, or grades of at least
            0. Your own gains are grades with ``gain="linear"``.
        k: use only the first k items, in the gain and in the ideal gain; None uses all.
        gain: ``"linear"``, the grade itself, as in scikit-learn and torchmetrics;
            ``"exponential"``, 2^grade - 1, as in TF-Ranking. They agree on 0 and 1.
        item_weight: the same shape, factors >= 0 of the gains.
        dim: the dimension of the items; with ``dim=0``, ``(batch, classes)`` is one list per class,
            and the mean is the macro average. Required for ``(N, 1)``.
        mask: bool, the same shape, True = keep; the other items are ignored.
        ties: ``"standard"`` averages over the orders of the tied group, as scikit-learn does;
            ``"worst"`` puts its least relevant items first.
        zero_division: value of 0/0, a list without relevant items; NaN leaves it out of the mean.
        reduction: ``"mean"`` over the lists, or ``"none"``: the shape of `scores` without `dim`.

    Returns:
        As `average_precision`.

    Example:
        >>> ndcg(torch.tensor([0.9, 0.8, 0.7]), torch.tensor([0, 1, 0]))
        tensor(0.6309, dtype=torch.float64)
        >>> ndcg(torch.tensor([0.9, 0.8, 0.7]), torch.tensor([1, 2, 0]), gain="exponential")
        tensor(0.7967, dtype=torch.float64)
    """
    given = graded_lists("ndcg", scores, target, mask, dim=dim, gain=gain, item_weight=item_weight)
    rank = torch.arange(1, given.gain.shape[-1] + 1, device=given.gain.device)
    discount = 1 / torch.log2(1 + rank.to(given.gain))
    discount = discount if k is None else discount.masked_fill(rank > k, 0.0)
    ideal = (given.gain.sort(-1, descending=True).values * discount).sum(-1)
    value = _gained(given, discount.expand_as(given.gain), ties) / ideal
    void = ~given.counts().any(-1)
    values, weight = settled(value, ideal == 0, void, broken(given), zero_division)
    return values.reshape(given.shape) if reduction == "none" else mean(values, weight)


def _gained(given: Graded, discount: Tensor, ties: Ties) -> Tensor:
    """The discounted gains of the model's rankings, ``(R,)``."""
    there, scores = given.counts(), given.rows.detach()
    # Ties: the lowest gain first, and what does not count last; stable sorts keep it.
    by_gain = torch.where(there, given.gain, torch.inf).argsort(dim=-1, stable=True)
    scores = torch.where(there & ~scores.isnan(), scores, -torch.inf).gather(-1, by_gain)
    ranked, by_score = scores.sort(dim=-1, descending=True, stable=True)
    order = by_gain.gather(-1, by_score)
    gain = given.gain.gather(-1, order)
    if ties == "worst":
        return (gain * discount).sum(-1)
    new = F.pad(ranked[:, 1:] != ranked[:, :-1], (1, 0), value=True)[:, : ranked.shape[-1]]
    place = torch.arange(ranked.shape[-1], device=ranked.device)
    start = torch.where(new, place, 0).cummax(-1).values
    return (gain * group_mean(discount, start, there.gather(-1, order))).sum(-1)
