"""Metrics of retrieval, where every query has its own number R of positives: hit rate at k,
R-precision and MAP@R; and the lists that a batch of embeddings makes.
"""

from math import nan

import torch
from torch import Tensor

from evalgrad._embeddings import Similarity, embedded, lists_of
from evalgrad._errors import describe, fail
from evalgrad._inputs import plain
from evalgrad._labels import readable
from evalgrad._options import checked
from evalgrad.metrics.curves import ListReduction, Ties, curve, list_reduction, over_lists
from evalgrad.metrics.first_places import PLACES, first_positive, share_within
from evalgrad.metrics.ranking import mean_precision


@checked(k=PLACES, reduction=list_reduction)
def hit_rate_at_k(
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
    """Whether a positive is among the first k items; the mean over lists is a rate.

    Image retrieval calls this recall@k; `recall_at_k` is the fraction of the positives found, as in
    other fields. With k = 1 this is precision@1.

    Args:
        scores: the scores by which items are ranked, of any shape; by default the last dimension is
            one list.
        target: the same shape, 1 or True for positives.
        k: the cutoff, the number of first items.
        dim: the dimension of the items; with ``dim=0``, ``(batch, classes)`` is one list per class.
        mask: bool, the same shape, True = keep; the other items are ignored.
        ties: ``"standard"`` averages over the orders of a tied group; ``"worst"`` puts its
            negatives first.
        zero_division: value of a list without positives; NaN leaves it out of the mean.
        reduction: ``"mean"`` over the lists, or ``"none"``: the shape of `scores` without `dim`.

    Returns:
        As `average_precision`.

    Example:
        >>> hit_rate_at_k(torch.tensor([0.9, 0.8, 0.7]), torch.tensor([0, 1, 1]), k=2)
        tensor(1., dtype=torch.float64)
    """
    found = curve("hit_rate_at_k", scores, target, mask, dim=dim)
    value = first_positive(found, ties)[:, :k].sum(-1)
    return over_lists(value, found, found.positives() == 0, zero_division, reduction)


@checked(reduction=list_reduction)
def r_precision(
    scores: Tensor,
    target: Tensor,
    *,
    dim: int | None = None,
    mask: Tensor | None = None,
    ties: Ties = "standard",
    zero_division: float = nan,
    reduction: ListReduction = "mean",
) -> Tensor:
    """Fraction of the first R items that are positive, R being the number of positives.

    Args:
        scores: the scores by which items are ranked, of any shape; by default the last dimension is
            one list.
        target: the same shape, 1 or True for positives.
        dim: the dimension of the items; with ``dim=0``, ``(batch, classes)`` is one list per class.
        mask: bool, the same shape, True = keep; the other items are ignored.
        ties: ``"standard"`` averages over the orders of a tied group; ``"worst"`` puts its
            negatives first.
        zero_division: value of 0/0, a list without positives; NaN leaves it out of the mean.
        reduction: ``"mean"`` over the lists, or ``"none"``: the shape of `scores` without `dim`.

    Returns:
        As `average_precision`.

    Example:
        >>> r_precision(torch.tensor([0.9, 0.8, 0.7, 0.1]), torch.tensor([1, 0, 1, 0]))
        tensor(0.5000, dtype=torch.float64)
    """
    found = curve("r_precision", scores, target, mask, dim=dim)
    within = share_within(found, found.positives().unsqueeze(-1), ties)
    value = (found.hits() * within).sum(-1) / found.positives()
    return over_lists(value, found, found.positives() == 0, zero_division, reduction)


@checked(reduction=list_reduction)
def map_at_r(
    scores: Tensor,
    target: Tensor,
    *,
    dim: int | None = None,
    mask: Tensor | None = None,
    ties: Ties = "standard",
    zero_division: float = nan,
    reduction: ListReduction = "mean",
) -> Tensor:
    """MAP@R: average precision over the first R items, R being the number of positives.

    `average_precision(k=R)` with each list's own R. Musgrave, Belongie, Lim: A metric learning
    reality check, ECCV 2020.

    Args:
        scores: the scores by which items are ranked, of any shape; by default the last dimension is
            one list.
        target: the same shape, 1 or True for positives.
        dim: the dimension of the items; with ``dim=0``, ``(batch, classes)`` is one list per class.
        mask: bool, the same shape, True = keep; the other items are ignored.
        ties: ``"standard"`` takes the precision at the end of the tied group, as scikit-learn does;
            a group that the cutoff divides counts in proportion. ``"worst"`` puts the negatives of
            the group first.
        zero_division: value of 0/0, a list without positives; NaN leaves it out of the mean.
        reduction: ``"mean"`` over the lists, or ``"none"``: the shape of `scores` without `dim`.

    Returns:
        As `average_precision`.

    Example:
        >>> map_at_r(torch.tensor([0.9, 0.8, 0.7, 0.1]), torch.tensor([0, 1, 1, 1]))
        tensor(0.3889, dtype=torch.float64)
    """
    found = curve("map_at_r", scores, target, mask, dim=dim)
    value = mean_precision(found, found.positives().unsqueeze(-1), ties)
    return over_lists(value, found, found.positives() == 0, zero_division, reduction)


@checked()
def retrieval_lists(
    embeddings: Tensor,
    labels: Tensor,
    *,
    queries: Tensor | None = None,
    similarity: Similarity = "cosine",
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, target and mask ``(Q, N)`` of all queries, as input for the ranking metrics.

    Args:
        embeddings: ``(N, D)``, a vector per item.
        labels: ``(N,)`` integers; the items with the query's label are its positives.
        queries: ``(Q,)`` indices of the items to use as queries, for a dataset whose N^2
            similarities would not fit into memory; None: all.
        similarity: ``"cosine"`` or ``"dot"``.
        mask: bool ``(N,)``, True = keep.

    Returns:
        The similarity of each query to each item, whether their labels are equal, and which items
        to keep: all but the query itself and the items that `mask` leaves out.

    Example:
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.9, 0.1]])
        >>> scores, target, mask = retrieval_lists(embeddings, torch.tensor([0, 0, 1]))
        >>> hit_rate_at_k(scores, target, mask=mask, k=1)  # of two: the third has no positive
        tensor(0., dtype=torch.float64)
    """
    items = embedded("retrieval_lists", embeddings, labels, mask, similarity)
    if queries is None:
        queries = torch.arange(len(items.x), device=items.x.device)
    else:
        queries = _indices(queries, len(items.x))
    scores, same, others = lists_of(items.x.detach(), items.label, items.mask, queries)
    if items.invalid is not None:
        scores = scores.masked_fill(items.invalid, nan)
    return scores, same, others


def _indices(queries: object, count: int) -> Tensor:
    queries = plain("retrieval_lists", "queries", queries)
    if queries.dtype != torch.int64 or queries.ndim != 1 or _outside(queries, count):
        must = f"(Q,) int64 indices in [0, {count - 1}]"
        got, repair = describe(queries), "E.g. `for queries in torch.arange(n).split(256)`."
        fail(ValueError, "retrieval_lists", "queries", must, got, repair)
    return queries


def _outside(queries: Tensor, count: int) -> bool:
    return readable(queries) and bool(((queries < 0) | (queries >= count)).any())
