"""`circles`, Lovász-Softmax, 4.1: which loss has its minimum where the Jaccard loss has its own?"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from evalgrad_lab.data.dataset import Part
from evalgrad_lab.data.embedded.circles import circles
from evalgrad_lab.fit import BatchLoss
from evalgrad_lab.metrics import Measure, thresholds
from evalgrad_lab.tasks.task import Method, Task, loss, measured

IMAGE_IOU = measured("segmentation", "image-iou")
RATES = {"learning_rate": (0.03, 0.1)}


class Bias(nn.Module):
    """Adds one learnt number to the features: all the paper's model has."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, features: Tensor) -> Tensor:
        return features + self.bias


def _balanced_bce(options: Mapping[str, Any], train: Part) -> BatchLoss:
    """Binary cross-entropy in which the foreground weighs as much as the background."""
    return loss("bce", positive_weight=float((train.target == 0).sum() / train.target.sum()))(
        options, train
    )


def _pairs(scores: Tensor, target: Tensor, threshold: float, lists: Tensor | None) -> Tensor:
    return torch.stack([scores, target.to(scores)], 1)


def _bias_found(rows: Tensor) -> Tensor:
    """How close the Jaccard loss at this bias comes to that at the best bias."""
    scores, target = rows[:, 0], rows[:, 1].long()
    iou = IMAGE_IOU["image IoU"]
    best = max(iou(scores, target, cut) for cut in thresholds(scores, 60))
    reached = iou(scores, target)
    return torch.tensor(1 - (max(best, reached) - reached))


CIRCLES = Task(
    name="circles",
    title="Circles (Lovász-Softmax, 4.1)",
    description=(
        "Ten circles of radius 3 to 20 on 50x50 noisy pixels; the model is one bias, judged on its"
        " training pixels."
    ),
    data=circles,
    model=Bias,
    measures={"1 - excess Jaccard loss": Measure(_pairs, _bias_found), **IMAGE_IOU},
    methods=(
        Method("bce", "baseline", loss("bce"), RATES),
        Method("hinge", "baseline", loss("hinge"), RATES),
        Method("balanced_bce", "baseline", _balanced_bce, RATES),
        Method("binary_soft_jaccard", "baseline", loss("binary_soft_jaccard"), RATES),
        Method("lovasz_hinge", "ours", loss("lovasz_hinge"), RATES),
    ),
    iterations=(200,),
)
