"""Metrics of rankings with binary relevance: average precision and NDCG. Ties count against the
model.
"""

import torch
from torch import Tensor

from evalgrad._inputs import lists
from evalgrad._options import integer, one_of
from evalgrad._ranking import against_the_model


def average_precision(
    scores: Tensor, target: Tensor, *, mask: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """Average precision of rankings: the mean over the positives of the precision at their place.

    Ties count against the model: a negative tied with a positive ranks above it. (scikit-learn puts
    a threshold behind the tied group instead; without ties both agree.)

    Args:
        scores: ``(*, n)``, what ranks the n items of each list.
        target: the same shape, 1 or True for positives.
        mask: bool, the same shape, True = counts; items left out are as if absent.
        reduction: over lists ``"mean"``; ``"none"``: the leading axes.

    Returns:
        float64. A list without a positive or without a negative is left out of the mean and is NaN
        under "none"; so is the mean of nothing. A NaN score that counts makes its list NaN.

    Example:
        >>> average_precision(torch.tensor([0.9, 0.8, 0.7]), torch.tensor([1, 0, 1]))
        tensor(0.8333, dtype=torch.float64)
    """
    function = "average_precision"
    hits, live = _ranked_hits(function, scores, target, mask, reduction)
    rank = torch.arange(1, hits.shape[-1] + 1, device=hits.device, dtype=hits.dtype)
    return mean_over_lists((hits * hits.cumsum(-1) / rank).sum(-1) / hits.sum(-1), live, reduction)


def ndcg(
    scores: Tensor,
    target: Tensor,
    *,
    k: int | None = None,
    mask: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Normalised discounted cumulative gain of rankings, for binary relevance: gain 1/log2(1 +
    rank).

    Ties count against the model: an irrelevant item tied with a relevant one ranks above it.
    (scikit-learn averages over the orders of tied items; without ties both agree.)

    Args:
        scores: ``(*, n)``, what ranks the n items of each list.
        target: the same shape, 1 or True for relevant items.
        k: count the first k places only, in the gain and in the ideal gain; None counts all.
        mask: as `average_precision`.
        reduction: as `average_precision`.

    Returns:
        As `average_precision`.

    Example:
        >>> ndcg(torch.tensor([0.9, 0.8, 0.7]), torch.tensor([0, 1, 0]))
        tensor(0.6309, dtype=torch.float64)
    """
    function = "ndcg"
    if k is not None:
        integer(1, repair="Pass the number of places that count; None counts all.")(
            function, "k", k
        )
    hits, live = _ranked_hits(function, scores, target, mask, reduction)
    discount = 1 / torch.log2(
        torch.arange(2, hits.shape[-1] + 2, device=hits.device, dtype=hits.dtype)
    )
    ideal = hits.sort(dim=-1, descending=True).values
    gain, best = ((x * discount)[..., :k].sum(-1) for x in (hits, ideal))
    return mean_over_lists(gain / best, live, reduction)


def _ranked_hits(
    function: str, scores: Tensor, target: Tensor, mask: Tensor | None, reduction: str
) -> tuple[Tensor, Tensor]:
    """Which places of the ranking hold positives, 1.0 or 0.0, all NaN after a NaN score; and which
    lists are not void.
    """
    one_of("mean", "none")(function, "reduction", reduction)
    found = lists(function, scores, target, mask)
    positive, negative = found.counted()
    nan = found.rows.isnan() if found.mask is None else found.rows.isnan() & found.mask
    _, order = against_the_model(found.rows, positive, found.mask)
    hits = positive.gather(-1, order).to(torch.float64)
    hits = hits.masked_fill(nan.any(-1, keepdim=True), torch.nan)
    live = positive.any(-1) & negative.any(-1)
    return hits.reshape(*found.shape, hits.shape[-1]), live.reshape(found.shape)


def mean_over_lists(values: Tensor, live: Tensor, reduction: str) -> Tensor:
    """Mean over the lists that are `live`; NaN for the others under "none"."""
    if reduction == "none":
        return values.masked_fill(~live, torch.nan)
    return torch.where(live, values, 0.0).sum() / live.sum()  # no list: 0/0 is NaN
