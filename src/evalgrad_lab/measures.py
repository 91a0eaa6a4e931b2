"""How metrics are computed. Higher is better.

They are evalgrad's metrics, which treat ties and absent classes as the losses do. A `Measure` works
in two steps, so that it can be accumulated over batches and ranks: every batch gives one row per
example, and the rows of all examples give the value. `metrics` has their names; `judging` applies
them to networks.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from evalgrad import metrics
from evalgrad_lab.decisions import Decision, plain
from evalgrad_lab.errors import UserError


@dataclass(frozen=True)
class Measure:
    """How a metric is measured.

    Args:
        rows: (what is said, target, lists) -> one row per example. Said are labels where the metric
            `decides`, else the scores.
        value: the rows of all examples -> the metric.
        decides: whether it is one of decisions.
        per_class: the rows of all examples -> the metric of every class, where there is one.
        plain: decide by argmax or at 0, whatever was chosen.
    """

    rows: Callable[[Tensor, Tensor, Tensor | None], Tensor]
    value: Callable[[Tensor], Tensor]
    decides: bool = False
    per_class: Callable[[Tensor], list[float]] | None = None
    plain: bool = False

    def said(self, scores: Tensor, target: Tensor, decision: Decision | None) -> Tensor:
        """What is measured of scores. Those of the shape of the target are one for each item."""
        if not self.decides:
            return scores
        if decision is None or self.plain:
            decision = plain(scores.ndim == target.ndim)
        return decision(scores)

    def __call__(
        self,
        scores: Tensor,
        target: Tensor,
        decision: Decision | None = None,
        lists: Tensor | None = None,
    ) -> float:
        """Of scores that are all at hand; those of a network that diverged to NaN have 0."""
        said = self.said(scores, target, decision)
        return finite(self.value(self.rows(said, target, lists)))


def finite(value: Tensor) -> float:
    """As a float; 0 if it is not finite: what is undefined is not chosen."""
    return float(value) if math.isfinite(value) else 0.0


def reported(value: Tensor, rows: Tensor) -> float | None:
    """The value of these rows, as a float; None if it is undefined, as without a positive. A
    network that diverged to NaN has 0.
    """
    if math.isfinite(value):
        return float(value)
    return None if rows.isfinite().all() else 0.0


Scored = Iterable[tuple[Tensor, Tensor, Tensor | None]]  # scores, target, lists of each batch


def measured(measure: Measure, scored: Scored, tried: Sequence[Decision | None]) -> Tensor:
    """The rows of all batches, of all ranks, by each of several decisions: beside each other."""
    rows = []
    for scores, target, lists in scored:
        said = [measure.said(scores, target, decision) for decision in tried]
        rows.append(torch.stack([measure.rows(one, target, lists) for one in said], 1))
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

    def rows(labels: Tensor, target: Tensor, lists: Tensor | None) -> Tensor:
        return metrics.jaccard_counts(
            labels, target, num_classes=num_classes, ignore_index=ignore_index
        )

    def value(counts: Tensor) -> Tensor:
        seen = counts[counts[..., 2].sum(1) > 0]  # images that are all void do not count
        groups = seen if by_image else seen.sum(0, keepdim=True)
        return _index(groups, dice, classes=classes, zero_division=zero_division)

    def per_class(counts: Tensor) -> list[float]:
        return _of_each(counts.sum(0, keepdim=True), dice)

    return Measure(rows, value, decides=True, per_class=per_class)


def _index(counts: Tensor, dice: bool, **how: Any) -> Tensor:
    """The mean Jaccard index, or Dice, of groups of counts ``(G, C, 3)``."""
    weight = 0.5 if dice else 1.0
    return metrics.tversky_from_counts(counts, misses=weight, false_alarms=weight, **how)


def _of_each(counts: Tensor, dice: bool) -> list[float]:
    """The index of every class from counts (1, C, 3)."""
    return [float(_index(counts, dice, classes=[c])) for c in range(counts.shape[1])]


def foreground(num_classes: int, ignore_index: int, *, name: str, dice: bool) -> Measure:
    """The mean over images of the IoU or Dice of class 1."""
    if num_classes != 2:
        others = "image-miou" if name == "image-iou" else "dice"
        raise UserError(
            f"--metric {name} is for two classes; the data have {num_classes}. Use {others}."
        )
    return overlap(2, ignore_index, by_image=True, dice=dice, classes=[1])


def macro_f1(num_classes: int, ignore_index: int) -> Measure:
    """The mean F1 of the classes that are true or predicted, as in scikit-learn."""

    def rows(labels: Tensor, target: Tensor, lists: Tensor | None) -> Tensor:
        return torch.stack([labels, target], 1)

    def counts(rows: Tensor) -> Tensor:
        predicted, true = rows.T.unsqueeze(1)
        return metrics.jaccard_counts(predicted, true, num_classes=num_classes)

    def value(rows: Tensor) -> Tensor:
        return _index(counts(rows), True, classes="all", zero_division=math.nan)

    return Measure(rows, value, True, lambda rows: _of_each(counts(rows), True))


def one_vs_rest(num_classes: int, ignore_index: int) -> Measure:
    """The area under the ROC curve of each class against the rest, by its probability over all
    examples or pixels, and their mean. The scores of all pixels are kept until the end.
    """

    def rows(scores: Tensor, target: Tensor, lists: Tensor | None) -> Tensor:
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
    """The IoU of each row of items whose label, or score, is above 0."""
    counts = metrics.jaccard_counts((scores > 0).long(), target, num_classes=2)
    each = [metrics.jaccard_from_counts(row[None], classes=[1]) for row in counts]
    return torch.stack(each) if reduction == "none" else torch.stack(each).nanmean()


def top_k(k: int, num_classes: int, ignore_index: int) -> Measure:
    """Share of the examples whose label is among the k best scores."""
    if k >= num_classes:
        raise UserError(
            f"--metric top{k} needs more than {k} classes; the data have {num_classes}. Use a"
            " smaller k or accuracy."
        )

    def rows(scores: Tensor, target: Tensor, lists: Tensor | None) -> Tensor:
        wrong = torch.vmap(lambda s, t: metrics.topk_error(s[None], t[None], k=k))(scores, target)
        return torch.stack([1 - wrong, target.double()], 1)

    def per_class(rows: Tensor) -> list[float]:
        return [float(rows[rows[:, 1] == c, 0].mean()) for c in range(num_classes)]

    return Measure(rows, lambda rows: rows[:, 0].mean(), per_class=per_class)


def ranking(
    function: Callable[..., Tensor], by_list: bool, decides: bool = False, columns: bool = False
) -> Measure:
    """A function of all scores, or decisions, and labels. Scores ``(n, columns)`` are as many
    rankings, whose mean is taken; `by_list`: the mean over the lists, where the data are in lists;
    `columns`: they are the labels of a multilabel task, each with a value of its own.
    """

    def rows(said: Tensor, target: Tensor, lists: Tensor | None) -> Tensor:
        numbers = torch.zeros_like(target) if lists is None else lists
        return torch.stack([t.double() for t in (said, target, numbers)], -1)

    def value(rows: Tensor) -> Tensor:
        said, target, lists = rows.unbind(-1)
        groups = lists.unique() if by_list else lists.new_zeros(1)
        chosen = [lists == number if by_list else slice(None) for number in groups]
        if said.ndim == 2:
            return function(said.T, target.T.long())
        values = torch.stack([function(said[part], target[part].long()) for part in chosen])
        # a list without a positive or without a negative is void
        return values[~values.isnan()].mean()

    def per_class(rows: Tensor) -> list[float]:
        said, target, _ = rows.unbind(-1)
        return [float(one) for one in function(said.T, target.T.long(), reduction="none")]

    return Measure(rows, value, decides, per_class if columns else None)
