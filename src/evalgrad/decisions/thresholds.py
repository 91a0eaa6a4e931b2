"""The threshold of binary scores that is best for a metric on labelled data, e.g. validation."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from evalgrad._binary_inputs import lists
from evalgrad._errors import fail
from evalgrad._labels import readable
from evalgrad._options import checked, number, one_of

Metric = Literal[
    "fbeta", "jaccard", "precision_at_recall", "recall_at_precision", "sensitivity_at_specificity"
]
ROUNDING = 1e-9  # of `rate * count`, so that a rate reached exactly is reached
AT_LEAST = number(above=0, at_most=1, none=True, repair="Pass a fraction, not a percentage.")


def _fbeta(tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor, beta: float) -> Tensor:
    return (1 + beta**2) * tp / ((1 + beta**2) * tp + beta**2 * fn + fp).clamp(min=1e-300)


def _jaccard(tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor, beta: float) -> Tensor:
    return tp / (tp + fp + fn).clamp(min=1)


def _precision(tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor, beta: float) -> Tensor:
    return tp / (tp + fp).clamp(min=1)


def _recall(tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor, beta: float) -> Tensor:
    return tp / (tp + fn).clamp(min=1)


# metric -> what is made as large as possible; what must be at least `at_least`: part and whole
BEST: dict[str, Callable[..., Tensor]] = {
    "fbeta": _fbeta,
    "jaccard": _jaccard,
    "precision_at_recall": _precision,
    "recall_at_precision": _recall,
    "sensitivity_at_specificity": _recall,
}
HELD: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    "precision_at_recall": lambda tp, fp, fn, tn: (tp, tp + fn),
    "recall_at_precision": lambda tp, fp, fn, tn: (tp, tp + fp),
    "sensitivity_at_specificity": lambda tp, fp, fn, tn: (tn, tn + fp),
}


@checked(metric=one_of(*BEST), at_least=AT_LEAST)
def best_threshold(
    scores: Tensor,
    target: Tensor,
    *,
    metric: Metric = "fbeta",
    beta: float = 1.0,
    at_least: float | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The threshold t with the best value of the metric for the prediction ``scores > t``.

    Call it on validation data, never on test data; with few positives the threshold fits their
    noise.

    Args:
        scores: any shape; all items are one list.
        target: the same shape, 1 or True for positives.
        metric: ``"fbeta"`` (F1, Dice), ``"jaccard"`` (IoU over all items), or the first of
            ``"precision_at_recall"``, ``"recall_at_precision"``, ``"sensitivity_at_specificity"``
            given the second.
        beta: of ``"fbeta"``: recall counts beta times as much as precision.
        at_least: the recall, precision or specificity to reach.
        mask: bool, the same shape, True = keep.

    Returns:
        A float64 scalar between two neighbouring scores, or the lower of them if their dtype has no
        number between; inf (predict nothing) if no threshold reaches `at_least` or there is no
        positive; -inf means predict everything.

    Example:
        >>> best_threshold(torch.tensor([0.9, 0.4, 0.3, 0.1]), torch.tensor([1, 1, 0, 0]))
        tensor(0.3500, dtype=torch.float64)
    """
    if (metric in HELD) != (at_least is not None):
        must = f"a fraction for {metric!r}" if metric in HELD else f"None for {metric!r}"
        repair = "E.g. metric='precision_at_recall', at_least=0.9."
        fail(ValueError, "best_threshold", "at_least", must, repr(at_least), repair)
    x, positive = _counted(scores, target, mask)
    x, order = x.sort(descending=True)
    hits = positive[order].double().cumsum(0)
    tp = torch.cat([hits.new_zeros(1), hits])  # of the first k predicted, k = 0 .. n
    fp = torch.arange(len(tp), dtype=tp.dtype, device=tp.device) - tp
    cuts = (tp, fp, tp[-1] - tp, fp[-1] - fp)
    value = BEST[metric](*cuts, beta)
    if at_least is not None:
        part, whole = HELD[metric](*cuts)
        value = torch.where(part >= at_least * whole - ROUNDING, value, -1.0)
    return _cut(x, value, scores.dtype).masked_fill(x.isnan().any(), torch.nan)


def _counted(scores: Tensor, target: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """The items that count, in one list of float64 scores, and which of them are positive."""
    items = lists("best_threshold", scores, target, mask, dim=-1)
    x, positive = items.rows.detach().flatten().double(), items.positive.flatten()
    if items.mask is not None:
        counts = items.mask.flatten()
        x, positive = x[counts], positive[counts]
    if readable(x) and bool(x.isnan().any()):
        repair = "Mask such items with `mask=~scores.isnan()`."
        fail(ValueError, "best_threshold", "scores", "without NaN", "NaN", repair)
    return x, positive


def _cut(x: Tensor, value: Tensor, dtype: torch.dtype) -> Tensor:
    """The threshold behind the k items with the best value; ties are not cut apart."""
    ends = torch.cat([x.new_full((1,), torch.inf), x, x.new_full((1,), -torch.inf)])
    value = torch.where(ends[:-1] > ends[1:], value, -1.0)
    k = value.argmax()
    if value[k] <= 0:
        return x.new_full((), torch.inf)
    above, below = ends[k], ends[k + 1]
    middle = (above + below) / 2
    # Compared with a threshold, scores round it to their dtype: it must not reach the upper one.
    between = (middle.to(dtype) < above) & (middle >= below)
    return torch.where(between & below.isfinite(), middle, below)
