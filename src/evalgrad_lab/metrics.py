"""The metrics by name: the loss that serves each, how it is measured (`measures`), and what a
network is worth on a part of the data. Higher is better.
"""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from evalgrad import metrics
from evalgrad_lab.errors import UserError
from evalgrad_lab.measures import (
    Measure,
    decide,
    decided_jaccard,
    finite,
    foreground,
    macro_f1,
    one_vs_rest,
    overlap,
    ranking,
    top_k,
)

__all__ = [
    "NAMES",
    "TASKS",
    "Judgement",
    "Measure",
    "Metric",
    "best_threshold",
    "class_table",
    "confusion",
    "decide",
    "find",
    "finite",
    "judge",
    "measured",
    "ranking",
    "thresholds",
]

RANKED = "ap, auc, ndcg, ndcg@10, f1, dice, recall@precision=0.9, precision@recall=0.9"
NAMES = {
    "segmentation": "miou, image-miou, image-iou, dice, image-dice, f1, auc",
    "classification": "accuracy, top5 (any k), f1, dice, auc",
    "ranking": RANKED,
    "multilabel": f"{RANKED}, miou",
}
TASKS = tuple(NAMES)
RATES = ("precision", "recall", "f1", "iou")
# what `class_table` says of every class in any case
IN_TABLE = ("miou", "image-miou", "image-iou", "dice", "image-dice", "f1", "accuracy")


@dataclass(frozen=True)
class Metric:
    """What `--metric` names. `measure(num_classes, ignore_index)` makes it; `loss` with `options`
    is what trains for it by default; `title` is what reports show.
    """

    name: str
    title: str
    loss: str
    measure: Callable[[int, int], Measure]
    options: dict[str, Any] = field(default_factory=dict)
    k: int = 1  # guesses that count, for prediction


def find(name: str, task: str) -> Metric:
    """The metric that `--metric` names, if it is one of the task."""
    metric = TABLES[task](name)
    others = [other for other, table in TABLES.items() if table(name)]
    if metric is None and others:
        raise UserError(
            f"--metric {name} is a metric of {' and '.join(others)}, and --task is {task}. Change"
            " one of them."
        )
    if metric is None:
        raise UserError(f"--metric must be one of {NAMES[task]} for {task}; got {name!r}.")
    return metric


def measured(measure: Measure, batches: Iterable[tuple[Tensor, Tensor, Tensor | None]]) -> Tensor:
    """The rows of all batches (scores, target, lists), of all ranks."""
    rows = [measure.rows(scores, target, 0.0, lists) for scores, target, lists in batches]
    return _of_all_ranks(torch.cat(rows) if rows else torch.empty(0))


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
    batches: Iterable[tuple[Tensor, Tensor, Tensor | None]],
    classes: list[str],
    ignore_index: int,
    threshold: float = 0.0,
) -> Judgement:
    """Of all batches (scores, target, lists), of all ranks, decided at the threshold."""
    measure, rows, total = metric.measure(len(classes), ignore_index), [], torch.empty(0)
    for scores, target, lists in batches:
        rows.append(measure.rows(scores, target, threshold, lists))
        counts = confusion(scores, target, len(classes), ignore_index, threshold)
        total = total + counts if total.numel() else counts
    found = _of_all_ranks(torch.cat(rows) if rows else torch.empty(0))
    total = _of_all_ranks(total[None]).sum(0)
    table = class_table(total, classes)
    if measure.per_class is not None and metric.name not in IN_TABLE:
        for row, value in zip(table, measure.per_class(found), strict=True):
            row[metric.name] = value if math.isfinite(value) else None
    return Judgement(finite(measure.value(found)), table, total.tolist())


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


def _of_all_ranks(rows: Tensor) -> Tensor:
    if not torch.distributed.is_initialized():
        return rows
    parts: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(parts, rows.cpu())
    return torch.cat([part for part in parts if part.numel()])


