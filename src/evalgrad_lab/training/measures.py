"""evalgrad's exact metrics as torchmetrics, so that they add up over batches and ranks. `update`
takes raw scores.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from evalgrad import metrics
from evalgrad_lab.errors import UserError


def decide(scores: Tensor) -> Tensor:
    """Predicted classes ``(N, *)``: the largest of ``(N, C, *)`` scores; with one output, whether
    it is above 0.
    """
    return (scores[:, 0] > 0).long() if scores.shape[1] == 1 else scores.argmax(1)


class JaccardMeasure(Metric):
    """Mean IoU over the data set, or the mean over images of the mean over their classes;
    `foreground`: class 1 alone.
    """

    higher_is_better = True
    full_state_update = False
    counts: Tensor
    total: Tensor
    images: Tensor

    def __init__(
        self, num_classes: int, ignore_index: int, *, per_image: bool, foreground: bool = False
    ) -> None:
        super().__init__()
        if foreground and num_classes != 2:
            raise UserError(
                f"--metric image-iou is for two classes; the data have {num_classes}. Take"
                " image-miou."
            )
        self.options: dict[str, Any] = {"num_classes": num_classes, "ignore_index": ignore_index}
        self.per_image, self.classes = per_image, [1] if foreground else "present"
        self.add_state(
            "counts", torch.zeros(num_classes, 3, dtype=torch.long), dist_reduce_fx="sum"
        )
        self.add_state("total", torch.zeros((), dtype=torch.double), dist_reduce_fx="sum")
        self.add_state("images", torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")

    def update(self, scores: Tensor, target: Tensor, lists: Tensor | None = None) -> None:
        counts = metrics.jaccard_counts(decide(scores), target, **self.options)
        self.counts += counts.sum(0)
        valid = counts[counts[..., 2].sum(1) > 0]  # images that are all void do not count
        if len(valid):
            self.total += len(valid) * metrics.jaccard_from_counts(valid, classes=self.classes)
            self.images += len(valid)

    def compute(self) -> Tensor:
        if self.per_image:
            return self.total / self.images
        return metrics.jaccard_from_counts(self.counts[None], classes=self.classes)


class TopKMeasure(Metric):
    """Share of the samples whose label is among the k best scores."""

    higher_is_better = True
    full_state_update = False
    right: Tensor
    samples: Tensor

    def __init__(self, num_classes: int, k: int) -> None:
        super().__init__()
        if k >= num_classes:
            raise UserError(
                f"--metric top{k} needs more than {k} classes; the data have {num_classes}. Take a"
                " smaller k or accuracy."
            )
        self.k = k
        self.add_state("right", torch.zeros((), dtype=torch.double), dist_reduce_fx="sum")
        self.add_state("samples", torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")

    def update(self, scores: Tensor, target: Tensor, lists: Tensor | None = None) -> None:
        self.right += (1 - metrics.topk_error(scores, target, k=self.k)) * len(target)
        self.samples += len(target)

    def compute(self) -> Tensor:
        return self.right / self.samples


class RankingMeasure(Metric):
    """A function of all scores and labels; `by_list`: its mean over the lists, where the data are
    in lists.
    """

    higher_is_better = True
    full_state_update = False
    scores: list[Tensor]
    target: list[Tensor]
    lists: list[Tensor]

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor], by_list: bool) -> None:
        super().__init__()
        self.function, self.by_list = function, by_list
        for state in ("scores", "target", "lists"):
            self.add_state(state, [], dist_reduce_fx="cat")

    def update(self, scores: Tensor, target: Tensor, lists: Tensor | None = None) -> None:
        self.scores.append(scores)
        self.target.append(target)
        self.lists.append(torch.zeros_like(target) if lists is None else lists)

    def compute(self) -> Tensor:
        scores, target, lists = (
            dim_zero_cat(state) for state in (self.scores, self.target, self.lists)
        )
        groups = (
            [lists == number for number in lists.unique()]
            if self.by_list
            else [torch.ones_like(lists, dtype=torch.bool)]
        )
        values = torch.stack([self.function(scores[group], target[group]) for group in groups])
        # a list without a positive or without a negative is void
        return values[~values.isnan()].mean()
