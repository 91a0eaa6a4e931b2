"""The operators behind the ranking losses: value and gradient of every row in one go, by the kernel
or by pure torch.
"""

import torch
from torch import Tensor

from evalgrad import _native
from evalgrad.direct_loss.inference import RankingMetric, augment
from evalgrad.direct_loss.sorted_lists import (
    in_given_order,
    row_values,
    score_above_perfect,
    score_gradient,
    sort_lists,
)

SIGNS = {"positive": 1, "negative": -1}  # s of y_direct = argmax F + s eps Delta
KEY_INDICES = 2**31  # a kernel key has 31 bits for the index


def _direct_pure(
    scores: Tensor,
    target: Tensor,
    mask: Tensor | None,
    epsilon: float,
    sign: int,
    ndcg: bool,
    k: int,
) -> tuple[Tensor, Tensor, Tensor]:
    if scores.numel() == 0:
        return (
            scores.new_zeros(scores.shape[0]),
            scores.new_zeros(scores.shape[0]),
            scores.new_zeros(scores.shape),
        )
    lists = sort_lists(scores, target, mask, epsilon)
    metric = RankingMetric(lists, ndcg, k)
    above = augment(lists, metric, epsilon, sign)
    gradient = (
        sign / epsilon * score_gradient(lists, above, lists.positive_rank, lists.negative_rank)
    )
    value, gradient = in_given_order(lists, metric.loss(lists.positive_rank), gradient, scores)
    return value, row_values(lists, metric.loss(above), scores), gradient


def _direct_native(
    scores: Tensor,
    target: Tensor,
    mask: Tensor | None,
    epsilon: float,
    sign: int,
    ndcg: bool,
    k: int,
) -> tuple[Tensor, Tensor, Tensor]:
    if scores.shape[1] >= KEY_INDICES:
        return _direct_pure(scores, target, mask, epsilon, sign, ndcg, k)
    value, reached, gradient = _direct_fake(scores, target, mask, epsilon, sign, ndcg, k)
    lists, options = (scores, target, mask, *scores.shape), (epsilon, sign, ndcg, k)
    _native.call("direct_ranking", *lists, *options, value, reached, gradient)
    return value, reached, gradient


def _direct_fake(
    scores: Tensor,
    target: Tensor,
    mask: Tensor | None,
    epsilon: float,
    sign: int,
    ndcg: bool,
    k: int,
) -> tuple[Tensor, Tensor, Tensor]:
    values = scores.new_empty(scores.shape[0])
    return (
        values,
        torch.empty_like(values),
        torch.empty_like(scores, memory_format=torch.contiguous_format),
    )


direct_ranking = _native.operator(
    "direct_ranking(Tensor scores, Tensor target, Tensor? mask, float epsilon, int sign, bool ndcg,"
    " int k)"
    # Delta of y_w, Delta of y_direct, direct loss gradient; k = 0: no cutoff
    " -> (Tensor, Tensor, Tensor)",
    pure=_direct_pure,
    native=_direct_native,
    fake=_direct_fake,
    dtypes=_native.FLOATS,
    traceable=False,
)


def _structured_pure(
    scores: Tensor, target: Tensor, mask: Tensor | None, augmented: bool
) -> tuple[Tensor, Tensor]:
    if scores.numel() == 0:
        return scores.new_zeros(scores.shape[0]), scores.new_zeros(scores.shape)
    lists = sort_lists(scores, target, mask, 1.0)
    above, lost = lists.positive_rank, torch.zeros_like(lists.phi[:, 0])
    if augmented:
        metric = RankingMetric(lists, ndcg=False, k=0)
        above = augment(lists, metric, 1.0, +1)
        lost = metric.loss(above)
    gradient = score_gradient(
        lists, above, torch.zeros_like(above), lists.positives.expand_as(above)
    )
    return in_given_order(lists, lost + score_above_perfect(lists, above), gradient, scores)


def _structured_native(
    scores: Tensor, target: Tensor, mask: Tensor | None, augmented: bool
) -> tuple[Tensor, Tensor]:
    if scores.shape[1] >= KEY_INDICES:
        return _structured_pure(scores, target, mask, augmented)
    value, gradient = _native.empty_results(scores)
    lists = (scores, target, mask, *scores.shape)
    _native.call("ap_structured", *lists, augmented, value, gradient)
    return value, gradient


ap_structured = _native.operator(
    "ap_structured(Tensor scores, Tensor target, Tensor? mask, bool augmented) -> (Tensor, Tensor)",
    pure=_structured_pure,
    native=_structured_native,
    dtypes=_native.FLOATS,
    traceable=False,
)
