"""The common case in one kernel call: a batch of one row on the CPU in eager mode, with a piecewise
linear surrogate.

The same as `weighted_errors` and then `Counts.update`, past the dispatcher and without a Python
node in the graph, which cost more than all the rest.
"""

import torch
from torch import Tensor

from evalgrad import _native
from evalgrad._labels import readable
from evalgrad.s_measures.counts import Counts, check_index
from evalgrad.s_measures.surrogates import Surrogate


def is_plain(
    scores: Tensor, positive: Tensor, index: Tensor | None, counts: Counts, surrogate: Surrogate
) -> bool:
    """Whether `plain_batch` may be called; not for an empty batch, whose pointer is null."""
    if _native.library is None or not surrogate.piecewise_linear or not scores.numel():
        return False
    cache = counts.cache
    ready = (
        cache.is_cpu and cache.dtype == scores.dtype and _is_ready(scores) and _is_ready(positive)
    )
    return ready and (index is None or _is_ready(index))


def _is_ready(given: Tensor) -> bool:
    return readable(given) and given.is_contiguous()


def plain_batch(
    scores: Tensor,
    positive: Tensor,
    index: Tensor | None,
    weight: Tensor,
    counts: Counts,
    surrogate: Surrogate,
    *,
    training: bool,
) -> tuple[Tensor, bool]:
    """The weighted errors, differentiable, and whether the totals are new.

    A piecewise linear loss is locally the product of scores and gradient plus a constant: torch's
    own product has its derivative.
    """
    value, gradient = scores.new_empty(()), torch.empty_like(scores)
    batch = (scores, positive, index, scores.shape[0], weight, surrogate.code, value, gradient)
    cache = counts.cache
    memory = (
        counts.labels,
        cache,
        cache.shape[0],
        counts.totals,
        counts.momentum,
        counts.progress,
        counts.indexed,
    )
    _native.call(
        "s_measure_batch",
        *batch,
        *memory,
        counts.cycle(index),
        counts.report if training else None,
    )
    news = counts.report.item() if training else 0
    if news < 0 and index is not None:
        check_index(index, positive, counts.labels)
    attached = torch.dot(scores, gradient)
    # with the constant; the product is NaN where a score is infinite
    attached.detach().copy_(value)
    return attached, news > 0
