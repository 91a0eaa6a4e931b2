"""Measures a network on a part of the data, with the decision rule that is best on validation."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from evalgrad_lab.data.dataset import Examples
from evalgrad_lab.decisions import Decision, Fit, plain
from evalgrad_lab.errors import UserError
from evalgrad_lab.measures import Measure, Scored, measured, of_all_ranks, reported
from evalgrad_lab.metrics import Metric

SAMPLE = 300_000  # scores that decisions are fitted to: class offsets of so many take half a second
RATES = ("precision", "recall", "f1", "iou")
# what `class_table` says of every class in any case
IN_TABLE = ("miou", "image-miou", "image-iou", "dice", "image-dice", "f1", "accuracy")


def sample(examples: Examples, scores: int) -> Examples:
    """Evenly spaced examples with about `SAMPLE` scores, of the same ones on every rank; each has
    so many.
    """
    count = min(len(examples), max(1, SAMPLE // max(scores, 1)))
    return examples.take([i * len(examples) // count for i in range(count)])


def fitted(fits: Sequence[Fit], scored: Scored, ignore_index: int) -> list[Decision]:
    """The decisions that fit these data: the items of all batches together, evenly spaced ones
    where they are many.
    """
    scores, target = [], []
    for some, labels, _ in scored if fits else ():
        if some.ndim > labels.ndim:
            some, labels = some.movedim(1, -1).flatten(0, -2), labels.flatten()
        elif labels.ndim != 2:  # a map; the labels of a multilabel task are columns
            some, labels = some.flatten(), labels.flatten()
        scores.append(some)
        target.append(labels)
    if not scores or not all(some.isfinite().all() for some in scores):
        return []
    step = max(1, sum(some.numel() for some in scores) // SAMPLE)
    data = torch.cat(scores)[::step], torch.cat(target)[::step]
    return [decision for fit in fits for decision in fit(*data, ignore_index)]


def choose(measure: Measure, scored: Scored, tried: list[Decision]) -> tuple[Decision, float]:
    """The decision with the best value on validation data, and that value; the first wins a draw.
    A metric of the ranking alone leaves the choice to what was fitted to it: the last.
    """
    if not measure.decides:
        tried = tried[-1:]
    rows = measured(measure, scored, tried)
    found = [reported(measure.value(own), own) for own in rows.unbind(1)]
    if all(value is None for value in found):
        raise UserError(
            "the metric is undefined on the validation data, for example because no list has a"
            " positive. Add validation data."
        )
    values = [value or 0.0 for value in found]
    best = values.index(max(values))
    chosen = tried[best]
    if chosen.of_one_score and chosen.rule != "threshold":
        cuts = [k for k in range(len(tried)) if tried[k].rule == "threshold"]
        chosen = replace(chosen, numbers=tried[max(cuts, key=values.__getitem__)].numbers)
    return chosen, values[best]


class Judgement(NamedTuple):
    """The measurements of a network on some examples: the metric, the confusion matrix, and the
    table of classes computed from it, as JSON data. The metric is None if it is undefined.
    """

    value: float | None
    classes: list[dict[str, Any]]
    confusion: list[Any]


def judge(
    metric: Metric,
    scored: Scored,
    classes: list[str],
    ignore_index: int,
    decision: Decision | None,
) -> Judgement:
    """Of all batches, of all ranks, decided so; None: nothing decides, and what depends on a
    decision is left out.
    """
    measure, rows, total = metric.measure(len(classes), ignore_index), [], torch.empty(0)
    for scores, target, lists in scored:
        rows.append(measure.rows(measure.said(scores, target, decision), target, lists))
        labels = (decision or plain(scores.ndim == target.ndim))(scores)
        counts = confusion(labels, target, len(classes), ignore_index)
        total = total + counts if total.numel() else counts
    found = of_all_ranks(torch.cat(rows) if rows else torch.empty(0))
    total = of_all_ranks(total[None]).sum(0)
    table = class_table(total, classes)
    if measure.per_class is not None and metric.name not in IN_TABLE:
        for row, one in zip(table, measure.per_class(found), strict=True):
            row[metric.name] = one if math.isfinite(one) else None
    value = reported(measure.value(found), found)
    if decision is None:
        table = [{n: v for n, v in row.items() if n not in RATES} for row in table]
        return Judgement(value, [row for row in table if len(row) > 2], [])
    return Judgement(value, table, total.tolist())


def confusion(labels: Tensor, target: Tensor, num_classes: int, ignore_index: int) -> Tensor:
    """How many items of each true class (row) were given each class (column): ``(C, C)``. Of the
    labels ``(N, C)`` of a multilabel task each has a matrix of no and yes: ``(C, 2, 2)``.
    """
    if target.ndim == 2:
        pairs = (2 * target + labels).T
        return torch.stack([torch.bincount(pair, minlength=4).view(2, 2) for pair in pairs])
    valid = target != ignore_index
    pairs = num_classes * target[valid] + labels[valid]
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
