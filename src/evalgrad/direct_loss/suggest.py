"""A first value for the epsilon of the direct ranking losses, from a batch."""

import math

import torch
from torch import Tensor

from evalgrad import _checks
from evalgrad._masking import working_dtype
from evalgrad.direct_loss.arguments import SIGNS, as_rows, check_lists, counts_of
from evalgrad.direct_loss.operators import direct_ranking

HALVINGS = 16  # of the bracket exp(+-25) around the spread of the scores: epsilon to 0.1 %


def suggest_epsilon(
    scores: Tensor,
    target: Tensor,
    *,
    metric: str = "average_precision",
    k: int | None = None,
    direction: str = "positive",
    share: float = 0.1,
    mask: Tensor | None = None,
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

    Example:
        >>> scores = torch.linspace(0, 1, 100)
        >>> target = torch.arange(100) % 5 == 0
        >>> wide, narrow = suggest_epsilon(10 * scores, target), suggest_epsilon(scores, target)
        >>> round(wide / narrow, 1)
        10.0
    """
    function = "suggest_epsilon"
    _checks.check_option(function, "metric", metric, ("average_precision", "ndcg"))
    _checks.check_option(function, "direction", direction, tuple(SIGNS))
    _checks.check_number(function, "share", share, above=0, repair="0.1 is a start.")
    if share >= 1:
        _checks.fail(
            ValueError,
            function,
            "share",
            "below 1",
            repr(share),
            "At 1 y_direct has forgotten the scores.",
        )
    if k is not None:
        _checks.check_integer(
            function, "k", k, low=1, repair="Pass the number of places that count; None counts all."
        )
    check_lists(function, scores, target, mask)
    x, labels = as_rows(scores).detach(), as_rows(target == 1)
    counts = torch.ones_like(labels) if mask is None else as_rows(mask)
    lists = (x.to(working_dtype(x)), labels, counts)
    options = (SIGNS[direction], metric == "ndcg", 0 if k is None else k)
    return _bisect(lists, options, share)


def _bisect(
    lists: tuple[Tensor, Tensor, Tensor], options: tuple[int, bool, int], share: float
) -> float:
    spread, whole_way = _spread(*lists), _whole_way(*lists, *options)
    if not (spread > 0 and 0 < whole_way < math.inf):  # NaN fails this too
        got = f"scores spread over {spread:g} and a task loss that can change by {whole_way:g}"
        repair = (
            "Take a batch with positives and negatives, neither all tied nor in the extreme order"
            " already."
        )
        _checks.fail(
            ValueError,
            "suggest_epsilon",
            "scores",
            "lists that leave something to move",
            got,
            repair,
        )
    low, high = math.log(spread) - 25.0, math.log(spread) + 25.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        reached = _moved(*lists, math.exp(middle), *options) >= share * whole_way
        low, high = (low, middle) if reached else (middle, high)
    return math.exp(high)


def _moved(
    scores: Tensor, target: Tensor, mask: Tensor, epsilon: float, sign: int, ndcg: bool, k: int
) -> float:
    """Sum over the lists of |Delta(y_direct) - Delta(y_w)|."""
    value, reached, _ = direct_ranking(scores, target, mask, epsilon, sign, ndcg, k)
    return float((reached - value).abs().sum())


def _whole_way(
    scores: Tensor, target: Tensor, mask: Tensor, sign: int, ndcg: bool, k: int
) -> float:
    """Sum over the lists of |Delta(extreme ranking) - Delta(y_w)|; the extremes are those of scores
    that know the target.
    """
    positive, negative = counts_of(target, mask)
    value = direct_ranking(scores, target, mask, 1.0, sign, ndcg, k)[0]
    extreme = direct_ranking((-sign * target.to(scores.dtype)), target, mask, 1.0, -sign, ndcg, k)[
        0
    ]
    return float(torch.where(positive.any(1) & negative.any(1), extreme - value, 0.0).abs().sum())


def _spread(scores: Tensor, target: Tensor, mask: Tensor) -> float:
    counted = scores[mask & scores.isfinite()]
    return float(counted.max() - counted.min()) if counted.numel() else 0.0
