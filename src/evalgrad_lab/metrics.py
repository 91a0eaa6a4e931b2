"""The metrics by name: the loss that serves each, and how it is measured. Higher is better.

They are evalgrad's own, with the rules for ties and absent classes that the losses follow. A
`Measure` works in two steps, so that it adds up over batches and ranks: every batch gives one row
per example, and the rows of all examples give the value.
"""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from evalgrad import metrics
from evalgrad_lab.errors import UserError

TASKS = ("segmentation", "classification", "ranking")
NAMES = (
    "miou, image-miou, image-iou, accuracy, top5 (any k), ap, ndcg, ndcg@10, f1,"
    " recall@precision=0.9, precision@recall=0.9"
)
# what `class_table` says of every class in any case
IN_TABLE = ("miou", "image-miou", "image-iou", "dice", "image-dice", "f1", "accuracy")


@dataclass(frozen=True)
class Measure:
    """How a metric is measured.

    Args:
        rows: (scores, target, threshold, lists) -> one row per example. Scores of the shape of the
            target are binary, and decided at the threshold; of ``(N, C, *)`` the largest decides.
        value: the rows of all examples -> the metric.
        decides: whether the threshold matters.
        per_class: the rows of all examples -> the metric of every class, where there is one.
        sweep: (scores, target, thresholds) -> the metric at each threshold, where that is faster
            than one after the other.
    """

    rows: Callable[[Tensor, Tensor, float, Tensor | None], Tensor]
    value: Callable[[Tensor], Tensor]
    decides: bool = False
    per_class: Callable[[Tensor], list[float]] | None = None
    sweep: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None

    def __call__(
        self, scores: Tensor, target: Tensor, threshold: float = 0.0, lists: Tensor | None = None
    ) -> float:
        """Of scores that are all at hand; those of a network that diverged to NaN have 0."""
        return finite(self.value(self.rows(scores, target, threshold, lists)))


@dataclass(frozen=True)
class Metric:
    """What `--metric` names. `measure(num_classes, ignore_index)` makes it; `loss` with `options`
    is what trains for it by default; `title` is what reports show.
    """

    name: str
    title: str
    task: str
    loss: str
    measure: Callable[[int, int], Measure]
    options: dict[str, Any] = field(default_factory=dict)
    k: int = 1  # guesses that count, for prediction


def find(name: str, task: str) -> Metric:
    """The metric that `--metric` names, if it is one of the task."""
    metric = _segmentation(name) or _classification(name) or _ranking(name)
    if metric is None:
        raise UserError(f"--metric must be one of {NAMES}; got {name!r}.")
    if metric.task != task:
        raise UserError(
            f"--metric {name} is a metric of {metric.task}, and --task is {task}. Change one of"
            " them."
        )
    return metric


def decide(scores: Tensor, binary: bool, threshold: float = 0.0) -> Tensor:
    """Predicted classes ``(N, *)``: the largest of ``(N, C, *)`` scores; of binary ones, whether
    they are above the threshold.
    """
    return (scores > threshold).long() if binary else scores.argmax(1)


def finite(value: Tensor) -> float:
    """As a number; 0 for what is not finite."""
    return float(value) if math.isfinite(value) else 0.0


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
    found = (confusion.diag(), confusion.sum(0), confusion.sum(1))
    if confusion.ndim == 3:
        found = (confusion[:, 1, 1], confusion[:, :, 1].sum(1), confusion[:, 1].sum(1))
    counts = torch.stack(found, 1).tolist()
    return [{"class": name, **_rates(*row)} for name, row in zip(classes, counts, strict=True)]


def _rates(right: int, predicted: int, true: int) -> dict[str, Any]:
    parts = {
        "precision": (right, predicted),
        "recall": (right, true),
        "f1": (2 * right, predicted + true),
        "iou": (right, predicted + true - right),
    }
    return {"count": true, **{name: a / b if b else None for name, (a, b) in parts.items()}}


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
    if name == "miou":
        return Metric(name, "mIoU", "segmentation", "lovasz_softmax", partial(_jaccard, False))
    if name == "image-miou":
        measure, options = partial(_jaccard, True), {"per_image": True}
        return Metric(name, "image mIoU", "segmentation", "lovasz_softmax", measure, options)
    if name == "image-iou":
        return Metric(name, "image IoU", "segmentation", "lovasz_hinge", _foreground)
    return None


def _classification(name: str) -> Metric | None:
    match = re.fullmatch(r"top([1-9]\d*)", name)
    if name != "accuracy" and not match:
        return None
    k = int(match[1]) if match else 1
    title, loss = (f"top-{k} accuracy", "smooth_topk") if match else (name, "cross_entropy")
    options = {"k": k} if match else {}
    return Metric(name, title, "classification", loss, partial(_top_k, k), options, k)


