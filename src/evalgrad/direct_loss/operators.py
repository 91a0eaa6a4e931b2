"""The operators behind the ranking losses: value and gradient of every row in one go, by the kernel
or by pure torch.
"""

import torch
from torch import Tensor

from evalgrad import _native
from evalgrad.direct_loss.inference import RankingMetric, augment, needs_chain
from evalgrad.direct_loss.sorted_lists import (
    below_each,
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
    rows, n = scores.shape
    if scores.numel() == 0:
        return scores.new_zeros(rows), scores.new_zeros(rows), scores.new_zeros(rows, n)
    if not scores.is_cpu and needs_chain(sign, ndcg and 0 < k < n):
        return _on_cpu(scores, target, mask, epsilon, sign, ndcg, k)
    lists = sort_lists(scores, target, mask, epsilon)
    metric = RankingMetric(lists, ndcg, k)
    above = augment(lists, metric, epsilon, sign)
    own, below = lists.rank[:, :-1], below_each(lists, above)
    gradient = score_gradient(lists, above, below, own, sign / epsilon)
    losses = row_values(lists, metric.loss(torch.stack([own[:, :n], above]))).to(scores.dtype)
    # Clones: the results of an operator do not share memory.
    value, reached = (loss.clone() for loss in losses)
    return value, reached, in_given_order(lists, gradient, mask).to(scores.dtype)


def _on_cpu(
    scores: Tensor, target: Tensor, mask: Tensor | None, *options: float
) -> tuple[Tensor, Tensor, Tensor]:
    """By the kernel of the CPU, with one copy each way: a chain from positive to positive would be
    thousands of launches.
    """
    flags = [target] if mask is None else [target, mask]
    packed = torch.stack([scores, *(flag.to(scores.dtype) for flag in flags)])
    # A meta tensor has nothing to copy.
    there = torch.zeros_like(packed, device="cpu") if packed.is_meta else packed.cpu()
    lists = (there[0], *there[1:].bool(), None)[:3]
    value, reached, gradient = direct_ranking(*lists, *options)
    back = torch.cat([value.unsqueeze(1), reached.unsqueeze(1), gradient], 1).to(scores.device)
    return back[:, 0].clone(), back[:, 1].clone(), back[:, 2:].clone()


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
    triton="direct_loss",
)


def _structured_pure(
    scores: Tensor, target: Tensor, mask: Tensor | None, augmented: bool
) -> tuple[Tensor, Tensor]:
    if scores.numel() == 0:
        return scores.new_zeros(scores.shape[0]), scores.new_zeros(scores.shape)
    lists = sort_lists(scores, target, mask, 1.0)
    n = scores.shape[1]
    above, lost = lists.rank[:, :n], torch.zeros_like(lists.z[:1, :1])
    if augmented:
        metric = RankingMetric(lists, ndcg=False, k=0)
        above = augment(lists, metric, 1.0, +1)
        lost = metric.loss(above.unsqueeze(0))
    perfect = torch.cat([torch.zeros_like(above), lists.positives.expand_as(above)], 1)
    gradient = score_gradient(lists, above, below_each(lists, above), perfect, 1.0)
    value = row_values(lists, lost + score_above_perfect(lists, above))[0]
    return value.to(scores.dtype), in_given_order(lists, gradient, mask).to(scores.dtype)


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
