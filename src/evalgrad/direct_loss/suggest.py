"""A first value for the epsilon of the direct losses, from a batch."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from evalgrad._binary_inputs import Binary, lists
from evalgrad._errors import fail
from evalgrad._grades import GAIN, Gain, Graded, graded_lists
from evalgrad._options import Axes, Direction, axes, checked, number, one_of
from evalgrad._ranking import descending
from evalgrad._rows import working
from evalgrad.direct_loss.graded import direct_graded, live_graded
from evalgrad.direct_loss.jaccard import direct_jaccard, jaccard_loss
from evalgrad.direct_loss.operators import SIGNS, direct_ranking
from evalgrad.direct_loss.ranking import CUTOFF, live_lists
from evalgrad.direct_loss.zero_one import flipped, margins

BRACKET = 25.0  # epsilon is within exp(+-25) times the spread of the scores
HALVINGS = 16  # of that: epsilon to 0.1 %

Metric = Literal["average_precision", "ndcg", "graded_ndcg", "jaccard", "zero_one"]
# Delta of y_w and of y_direct in every list, from the batch, epsilon and the sign of the direction
Deltas = Callable[..., tuple[Tensor, Tensor]]


@checked(
    metric=one_of("average_precision", "ndcg", "graded_ndcg", "jaccard", "zero_one"),
    k=CUTOFF,
    gain=GAIN,
    dim=axes,
    share=number(above=0, below=1, repair="Start with 0.1; at 1, y_direct ignores the scores."),
)
def suggest_epsilon(
    scores: Tensor,
    target: Tensor,
    *,
    metric: Metric = "average_precision",
    k: int | None = None,
    gain: Gain = "linear",
    direction: Direction = "positive",
    share: float = 0.1,
    mask: Tensor | None = None,
    dim: Axes = None,
) -> float:
    """An epsilon at which y_direct goes a given fraction of the way from the model's output to the
    extreme one.

    As epsilon -> 0 the direct gradient is unbiased, but y_direct = y_w in most lists, which have no
    gradient, and the others have a factor 1/epsilon. As epsilon -> infinity y_direct no longer
    depends on the scores. In between, its task loss changes monotonically from that of the model's
    output to its extreme (the worst output, or the perfect one in the negative direction), whatever
    the scale of the scores and the sizes of the classes. `share` is the fraction of that way, which
    has no unit; its epsilon is found by bisection. Ties, which any epsilon parts, are not counted.

    Call it once, before training, on a large batch, and keep the value: because of the factor
    1/epsilon, a new epsilon for every batch would change the step size all the time.

    Args:
        scores: ``(*, n)``, a batch of lists as the loss sees them.
        target: the same shape, 1 or True for positives; grades for "graded_ndcg". If the batch has
            no positives (or nothing else), the item at rank sqrt(n) of each list is used as its
            only positive, which gives only the order of magnitude.
        metric: the loss that it is for, ``"average_precision"``, ``"ndcg"``, ``"graded_ndcg"``,
            ``"jaccard"`` or ``"zero_one"``.
        k: cutoff of "ndcg" or "graded_ndcg", None for none.
        gain: of "graded_ndcg".
        direction: of the loss, ``"positive"`` or ``"negative"``.
        share: fraction of the way, above 0 and below 1.
        mask: bool, the same shape, True = keep.
        dim: the dimension or dimensions of the items; None is the last one.

    Example:
        >>> scores = torch.linspace(0, 1, 100)
        >>> target = torch.arange(100) % 5 == 0
        >>> wide, narrow = suggest_epsilon(10 * scores, target), suggest_epsilon(scores, target)
        >>> round(wide / narrow, 1)
        10.0
    """
    if k is not None and metric not in ("ndcg", "graded_ndcg"):
        repair = 'Leave it out, or pass metric="ndcg".'
        fail(ValueError, "suggest_epsilon", "k", f"None for {metric!r}", repr(k), repair)
    batch: Binary | Graded
    if metric == "graded_ndcg":
        batch = graded_lists("suggest_epsilon", scores, target, mask, dim=dim, gain=gain)
    else:
        batch = lists("suggest_epsilon", scores, target, mask, dim=dim)
    batch = batch._replace(rows=working(batch.rows))
    deltas, sign = _deltas(metric, k), SIGNS[direction]
    live = live_graded(batch) if isinstance(batch, Graded) else live_lists(batch)
    if not bool(live.any()) and _way(batch, deltas, metric, sign)[1] == 0:
        batch = _imagined(batch)
    return _bisect(batch, deltas, metric, sign, share)


def _bisect(
    batch: Binary | Graded, deltas: Deltas, metric: Metric, sign: int, share: float
) -> float:
    scale, (start, way) = _scale(batch, metric), _way(batch, deltas, metric, sign)
    if not (scale > 0 and 0 < way < math.inf):  # NaN fails this too
        got = f"scores spread over {scale:g} and a task loss that can change by {way:g}"
        must = "lists whose task loss can change"
        repair = "Take a batch that is neither all tied nor in the extreme order already"
        other = scale > 0 and way == 0 and _way(batch, deltas, metric, -sign)[1] > 0
        repair += "; in the other direction there is a way to go." if other else "."
        fail(ValueError, "suggest_epsilon", "scores", must, got, repair)
    low, high = math.log(scale) - BRACKET, math.log(scale) + BRACKET
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        _, moved = deltas(batch, math.exp(middle), sign)
        reached = float((moved - start).abs().sum()) >= share * way
        low, high = (low, middle) if reached else (middle, high)
    return math.exp(high)


def _way(batch: Binary | Graded, deltas: Deltas, metric: Metric, sign: int) -> tuple[Tensor, float]:
    """Delta where the lists start, and the sum of |Delta(extreme output) - start|; the extremes are
    those of scores that know the target.

    The start is y_direct of a vanishing epsilon: the model's output, but what ties has any epsilon.
    """
    _, start = deltas(batch, (_scale(batch, metric) or 1.0) * math.exp(-BRACKET), sign)
    top = batch.gain.amax().clamp(min=1) if isinstance(batch, Graded) else 1.0
    relevance = batch.gain / top if isinstance(batch, Graded) else 2.0 * batch.positive - 1
    extreme, _ = deltas(batch._replace(rows=(-sign * relevance).to(batch.rows)), 1.0, sign)
    return start, float((extreme - start).abs().sum())


def _scale(batch: Binary | Graded, metric: Metric) -> float:
    """How far scores lie apart; decisions compare them with 0."""
    counted = batch.rows.isfinite() if batch.mask is None else batch.mask & batch.rows.isfinite()
    scores = batch.rows[counted]
    if not scores.numel():
        return 0.0
    if metric in ("jaccard", "zero_one"):
        return float(scores.abs().max())
    return float(scores.max() - scores.min())


def _imagined(batch: Binary | Graded) -> Binary | Graded:
    """The item at the rank sqrt(n) of each ranking is its only positive: halfway down, as 1/rank
    and rankings of networks that start to learn go.
    """
    order, counts = descending(batch.rows, batch.mask), torch.ones_like(batch.rows)
    number = (counts if batch.mask is None else batch.mask).sum(1, keepdim=True)
    place = torch.arange(1, order.shape[1] + 1, device=order.device)
    relevant = torch.zeros_like(order).scatter(1, order, (place == number.sqrt().round()).long())
    if isinstance(batch, Graded):
        return batch._replace(gain=relevant.to(batch.gain))
    return batch._replace(positive=relevant > 0)


# ---- Delta of y_w and of y_direct, of each loss --------------------------------------------------


def _deltas(metric: Metric, k: int | None) -> Deltas:
    if metric == "jaccard":
        return _jaccard_deltas
    if metric == "zero_one":
        return _zero_one_deltas
    cutoff = 0 if k is None else k
    if metric == "graded_ndcg":
        return lambda batch, epsilon, sign: direct_graded(
            batch.rows, batch.gain, batch.mask, epsilon, sign, cutoff
        )[:2]
    options = (metric == "ndcg", cutoff)
    return lambda batch, epsilon, sign: direct_ranking(
        batch.rows, batch.positive, batch.mask, epsilon, sign, *options
    )[:2]


def _jaccard_deltas(batch: Binary, epsilon: float, sign: int) -> tuple[Tensor, Tensor]:
    foreground, background = batch.counted()
    counts = foreground | background
    value, gradient = direct_jaccard(batch.rows, batch.positive, counts, epsilon, sign)
    direct = (counts & (batch.rows > 0)) ^ (gradient != 0)
    return value, jaccard_loss(direct, foreground).to(value.dtype)


def _zero_one_deltas(batch: Binary, epsilon: float, sign: int) -> tuple[Tensor, Tensor]:
    positive, negative = batch.counted()
    margin, _ = margins(batch)
    counts = (positive | negative).to(margin.dtype)
    wrong = torch.where(margin.isnan(), margin, (margin <= 0).to(margin.dtype))
    moved = torch.where(flipped(margin, epsilon, sign), 1 - wrong, wrong)
    number = counts.sum(1).clamp(min=1)
    value, reached = (torch.where(counts > 0, x, 0.0).sum(1) / number for x in (wrong, moved))
    return value, reached
