"""Direct loss minimisation for NDCG of graded relevance: the network is trained on 1 - NDCG of its
own ranking.

A ranking y has the score F(y) = (1/ideal) sum_i s_i T(rank of i), T(r) = 1/log2(1 + r) up to the
cutoff and 0 behind it: the discount of the metric itself. Sorting by s_i maximises it, and sorting
by s_i - s eps g_i maximises F + s eps Delta, g_i the gain of item i over the largest of its list:
both inferences are exact (docs/maths.md, "Graded relevance"). The pairwise F of `ranking` has no
such inference for more than two grades; that is why this loss has a name of its own.
"""

import math

import torch
from torch import Tensor

from evalgrad import _native
from evalgrad._grades import GAIN, Gain, Graded, graded_lists
from evalgrad._module import LossModule
from evalgrad._options import Direction, Reduction, checked
from evalgrad._rows import attach, exact_dtype, row_factor, working
from evalgrad.direct_loss.operators import SIGNS
from evalgrad.direct_loss.ranking import CUTOFF


@checked(k=CUTOFF, gain=GAIN)
def direct_graded_ndcg_loss(
    scores: Tensor,
    target: Tensor,
    *,
    k: int | None = None,
    gain: Gain = "linear",
    epsilon: float = 0.1,
    direction: Direction = "positive",
    mask: Tensor | None = None,
    item_weight: Tensor | None = None,
    dim: int | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """1 - NDCG of the scores, for graded relevance, with the direct loss gradient.

    With labels 0 and 1 its value equals that of `direct_ndcg_loss`, but its gradient differs,
    because it uses another score F of a ranking.

    Args:
        scores: ``(*, n)``, the scores by which the n items of each list are ranked; the leading
            dimensions are queries.
        target: the same shape, the grade of every item, a number of at least 0. A list of equal
            gains, whose order does not matter, is skipped: value 0, left out of the mean.
        k: use only the first k items (NDCG@k); None uses all. In the positive direction a list
            whose first k items gain nothing has no gradient (docs/direct_loss.md).
        gain: ``"linear"``, the grade itself, or ``"exponential"``, 2^grade - 1. Your own gains are
            grades with "linear".
        epsilon: how far, on the scale of the scores, y_direct moves an item of the highest gain;
            others move in proportion to their gains. `suggest_epsilon` returns a starting value.
        direction: ``"positive"`` moves away from a worse ranking, ``"negative"`` towards a better
            one; both cost the same.
        mask: bool, the same shape, True = keep; the other items are ignored. Use it for padding.
        item_weight: the same shape, factors >= 0 of the gains.
        dim: the dimension of the items; None is the last one. Pass ``dim=0`` to rank the scores
            ``(batch, classes)`` of a multilabel task per class, as scikit-learn and torchmetrics
            do.
        reduction: over lists ``"mean"`` | ``"sum"`` | ``"none"``: one value per list.

    Among items with equal scores, those with lower gain rank first.

    Example:
        >>> scores = torch.tensor([0.3, 0.1, 0.2], requires_grad=True)
        >>> loss = direct_graded_ndcg_loss(scores, torch.tensor([2, 1, 0]), epsilon=0.3)
        >>> loss.backward()
        >>> # y_direct sorts 0.3 - 0.3, 0.1 - 0.15 and 0.2: the last item comes first
        >>> round(loss.item(), 4), scores.grad
        (0.0498, tensor([-0.9352,  0.0000,  0.9352]))
    """
    batch = graded_lists(
        "direct_graded_ndcg_loss",
        scores,
        target,
        mask,
        dim=dim,
        gain=gain,
        item_weight=item_weight,
    )
    value, _, gradient = direct_graded(
        working(batch.rows),
        batch.gain,
        batch.mask,
        float(epsilon),
        SIGNS[direction],
        0 if k is None else k,
    )
    factor = row_factor(batch.rows, live_graded(batch), reduction, batch.invalid)
    return attach(batch.rows, value, gradient, reduction, factor=factor, shape=batch.shape)


class DirectGradedNDCGLoss(LossModule):
    """`direct_graded_ndcg_loss` as an `nn.Module`: ``loss(scores, target, mask)``. `item_weight`
    can be passed as a keyword.

    Args:
        k: use only the first k items (NDCG@k); None uses all. In the positive direction a list
            whose first k items gain nothing has no gradient (docs/direct_loss.md).
        gain: ``"linear"``, the grade itself, or ``"exponential"``, 2^grade - 1. Your own gains are
            grades with "linear".
        epsilon: how far, on the scale of the scores, y_direct moves an item of the highest gain;
            others move in proportion to their gains. `suggest_epsilon` returns a starting value.
        direction: ``"positive"`` moves away from a worse ranking, ``"negative"`` towards a better
            one; both cost the same.
        dim: the dimension of the items; None is the last one. Pass ``dim=0`` to rank the scores
            ``(batch, classes)`` of a multilabel task per class, as scikit-learn and torchmetrics
            do.
        reduction: over lists ``"mean"`` | ``"sum"`` | ``"none"``: one value per list.

    Example:
        >>> loss = DirectGradedNDCGLoss(k=10, epsilon=0.5)
        >>> scores, grades = torch.randn(4, 50, requires_grad=True), torch.randint(4, (4, 50))
        >>> loss(scores, grades).backward()
    """

    function = staticmethod(direct_graded_ndcg_loss)

    def __init__(
        self,
        *,
        k: int | None = None,
        gain: Gain = "linear",
        epsilon: float = 0.1,
        direction: Direction = "positive",
        dim: int | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(locals())


def live_graded(batch: Graded) -> Tensor:
    """Which lists have two different gains that count; the others are void."""
    return _live(batch.gain, batch.counts())


def _live(gain: Tensor, counts: Tensor) -> Tensor:
    # padded, so that a list without items has a largest gain
    highest = torch.nn.functional.pad(torch.where(counts, gain, 0.0), (1, 0))
    lowest = torch.nn.functional.pad(torch.where(counts, gain, math.inf), (1, 0), value=math.inf)
    return highest.amax(1) > lowest.amin(1)


def _pure(
    scores: Tensor, gain: Tensor, mask: Tensor | None, epsilon: float, sign: int, k: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Delta of y_w, Delta of y_direct, each (R,), and the direct loss gradient (R, n)."""
    counts = torch.ones_like(gain, dtype=torch.bool) if mask is None else mask
    live = _live(gain, counts)
    # a product of gain and weight may overflow
    nan = ((scores.isnan() | gain.isinf()) & counts).any(1) & live
    x = torch.where(counts & ~scores.isnan(), scores, -math.inf).to(exact_dtype(scores))
    top = torch.nn.functional.pad(gain, (1, 0)).amax(1, keepdim=True)
    g = gain / torch.where(top > 0, top, 1.0)
    T, best = _discounts(x, k), g.sort(1, descending=True).values
    ideal = (best * T).sum(1, keepdim=True)
    ideal = torch.where(ideal > 0, ideal, 1.0)
    model, direct = _rankings(x, g, counts, epsilon, sign)
    # Term by term against the best order, whose terms are then exactly 0.
    deltas = [((best - g.gather(1, y)) * T / ideal).sum(1) for y in (model, direct)]
    before, after = (torch.zeros_like(T).scatter(1, y, T) for y in (model, direct))
    gradient = sign / epsilon * (after - before) / ideal + 0.0  # no -0
    gradient = torch.where(live[:, None] & counts, gradient, 0.0)
    gradient = torch.where(nan[:, None] & counts, math.nan, gradient)
    value, reached = (torch.where(nan, math.nan, torch.where(live, d, 0.0)) for d in deltas)
    return value.to(scores.dtype), reached.to(scores.dtype), gradient.to(scores.dtype)


def _discounts(x: Tensor, k: int) -> Tensor:
    """T of the places of every list, ``(R, n)``; k = 0: no cutoff."""
    rank = torch.arange(1, x.shape[1] + 1, device=x.device)
    T = 1 / torch.log2(1 + rank.to(x.dtype))
    return (T.masked_fill(rank > k, 0.0) if k else T).expand_as(x)


def _rankings(
    x: Tensor, g: Tensor, counts: Tensor, epsilon: float, sign: int
) -> tuple[Tensor, Tensor]:
    """y_w and y_direct: the items from the top, those that do not count last.

    Of equally good rankings the one that gains less is taken, as in y_w. Where a score is too
    large for the shift to show, infinite ones among them, equal scores still shift by their gains:
    those orders are the presorted ones.
    """
    rising = torch.where(counts, g, math.inf).argsort(dim=1, stable=True)
    model = _sorted(rising, x)
    shifted = x - sign * epsilon * g
    if sign > 0:
        return model, _sorted(rising, shifted)
    falling = torch.where(counts, -g, math.inf).argsort(dim=1, stable=True)
    return model, _sorted(_sorted(falling, x), shifted)


def _sorted(order: Tensor, key: Tensor) -> Tensor:
    """`order` by decreasing keys; of equal keys it stays."""
    by_key = key.gather(1, order).argsort(dim=1, descending=True, stable=True)
    return order.gather(1, by_key)


def _native_rows(
    scores: Tensor, gain: Tensor, mask: Tensor | None, epsilon: float, sign: int, k: int
) -> tuple[Tensor, Tensor, Tensor]:
    results = _empty(scores)
    lists, options = (scores, gain, mask, *scores.shape), (epsilon, sign, k)
    _native.call("direct_graded", *lists, *options, *results)
    return results


def _empty(scores: Tensor, *_: object) -> tuple[Tensor, Tensor, Tensor]:
    value, gradient = _native.empty_results(scores)
    return value, torch.empty_like(value), gradient


direct_graded = _native.operator(
    "direct_graded(Tensor scores, Tensor gain, Tensor? mask, float epsilon, int sign, int k)"
    # Delta of y_w, Delta of y_direct, direct loss gradient; k = 0: no cutoff
    " -> (Tensor, Tensor, Tensor)",
    pure=_pure,
    native=_native_rows,
    fake=_empty,
    dtypes=_native.FLOATS,
)
