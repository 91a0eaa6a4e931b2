"""How metrics are measured. Higher is better.

They are evalgrad's own, with the rules for ties and absent classes that the losses follow. A
`Measure` works in two steps, so that it adds up over batches and ranks: every batch gives one row
per example, and the rows of all examples give the value. `metrics` has their names, `decisions`
what is decided by them.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from evalgrad import metrics
from evalgrad_lab.errors import UserError


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


def decide(scores: Tensor, binary: bool, threshold: float = 0.0) -> Tensor:
    """The largest of scores ``(N, C, *)``; of binary ones, whether they are above the threshold."""
    return (scores > threshold).long() if binary else scores.argmax(1)


def finite(value: Tensor) -> float:
    """As a number; 0 for what is not finite."""
    return float(value) if math.isfinite(value) else 0.0


Scored = Iterable[tuple[Tensor, Tensor, Tensor | None]]  # scores, target, lists of each batch


def measured(measure: Measure, scored: Scored) -> Tensor:
    """The rows of all batches, of all ranks."""
    rows = [measure.rows(scores, target, 0.0, lists) for scores, target, lists in scored]
    return of_all_ranks(torch.cat(rows) if rows else torch.empty(0))


def of_all_ranks(rows: Tensor) -> Tensor:
    """The rows of every rank, one after the other."""
    if not torch.distributed.is_initialized():
        return rows
    parts: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(parts, rows.cpu())
    return torch.cat([part for part in parts if part.numel()])


def overlap(
    num_classes: int,
    ignore_index: int,
    *,
    by_image: bool = False,
    dice: bool = False,
    classes: Literal["present", "all"] | list[int] = "present",
    zero_division: float = 1.0,
) -> Measure:
    """Mean IoU or Dice of the classes, over the data set or over each image."""

    def rows(scores: Tensor, target: Tensor, threshold: float, lists: Tensor | None) -> Tensor:
        predicted = decide(scores, scores.ndim == target.ndim, threshold)
        counts = metrics.jaccard_counts(
            predicted, target, num_classes=num_classes, ignore_index=ignore_index
        )
        return _as_dice(counts) if dice else counts

    def value(counts: Tensor) -> Tensor:
        seen = counts[counts[..., 2].sum(1) > 0]  # images that are all void do not count
        groups = seen if by_image else seen.sum(0, keepdim=True)
        return metrics.jaccard_from_counts(groups, classes=classes, zero_division=zero_division)

    def per_class(counts: Tensor) -> list[float]:
        return _of_each(counts.sum(0, keepdim=True))

    return Measure(rows, value, decides=num_classes == 2, per_class=per_class)


def _of_each(counts: Tensor) -> list[float]:
    """The index of every class from counts (1, C, 3)."""
    classes = range(counts.shape[1])
    return [float(metrics.jaccard_from_counts(counts, classes=[c])) for c in classes]


def _as_dice(counts: Tensor) -> Tensor:
    """Counts (right, predicted, true) whose Jaccard index r / (p + t - r) is the Dice index
    2 r / (p + t) of the given ones. They add up alike.
    """
    right, predicted, true = counts.unbind(-1)
    return torch.stack([2 * right, predicted + right, true + right], -1)


def foreground(num_classes: int, ignore_index: int, *, name: str, dice: bool) -> Measure:
    """The mean over images of the IoU or Dice of class 1."""
    if num_classes != 2:
        others = "image-miou" if name == "image-iou" else "dice"
        raise UserError(
            f"--metric {name} is for two classes; the data have {num_classes}. Take {others}."
        )
    return overlap(2, ignore_index, by_image=True, dice=dice, classes=[1])


def macro_f1(num_classes: int, ignore_index: int) -> Measure:
    """The mean F1 of the classes that are true or predicted, as in scikit-learn."""

    def rows(scores: Tensor, target: Tensor, threshold: float, lists: Tensor | None) -> Tensor:
        return torch.stack([scores.argmax(1), target], 1)

    def counts(rows: Tensor) -> Tensor:
        predicted, true = rows.T.unsqueeze(1)
        return _as_dice(metrics.jaccard_counts(predicted, true, num_classes=num_classes))

    def value(rows: Tensor) -> Tensor:
        return metrics.jaccard_from_counts(counts(rows), classes="all", zero_division=math.nan)

    return Measure(rows, value, per_class=lambda rows: _of_each(counts(rows)))


def one_vs_rest(num_classes: int, ignore_index: int) -> Measure:
    """The area under the ROC curve of each class against the rest, by its probability over all
    examples or pixels, and their mean. The scores of all pixels are kept until the end.
    """

    def rows(scores: Tensor, target: Tensor, threshold: float, lists: Tensor | None) -> Tensor:
        if scores.ndim == target.ndim:  # binary: the rest is class 0
            scores = torch.stack([torch.zeros_like(scores), scores], 1)
        sure = scores.double().softmax(1).movedim(1, -1).flatten(0, -2)
        labels, valid = target.flatten(), target.flatten() != ignore_index
        return torch.cat([sure, labels[:, None].double()], 1)[valid]

    def each(rows: Tensor) -> Tensor:
        label = rows[:, -1:] == torch.arange(num_classes)
        return metrics.roc_auc(rows[:, :-1].T, label.T, reduction="none")

    def value(rows: Tensor) -> Tensor:
        return each(rows).nanmean()  # a class that is absent, or everywhere, has no curve

    return Measure(rows, value, per_class=lambda rows: [float(area) for area in each(rows)])


def decided_jaccard(scores: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """The IoU of each row of items whose score is above 0."""
    counts = metrics.jaccard_counts((scores > 0).long(), target, num_classes=2)
    each = [metrics.jaccard_from_counts(row[None], classes=[1]) for row in counts]
    return torch.stack(each) if reduction == "none" else torch.stack(each).nanmean()


def top_k(k: int, num_classes: int, ignore_index: int) -> Measure:
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


def ranking(
    function: Callable[..., Tensor], by_list: bool, decides: bool = False, columns: bool = False
) -> Measure:
    """A function of all scores and labels, decided at score 0. Scores ``(n, columns)`` are as many
    rankings, whose mean is taken; `by_list`: the mean over the lists, where the data are in lists;
    `columns`: they are the labels of a multilabel task, each with a value of its own.
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

    def per_class(rows: Tensor) -> list[float]:
        scores, target, _ = rows.unbind(-1)
        return [float(one) for one in function(scores.T, target.T.long(), reduction="none")]

    def sweep(scores: Tensor, target: Tensor, cuts: Tensor) -> Tensor:
        shifted = scores - cuts[:, None].to(scores)
        return function(shifted, target.expand(len(cuts), -1), reduction="none")

    if columns:
        return Measure(rows, value, decides, per_class)
    return Measure(rows, value, decides, sweep=sweep if decides else None)
