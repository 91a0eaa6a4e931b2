"""Metrics of scores cut at a threshold: F-beta at a given one, precision, recall and areas over all
of them.

All take `scores` ``(*, n)`` and `target` of the same shape, 1 or True for positives; the last axis
holds the items of a list. Ties count against the model: a negative tied with a positive ranks above
it, and at a fixed threshold a positive on it is missed while a negative on it is a false alarm.
`mask` (bool, True = counts) leaves items out as if absent. A list that lacks the class its metric
divides by is left out of the mean and is NaN under ``reduction="none"``; so is the mean of nothing.
A NaN score that counts makes its list NaN. Values are float64, from integer counts.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from evalgrad._errors import fail
from evalgrad._inputs import lists
from evalgrad._options import number, one_of
from evalgrad._ranking import against_the_model
from evalgrad.metrics.ranking import mean_over_lists

ROUNDING = 1e-9  # of `rate * count`, so that a rate reached exactly is reached


def fbeta_score(
    scores: Tensor,
    target: Tensor,
    *,
    beta: float = 1.0,
    threshold: float = 0.0,
    mask: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """F-beta of the rule score > threshold: (1 + beta^2) tp / ((1 + beta^2) tp + beta^2 fn + fp).
    Threshold 0 is for logits.

    Example:
        >>> fbeta_score(torch.tensor([2.0, 1.0, -1.0]), torch.tensor([1, 0, 1]))
        tensor(0.5000, dtype=torch.float64)
    """
    number(above=0, repair="Use 1.0 for F1.")("fbeta_score", "beta", beta)
    positive, negative, nan = _classes("fbeta_score", scores, target, mask, reduction)
    tp = (positive & (scores > threshold)).sum(-1).double()
    fp = (negative & (scores >= threshold)).sum(-1)
    value = (1 + beta**2) * tp / (tp + fp + beta**2 * positive.sum(-1))
    return mean_over_lists(value.masked_fill(nan, torch.nan), positive.any(-1), reduction)


def precision_at_recall(
    scores: Tensor,
    target: Tensor,
    *,
    recall: float,
    mask: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Highest precision of any threshold whose recall is at least `recall`, 0 < recall <= 1.

    Example:
        >>> precision_at_recall(torch.tensor([0.9, 0.8, 0.7]), torch.tensor([1, 0, 1]), recall=1.0)
        tensor(0.6667, dtype=torch.float64)
    """
    _check_rate("precision_at_recall", "recall", recall)
    tp, fp, cut = _curve("precision_at_recall", scores, target, mask, reduction)
    reached = cut & ~(tp < recall * tp[..., -1:] - ROUNDING)
    value = torch.where(reached, tp / (tp + fp).clamp_min(1), 0).amax(-1)
    return mean_over_lists(value, tp[..., -1] != 0, reduction)


def recall_at_precision(
    scores: Tensor,
    target: Tensor,
    *,
    precision: float,
    mask: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Highest recall of any threshold whose precision is at least `precision`; 0 where no threshold
    reaches it.

    Example:
        >>> scores, target = torch.tensor([0.9, 0.8, 0.7]), torch.tensor([1, 0, 1])
        >>> recall_at_precision(scores, target, precision=0.9)
        tensor(0.5000, dtype=torch.float64)
    """
    _check_rate("recall_at_precision", "precision", precision)
    tp, fp, cut = _curve("recall_at_precision", scores, target, mask, reduction)
    reached = cut & ~(tp < precision * (tp + fp) - ROUNDING)
    value = torch.where(reached, tp / tp[..., -1:].clamp_min(1), 0).amax(-1)
    return mean_over_lists(value, tp[..., -1] != 0, reduction)


def roc_auc(
    scores: Tensor, target: Tensor, *, mask: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """Share of the (positive, negative) pairs in the right order; a tied pair is in the wrong
    order.

    Example:
        >>> roc_auc(torch.tensor([0.9, 0.8, 0.7]), torch.tensor([1, 0, 1]))
        tensor(0.5000, dtype=torch.float64)
    """
    tp, fp, _ = _curve("roc_auc", scores, target, mask, reduction)
    # Negatives come first among ties, so the true positives ahead of a negative are those strictly
    # above it.
    ordered = (tp[..., 1:] * fp.diff(dim=-1)).sum(-1)
    pairs = tp[..., -1] * fp[..., -1]
    return mean_over_lists(ordered / pairs, pairs != 0, reduction)


def pr_auc(
    scores: Tensor, target: Tensor, *, mask: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """Area of the points (r, p) that some threshold reaches with recall >= r and precision >= p.

    That is the integral of `recall_at_precision` over the precision, and of `precision_at_recall`
    over the recall: the interpolated precision-recall curve. Average precision is the same sum
    without interpolation.

    Example:
        >>> pr_auc(torch.tensor([0.9, 0.8, 0.7]), torch.tensor([1, 0, 1]))
        tensor(0.8333, dtype=torch.float64)
    """
    tp, fp, cut = _curve("pr_auc", scores, target, mask, reduction)
    precision = torch.where(cut, tp / (tp + fp).clamp_min(1), 0)
    # best precision at this recall or a higher one
    best = precision.flip(-1).cummax(-1).values.flip(-1)
    return mean_over_lists(
        (best[..., 1:] * tp.diff(dim=-1)).sum(-1) / tp[..., -1], tp[..., -1] != 0, reduction
    )


def _curve(
    function: str, scores: Tensor, target: Tensor, mask: Tensor | None, reduction: str
) -> tuple[Tensor, Tensor, Tensor]:
    """``(*, n + 1)`` true and false positives down the ranking, from none on, NaN after a NaN
    score; and where a threshold can cut it: behind the last item of a tie.
    """
    positive, negative, nan = _classes(function, scores, target, mask, reduction)
    ranked, order = against_the_model(scores, positive, mask)
    tp, fp = (
        F.pad(kind.gather(-1, order).cumsum(-1).double(), (1, 0)) for kind in (positive, negative)
    )
    tp, fp = (count.masked_fill(nan.unsqueeze(-1), torch.nan) for count in (tp, fp))
    cut = F.pad(ranked[..., :-1] != ranked[..., 1:], (1, 1), value=True)
    return tp, fp, cut[..., : tp.shape[-1]]


def _classes(
    function: str, scores: Tensor, target: Tensor, mask: Tensor | None, reduction: str
) -> tuple[Tensor, Tensor, Tensor]:
    """The counted positives, the counted negatives, and the lists with a counted NaN."""
    one_of("mean", "none")(function, "reduction", reduction)
    found = lists(function, scores, target, mask)
    positive, negative = found.counted()
    nan = found.rows.isnan() if found.mask is None else found.rows.isnan() & found.mask
    shape = (*found.shape, positive.shape[-1])
    return positive.reshape(shape), negative.reshape(shape), nan.any(-1).reshape(found.shape)


def _check_rate(function: str, argument: str, value: float) -> None:
    if not 0 < value <= 1:
        fail(
            ValueError,
            function,
            argument,
            "in (0, 1]",
            repr(value),
            "Give it as a fraction, not in per cent.",
        )