def best_threshold(measure: Measure, scores: Tensor, target: Tensor, count: int = 100) -> float:
    """The decision threshold with the best value, of 0 and `count` quantiles of the scores; 0 wins
    a draw. To be chosen on validation.
    """
    cuts = thresholds(scores, count)
    if measure.sweep is not None:
        return cuts[int(measure.sweep(scores, target, torch.tensor(cuts)).argmax())]
    return max(cuts, key=lambda cut: measure(scores, target, cut))


def thresholds(scores: Tensor, count: int) -> list[float]:
    """0 and quantiles of the scores, the ends left out."""
    flat = scores.flatten()
    flat = flat[:: max(1, len(flat) // 10_000)].sort().values
    places = torch.linspace(0, len(flat) - 1, count + 2)[1:-1].long()
    return [0.0, *flat[places].tolist()]


def _segmentation(name: str) -> Metric | None:
    def metric(title: str, loss: str, measure: Callable[..., Measure], **given: Any) -> Metric:
        options = {"per_image": True} if "by_image" in given else {}
        return Metric(name, title, loss, partial(measure, **given), options)

    if name == "miou":
        return metric("mIoU", "lovasz_softmax", overlap)
    if name == "image-miou":
        return metric("image mIoU", "lovasz_softmax", overlap, by_image=True)
    if name == "dice":
        return metric("Dice", "lovasz_softmax", overlap, dice=True)
    if name == "f1":  # of all classes that are true or predicted, as in scikit-learn
        every = {"classes": "all", "zero_division": math.nan}
        return metric("F1", "lovasz_softmax", overlap, dice=True, **every)
    if name in ("image-iou", "image-dice"):
        dice = name == "image-dice"
        title = "image Dice" if dice else "image IoU"
        return metric(title, "lovasz_hinge", foreground, name=name, dice=dice)
    return metric("AUC", "cross_entropy", one_vs_rest) if name == "auc" else None


def _classification(name: str) -> Metric | None:
    if name in ("f1", "dice"):
        return Metric(name, "F1", "lovasz_softmax", macro_f1)
    if name == "auc":
        return Metric(name, "AUC", "cross_entropy", one_vs_rest)
    match = re.fullmatch(r"top([1-9]\d*)", name)
    if name != "accuracy" and not match:
        return None
    k = int(match[1]) if match else 1
    title, loss = (f"top-{k} accuracy", "smooth_topk") if match else (name, "cross_entropy")
    options = {"k": k} if match else {}
    return Metric(name, title, loss, partial(top_k, k), options, k)


def _ranking(name: str, columns: bool = False) -> Metric | None:
    """Of one ranking, or of each label of a multilabel task (`columns`) and the mean of them."""

    def metric(
        title: str, loss: str, function: Callable[..., Tensor], decides: bool, **options: Any
    ) -> Metric:
        by_list = function in (metrics.average_precision, metrics.ndcg)
        measure = ranking(partial(function, **options), by_list, decides, columns)
        return Metric(name, title, loss, lambda *_: measure, options)

    if name == "ap":
        return metric("AP", "direct_average_precision", metrics.average_precision, False)
    if match := re.fullmatch(r"ndcg(?:@([1-9]\d*))?", name):
        options = {"k": int(match[1])} if match[1] else {}
        return metric(name.upper(), "direct_ndcg", metrics.ndcg, False, **options)
    if name in ("f1", "dice"):
        return metric("F1", "f_beta", metrics.fbeta_score, True)
    if name == "miou" and columns:
        return metric("mIoU", "lovasz_hinge", decided_jaccard, True)
    if name == "auc":
        return metric("AUC", "roc_auc", metrics.roc_auc, False)
    if match := re.fullmatch(r"(recall@precision|precision@recall)=(0?\.\d*[1-9]\d*|1)", name):
        given, share = match[1].partition("@")[2], float(match[2])
        title = f"{match[1].replace('@', ' at ')} {share:g}"
        loss = match[1].replace("@", "_at_")
        return metric(title, loss, getattr(metrics, loss), False, **{given: share})
    return None


TABLES: dict[str, Callable[[str], Metric | None]] = {
    "segmentation": _segmentation,
    "classification": _classification,
    "ranking": _ranking,
    "multilabel": partial(_ranking, columns=True),
}
