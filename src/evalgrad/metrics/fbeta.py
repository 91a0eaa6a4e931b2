"""F-beta of decisions: by a threshold, binary or multi-label, or for the best of C classes."""

from collections.abc import Mapping
from math import nan
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from evalgrad._binary_inputs import lists
from evalgrad._errors import describe, fail
from evalgrad._inputs import floating, plain, samples
from evalgrad._labels import IGNORED, UNDECLARED
from evalgrad._options import checked, number, one_of
from evalgrad._rows import exact_dtype, working
from evalgrad.metrics.class_counts import class_counts
from evalgrad.metrics.curves import Ties, broken, mean, settled

Average = Literal["mean", "micro", "weighted", "none"]


@checked(
    reduction=one_of("mean", "micro", "weighted", "none"),
    threshold=number(repair="Use 0 for logits and 0.5 for probabilities."),
)
def fbeta_score(
    scores: Tensor,
    target: Tensor,
    *,
    beta: float = 1.0,
    threshold: float = 0.0,
    dim: int | None = None,
    mask: Tensor | None = None,
    ignore_index: int | None = None,
    ties: Ties = "standard",
    zero_division: float = nan,
    reduction: Average = "mean",
) -> Tensor:
    """F-beta: (1 + beta^2) tp / ((1 + beta^2) tp + beta^2 fn + fp).

    For lists, `target` has the shape of `scores`, and an item is predicted positive if its score is
    above the threshold: binary ``(n,)``, multilabel ``(N, C)`` with ``dim=0``. For classes,
    `scores` are ``(N, C, *)`` and `target` holds class indices ``(N, *)``; the class with the
    highest score is predicted, and every class is a list of all samples.

    Args:
        scores: for lists, any shape, by default with one list along the last dimension; for classes
            ``(N, C, *)``.
        target: 1 or True for positives; or class indices.
        beta: recall counts beta times as much as precision.
        threshold: for lists; 0 for logits, 0.5 for probabilities.
        dim: for lists, the dimension of the items.
        mask: for lists, bool, the shape of `scores`, True = keep.
        ignore_index: for classes, the label of samples to ignore.
        ties: for lists. With ``"standard"`` a score equal to the threshold is predicted negative;
            with ``"worst"`` it counts as wrong: a positive is missed, a negative is a false alarm.
        zero_division: value of 0/0, neither positives nor predictions; NaN leaves it out of the
            mean.
        reduction: ``"mean"`` over lists or classes (macro), ``"weighted"`` by their positives,
            ``"micro"`` over all decisions pooled, or ``"none"``.

    Returns:
        float64. A list that is entirely masked is left out of the mean, and NaN with "none"; the
        mean of no list is NaN. A NaN score makes its list NaN, unless it is masked; with classes,
        it makes all of them NaN.

    Example:
        >>> fbeta_score(torch.tensor([2.0, 1.0, -1.0]), torch.tensor([1, 0, 1]))
        tensor(0.5000, dtype=torch.float64)
        >>> logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [3.0, 0.0, 1.0]])
        >>> fbeta_score(logits, torch.tensor([0, 1, 2]), reduction="none")
        tensor([0.6667, 1.0000, 0.0000], dtype=torch.float64)
    """
    function = "fbeta_score"
    scores, target = floating(function, "scores", scores), plain(function, "target", target)
    if _holds_classes(scores, target):
        given = {"threshold": threshold or None, "dim": dim, "mask": mask}
        _refuse(given, "class indices", "Use `ignore_index` to ignore samples.")
        _refuse({"ties": None if ties == "standard" else ties}, "class indices", "Leave it out.")
        counts = _of_classes(function, scores, target, ignore_index)
    else:
        repair = "Pass a `mask`, e.g. `mask=target != 255`."
        _refuse({"ignore_index": ignore_index}, "a label for every score", repair)
        counts = _of_lists(function, scores, target, mask, dim, threshold, ties)
    return _averaged(counts, beta, zero_division, reduction)


class Counts(NamedTuple):
    """Decisions of R lists, or of R classes."""

    counts: Tensor  # (R, 3): right, predicted, true
    void: Tensor  # (R,) bool: nothing counts
    broken: Tensor  # (R,) bool: NaN
    shape: torch.Size  # under "none"


def _holds_classes(scores: Tensor, target: Tensor) -> bool:
    """Whether `target` lacks the axis of the classes, or has one entry there."""
    if scores.ndim < 2 or scores.shape[1] < 2:
        return False
    return target.ndim == scores.ndim - 1 or (target.ndim == scores.ndim and target.shape[1] == 1)


def _refuse(options: Mapping[str, object], beside: str, repair: str) -> None:
    for argument, value in options.items():
        if value is not None:
            must = f"left out with a `target` of {beside}"
            fail(ValueError, "fbeta_score", argument, must, describe(value), repair)


def _of_lists(
    function: str,
    scores: Tensor,
    target: Tensor,
    mask: Tensor | None,
    dim: int | None,
    threshold: float,
    ties: Ties,
) -> Counts:
    given = lists(function, scores, target, mask, dim=dim)
    positive, negative = given.counted()
    rows = working(given.rows)
    alarm = rows > threshold if ties == "standard" else rows >= threshold
    right = (positive & (rows > threshold)).sum(-1)
    true, predicted = positive.sum(-1), right + (negative & alarm).sum(-1)
    void = true + negative.sum(-1) == 0
    return Counts(torch.stack([right, predicted, true], -1), void, broken(given), given.shape)


def _of_classes(function: str, scores: Tensor, target: Tensor, ignore_index: int | None) -> Counts:
    given = samples(function, scores, target, ignore_index=ignore_index, weight=None)
    label, rows = given.label, given.rows.detach()
    classes = rows.shape[1]
    counts = class_counts(rows.argmax(1).unsqueeze(0), label.unsqueeze(0), classes)[0]
    wrong = (rows.isnan().any(1) & (label != IGNORED)) | (label == UNDECLARED)
    void, nan_somewhere = (label == IGNORED).all(), wrong.any()
    return Counts(counts, void.expand(classes), nan_somewhere.expand(classes), counts.shape[:1])


def _averaged(found: Counts, beta: float, zero_division: float, reduction: Average) -> Tensor:
    counts, void, broken = found.counts, found.void, found.broken
    if reduction == "micro":
        counts, void, broken = counts.sum(0, True), void.all(0, True), broken.any(0, True)
    right, predicted, true = counts.to(exact_dtype(counts)).unbind(-1)
    bottom = predicted + beta**2 * true
    value = (1 + beta**2) * right / bottom
    value, weight = settled(value, bottom == 0, void, broken, zero_division)
    if reduction == "none":
        return value.reshape(found.shape)
    if reduction == "weighted":
        # Without any positive all count alike, as in scikit-learn; a NaN counts in any case.
        weight = torch.where((true.sum() > 0) & ~broken, true, weight)
    return mean(value, weight)
