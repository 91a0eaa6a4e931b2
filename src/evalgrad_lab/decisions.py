"""From scores to decisions: the threshold that validation chooses, for scores that one decides, and
what a network that decides so is worth on a part of the data.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from evalgrad_lab.data.dataset import Examples
from evalgrad_lab.measures import Measure, Scored, decide, finite, measured, of_all_ranks
from evalgrad_lab.metrics import Metric

CUTS = 100  # thresholds that are tried where one sweep measures all of them, else a fifth
SAMPLE = 1_000_000  # scores whose quantiles these are
RATES = ("precision", "recall", "f1", "iou")
# what `class_table` says of every class in any case
IN_TABLE = ("miou", "image-miou", "image-iou", "dice", "image-dice", "f1", "accuracy")


def one_score(scores: Tensor, target_dims: int) -> Tensor:
    """Scores ``(N, 2, *)`` of two classes as one score ``(N, *)``, which is above 0 where the
    second is the larger; others as they are.
    """
    if scores.ndim == target_dims + 1 and scores.shape[1] == 2:
        return scores[:, 1] - scores[:, 0]
    return scores


def sample(examples: Examples, pixels: int) -> Examples:
    """Evenly spaced examples with about `SAMPLE` scores, of the same ones on every rank."""
    count = min(len(examples), max(1, SAMPLE // pixels))
    return examples.take([i * len(examples) // count for i in range(count)])


def choose_threshold(measure: Measure, scored: Scored, candidates: Tensor) -> tuple[float, float]:
    """The threshold with the best value on validation data, and that value; 0 wins a draw.

    Tried are 0 and quantiles of the scores that are `candidates`, in one pass over `scored`.
    """
    if measure.sweep is not None:
        cuts = thresholds(candidates, CUTS)
        scores, target, _ = measured(measure, scored).unbind(-1)
        values = measure.sweep(scores, target.long(), torch.tensor(cuts))
    else:
        cuts = thresholds(candidates, CUTS // 5)
        rows = measured(_at_each(measure, cuts), scored)
        values = torch.stack([measure.value(rows[:, k]) for k in range(len(cuts))])
    values = values.nan_to_num(0.0)
    best = int(values.argmax())
    return cuts[best], float(values[best])


def _at_each(measure: Measure, cuts: list[float]) -> Measure:
    """The rows at all thresholds, beside each other."""

    def rows(scores: Tensor, target: Tensor, _: float, lists: Tensor | None) -> Tensor:
        return torch.stack([measure.rows(scores, target, cut, lists) for cut in cuts], 1)

    return replace(measure, rows=rows)


def thresholds(scores: Tensor, count: int) -> list[float]:
    """0 and quantiles of the scores, the ends left out."""
    flat = scores.flatten()
    flat = flat[:: max(1, len(flat) // 10_000)].sort().values
    places = torch.linspace(0, len(flat) - 1, count + 2)[1:-1].long()
    return [0.0, *flat[places].tolist()]


@dataclass(frozen=True)
class Judgement:
    """What a network is worth on some examples: the metric, `confusion` and the table of classes
    made of it, both as JSON takes them.
    """

    value: float
    classes: list[dict[str, Any]]
    confusion: list[Any]

    def undecided(self) -> "Judgement":
        """Without what depends on a decision."""
        kept = [{n: v for n, v in row.items() if n not in RATES} for row in self.classes]
        return replace(self, classes=[row for row in kept if len(row) > 2], confusion=[])


def judge(
    metric: Metric,
    scored: Scored,
    classes: list[str],
    ignore_index: int,
    threshold: float | None = 0.0,
) -> Judgement:
    """Of all batches, of all ranks, decided at the threshold; None: there is none."""
    measure, rows, total = metric.measure(len(classes), ignore_index), [], torch.empty(0)
    for scores, target, lists in scored:
        rows.append(measure.rows(scores, target, threshold or 0.0, lists))
        counts = confusion(scores, target, len(classes), ignore_index, threshold or 0.0)
        total = total + counts if total.numel() else counts
    found = of_all_ranks(torch.cat(rows) if rows else torch.empty(0))
    total = of_all_ranks(total[None]).sum(0)
    table = class_table(total, classes)
    if measure.per_class is not None and metric.name not in IN_TABLE:
        for row, value in zip(table, measure.per_class(found), strict=True):
            row[metric.name] = value if math.isfinite(value) else None
    judged = Judgement(finite(measure.value(found)), table, total.tolist())
    return judged.undecided() if metric.of_items and threshold is None else judged


def confusion(
    scores: Tensor, target: Tensor, num_classes: int, ignore_index: int, threshold: float = 0.0
) -> Tensor:
    """How many items of each true class (row) were given each class (column): ``(C, C)``. Of the
    labels ``(N, C)`` of a multilabel task each has a matrix of no and yes: ``(C, 2, 2)``.
    """
    predicted = decide(scores, scores.ndim == target.ndim, threshold)
    if scores.ndim == target.ndim == 2:
        pairs = (2 * target + predicted).T
        return torch.stack([torch.bincount(pair, minlength=4).view(2, 2) for pair in pairs])
    valid = target != ignore_index
    pairs = num_classes * target[valid] + predicted[valid]
    return torch.bincount(pairs, minlength=num_classes**2).view(num_classes, num_classes)


def class_table(confusion: Tensor, classes: list[str]) -> list[dict[str, Any]]:
    """Items, precision, recall, F1 and IoU of every class; None for 0/0."""
    if confusion.ndim == 3:  # of yes
        found = confusion[:, 1, 1], confusion[:, :, 1].sum(1), confusion[:, 1].sum(1)
    else:
        found = confusion.diag(), confusion.sum(0), confusion.sum(1)
    counts = torch.stack(found, 1).tolist()
    return [{"class": name, **_rates(*row)} for name, row in zip(classes, counts, strict=True)]


def _rates(right: int, predicted: int, true: int) -> dict[str, Any]:
    both = predicted + true
    parts = ((right, predicted), (right, true), (2 * right, both), (right, both - right))
    rates = {name: a / b if b else None for name, (a, b) in zip(RATES, parts, strict=True)}
    return {"count": true, **rates}