def _ranking(name: str) -> Metric | None:
    def metric(
        title: str, loss: str, function: Callable[..., Tensor], decides: bool, **options: Any
    ) -> Metric:
        by_list = function in (metrics.average_precision, metrics.ndcg)
        measure = ranking(partial(function, **options), by_list, decides)
        return Metric(name, title, "ranking", loss, lambda *_: measure, options)

    if name == "ap":
        return metric("AP", "direct_average_precision", metrics.average_precision, False)
    if match := re.fullmatch(r"ndcg(?:@([1-9]\d*))?", name):
        options = {"k": int(match[1])} if match[1] else {}
        return metric(name.upper(), "direct_ndcg", metrics.ndcg, False, **options)
    if name == "f1":
        return metric("F1", "f_beta", metrics.fbeta_score, True)
    if match := re.fullmatch(r"(recall@precision|precision@recall)=(0?\.\d*[1-9]\d*|1)", name):
        given, share = match[1].partition("@")[2], float(match[2])
        title = f"{match[1].replace('@', ' at ')} {share:g}"
        loss = match[1].replace("@", "_at_")
        return metric(title, loss, getattr(metrics, loss), False, **{given: share})
    return None


def _jaccard(per_image: bool, num_classes: int, ignore_index: int) -> Measure:
    """Mean IoU of the classes present, over the data set or over each image."""

    def rows(scores: Tensor, target: Tensor, threshold: float, lists: Tensor | None) -> Tensor:
        predicted = decide(scores, scores.ndim == target.ndim, threshold)
        return metrics.jaccard_counts(
            predicted, target, num_classes=num_classes, ignore_index=ignore_index
        )

    def value(counts: Tensor) -> Tensor:
        seen = counts[counts[..., 2].sum(1) > 0]  # images that are all void do not count
        return metrics.jaccard_from_counts(seen if per_image else seen.sum(0, keepdim=True))

    def per_class(counts: Tensor) -> list[float]:
        total = counts.sum(0, keepdim=True)
        each = [metrics.jaccard_from_counts(total, classes=[c]) for c in range(num_classes)]
        return [float(iou) for iou in each]

    return Measure(rows, value, decides=num_classes == 2, per_class=per_class)


def _foreground(num_classes: int, ignore_index: int) -> Measure:
    """The mean over images of the IoU of class 1."""
    if num_classes != 2:
        raise UserError(
            f"--metric image-iou is for two classes; the data have {num_classes}. Take image-miou."
        )
    base = _jaccard(True, 2, ignore_index)

    def value(counts: Tensor) -> Tensor:
        return metrics.jaccard_from_counts(counts[counts[..., 2].sum(1) > 0], classes=[1])

    return Measure(base.rows, value, decides=True, per_class=base.per_class)


def _top_k(k: int, num_classes: int, ignore_index: int) -> Measure:
    """Share of the examples whose label is among the k best scores."""
    if k >= num_classes:
        raise UserError(
            f"--metric top{k} needs more than {k} classes; the data have {num_classes}. Take a"
            " smaller k or accuracy."
        )

    def rows(scores: Tensor, target: Tensor, threshold: float, lists: Tensor | None) -> Tensor:
        wrong = torch.vmap(lambda s, t: metrics.topk_error(s[None], t[None], k=k))(scores, target)
        return torch.stack([1 - wrong, target.double()], 1)

    def per_class(rows: Tensor) -> list[float]:
        return [finite(rows[rows[:, 1] == c, 0].mean()) for c in range(num_classes)]

    return Measure(rows, lambda rows: rows[:, 0].mean(), per_class=per_class)


def ranking(function: Callable[..., Tensor], by_list: bool, decides: bool = False) -> Measure:
    """A function of all scores and labels, decided at score 0. Scores ``(n, columns)`` are as many
    rankings, whose mean is taken; `by_list`: the mean over the lists, where the data are in lists.
    """

    def rows(scores: Tensor, target: Tensor, threshold: float, lists: Tensor | None) -> Tensor:
        numbers = torch.zeros_like(target) if lists is None else lists
        return torch.stack([t.double() for t in (scores - threshold, target, numbers)], -1)

    def value(rows: Tensor) -> Tensor:
        scores, target, lists = rows.unbind(-1)
        groups = lists.unique() if by_list else lists.new_zeros(1)
        chosen = [lists == number if by_list else slice(None) for number in groups]
        if scores.ndim == 2:
            return function(scores.T, target.T.long())
        values = torch.stack([function(scores[part], target[part].long()) for part in chosen])
        # a list without a positive or without a negative is void
        return values[~values.isnan()].mean()

    def sweep(scores: Tensor, target: Tensor, cuts: Tensor) -> Tensor:
        shifted = scores - cuts[:, None].to(scores)
        return function(shifted, target.expand(len(cuts), -1), reduction="none")

    return Measure(rows, value, decides, sweep=sweep if decides else None)
