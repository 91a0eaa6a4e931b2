"""Retrieval from embeddings: training on the mean average precision of a batch whose items look for
their like among the others.

Every item is a query, its list are all others in the order of their similarity, and those of its
label are the positives. The loss is that of `ranking`, 1 - AP with the direct loss gradient, of all
lists at once; what a query's similarities get goes on to both embeddings. The N^2 similarities are
made, ranked and dropped in chunks of queries, so that memory grows with N. Song, Schwing, Zemel,
Urtasun: Training deep neural networks via direct loss minimization, ICML 2016.
"""

import torch
from torch import Tensor

from evalgrad import _native
from evalgrad._binary_inputs import Binary
from evalgrad._embeddings import Embedded, Similarity, embedded, lists_of, unrounded
from evalgrad._module import LossModule
from evalgrad._options import Direction, Reduction, checked
from evalgrad._rows import any_item, attach, marked
from evalgrad.direct_loss.operators import SIGNS, direct_ranking
from evalgrad.direct_loss.ranking import direct_lists

PAIRS = 2**20  # similarities at a time: with what is made of them 10 MB, without kernels 700


@checked()
def retrieval_average_precision_loss(
    embeddings: Tensor,
    labels: Tensor,
    *,
    similarity: Similarity = "cosine",
    epsilon: float = 0.1,
    direction: Direction = "positive",
    mask: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """1 - mean average precision of a batch of embeddings, with the direct loss gradient.

    Args:
        embeddings: ``(N, D)``, one vector per item. Every item is a query; its list has all other
            items by decreasing similarity.
        labels: ``(N,)``, any integers. The items with the query's label are its positives. A query
            without a positive or without a negative among the others is skipped: value 0, left out
            of the mean.
        similarity: ``"cosine"``, or ``"dot"`` for dot products, which must not overflow.
        epsilon: how far y_direct may be from the model's ranking, on the scale of the similarities;
            `suggest_epsilon` returns a starting value from `metrics.retrieval_lists`.
        direction: ``"positive"`` moves away from a worse ranking, ``"negative"`` towards a better
            one.
        mask: bool ``(N,)``, True = keep; the other items are ignored.
        reduction: over queries ``"mean"`` | ``"sum"`` | ``"none"``: ``(N,)``. Only ``"none"`` keeps
            all N^2 similarities for the backward pass.

    A negative as similar as a positive ranks above it. Equal vectors have equal similarities only
    up to rounding.

    Example:
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.9, 0.1]], requires_grad=True)
        >>> retrieval_average_precision_loss(embeddings, torch.tensor([0, 0, 1]))  # 2 queries
        tensor(0.5000, grad_fn=<...>)
    """
    name = "retrieval_average_precision_loss"
    items = embedded(name, embeddings, labels, mask, similarity)
    if reduction == "none":
        return _of_each_query(items, epsilon, direction)
    rows = (items.label.unsqueeze(0), None if items.mask is None else items.mask.unsqueeze(0))
    x, options = items.x.unsqueeze(0), (float(epsilon), SIGNS[direction], reduction == "mean")
    value, gradient = retrieval(x.detach(), *rows, *options)
    return attach(x, value, gradient, reduction, invalid=items.invalid)


class RetrievalAveragePrecisionLoss(LossModule):
    """`retrieval_average_precision_loss` as an `nn.Module`: ``loss(embeddings, labels, mask)``.

    Args:
        similarity: ``"cosine"``, or ``"dot"`` for dot products, which must not overflow.
        epsilon: how far y_direct may be from the model's ranking, on the scale of the similarities;
            `suggest_epsilon` returns a starting value from `metrics.retrieval_lists`.
        direction: ``"positive"`` moves away from a worse ranking, ``"negative"`` towards a better
            one.
        reduction: over queries ``"mean"`` | ``"sum"`` | ``"none"``: ``(N,)``. Only ``"none"`` keeps
            all N^2 similarities for the backward pass.

    Example:
        >>> loss = RetrievalAveragePrecisionLoss(epsilon=0.01)
        >>> embeddings = torch.randn(64, 16, requires_grad=True)
        >>> loss(embeddings, torch.arange(64) % 8).backward()
    """

    function = staticmethod(retrieval_average_precision_loss)

    def __init__(
        self,
        *,
        similarity: Similarity = "cosine",
        epsilon: float = 0.1,
        direction: Direction = "positive",
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(locals())


def _of_each_query(items: Embedded, epsilon: float, direction: Direction) -> Tensor:
    """The losses ``(N,)``, each a function of all embeddings: by a graph through all pairs."""
    queries = torch.arange(len(items.x), device=items.x.device)
    scores, same, others = lists_of(items.x, items.label, items.mask, queries)
    batch = Binary(scores, same, others, None, scores.shape[:1])
    losses = direct_lists(batch, epsilon, direction, ndcg=False, k=0, reduction="none")
    return marked(losses, items.invalid)


# ---- operator: B batches (B, N, D) -> value (B,), gradient (B, N, D) -----------------------------


def _in_chunks(
    x: Tensor, label: Tensor, mask: Tensor | None, epsilon: float, sign: int, mean: bool
) -> tuple[Tensor, Tensor]:
    value, gradient = x.new_zeros(x.shape[0]), torch.zeros_like(x).contiguous()
    for b, (batch, total, slopes) in enumerate(zip(x, value, gradient, strict=True)):
        counts = None if mask is None else mask[b]
        live = torch.zeros_like(total)
        step = max(1, PAIRS // max(1, len(batch)))
        for start in range(0, len(batch), step):
            chunk = torch.arange(start, min(start + step, len(batch)), device=x.device)
            scores, same, others = lists_of(batch, label[b], counts, chunk)
            losses, _, slope = direct_ranking(scores, same, others, epsilon, sign, False, 0)
            total += losses.sum()
            live += (any_item(same & others) & any_item(~same & others)).sum()
            # scores = batch[chunk] batch^T is a function of the embeddings on both sides
            with unrounded(x.device.type):
                slopes += slope.T @ batch[start : start + step]
                slopes[start : start + step] += slope @ batch
        if mean:
            total /= live.clamp(min=1)
            slopes /= live.clamp(min=1)
    return value, gradient


retrieval = _native.operator(
    "retrieval(Tensor x, Tensor label, Tensor? mask, float epsilon, int sign, bool mean)"
    " -> (Tensor, Tensor)",
    pure=_in_chunks,
    native=_in_chunks,
    dtypes=_native.FLOATS,
    traceable=False,
)
