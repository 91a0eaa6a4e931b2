"""A first value for the epsilon of the direct ranking losses, from a batch."""

import math
from typing import Literal

import torch
from torch import Tensor

from evalgrad._errors import fail
from evalgrad._inputs import Binary, lists
from evalgrad._options import Direction, checked, number, one_of
from evalgrad._rows import working
from evalgrad.direct_loss.operators import SIGNS, direct_ranking
from evalgrad.direct_loss.ranking import CUTOFF, live_lists

HALVINGS = 16  # of the bracket exp(+-25) around the spread of the scores: epsilon to 0.1 %


@checked(
    metric=one_of("average_precision", "ndcg"),
    k=CUTOFF,
    share=number(above=0, below=1, repair="0.1 is a start; at 1 y_direct forgets the scores."),
)
def suggest_epsilon(
    scores: Tensor,
    target: Tensor,
    *,
    metric: Literal["average_precision", "ndcg"] = "average_precision",
    k: int | None = None,
    direction: Direction = "positive",
    share: float = 0.1,
    mask: Tensor | None = None,
    dim: int | None = None,
) -> float:
    """An epsilon at which y_direct goes a given share of the way from the model's ranking to the
    extreme one.

    As epsilon -> 0 the direct gradient is unbiased, but y_direct = y_w in most lists and the others
    carry a factor 1/epsilon: no signal, or noise. As epsilon -> infinity y_direct forgets the
    scores. In between, its task loss moves monotonically from that of the model's ranking to its
    extreme (the worst ranking, or the perfect one in the negative direction), whatever the scale of
    the scores and the sizes of the classes; so the share of that way is a dial without a unit, and
    bisection finds its epsilon.

    Args:
        scores: ``(*, n)``, a batch of lists as the loss sees them.
        target: the same shape, 1 or True for positives.
        metric: ``"average_precision"`` or ``"ndcg"``.
        k: cutoff of NDCG, None for none.
        direction: of the loss, ``"positive"`` or ``"negative"``.
        share: of the way, above 0 and below 1.
        mask: bool, the same shape, True = counts.
        dim: the axis of the items; None is the last one.

    Example:
        >>> scores = torch.linspace(0, 1, 100)
        >>> target = torch.arange(100) % 5 == 0
        >>> wide, narrow = suggest_epsilon(10 * scores, target), suggest_epsilon(scores, target)
        >>> round(wide / narrow, 1)
        10.0
    """
    batch = lists("suggest_epsilon", scores, target, mask, dim=dim)
    batch = batch._replace(rows=working(batch.rows))
    options = (SIGNS[direction], metric == "ndcg", 0 if k is None else k)
    return _bisect(batch, options, share)


def _bisect(batch: Binary, options: tuple[int, bool, int], share: float) -> float:
    spread, whole_way = _spread(batch), _whole_way(batch, *options)
    if not (spread > 0 and 0 < whole_way < math.inf):  # NaN fails this too
        got = f"scores spread over {spread:g} and a task loss that can change by {whole_way:g}"
        must = "lists that leave something to move"
        repair = (
            "Take a batch with positives and negatives, neither all tied nor in the extreme order"
            " already."
        )
        fail(ValueError, "suggest_epsilon", "scores", must, got, repair)
    low, high = math.log(spread) - 25.0, math.log(spread) + 25.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        reached = _moved(batch, math.exp(middle), *options) >= share * whole_way
        low, high = (low, middle) if reached else (middle, high)
    return math.exp(high)


def _moved(batch: Binary, epsilon: float, sign: int, ndcg: bool, k: int) -> float:
    """Sum over the lists of |Delta(y_direct) - Delta(y_w)|."""
    items = (batch.rows, batch.positive, batch.mask)
    value, reached, _ = direct_ranking(*items, epsilon, sign, ndcg, k)
    return float((reached - value).abs().sum())


def _whole_way(batch: Binary, sign: int, ndcg: bool, k: int) -> float:
    """Sum over the lists of |Delta(extreme ranking) - Delta(y_w)|; the extremes are those of scores
    that know the target.
    """
    labels = (batch.positive, batch.mask)
    value, *_ = direct_ranking(batch.rows, *labels, 1.0, sign, ndcg, k)
    knowing = -sign * batch.positive.to(batch.rows.dtype)
    extreme, *_ = direct_ranking(knowing, *labels, 1.0, -sign, ndcg, k)
    return float(torch.where(live_lists(batch), extreme - value, 0.0).abs().sum())


def _spread(batch: Binary) -> float:
    counted = batch.rows.isfinite() if batch.mask is None else batch.mask & batch.rows.isfinite()
    scores = batch.rows[counted]
    return float(scores.max() - scores.min()) if scores.numel() else 0.0
