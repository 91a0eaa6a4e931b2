"""`circles`, paper 001, 4.1: which loss has its minimum where the Jaccard loss has its own?"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from evalgrad_lab.data.dataset import Part
from evalgrad_lab.data.embedded.circles import circles
from evalgrad_lab.tasks import measures
from evalgrad_lab.tasks.task import Criterion, Loss, Task, objective

RATES = {"learning_rate": (0.03, 0.1)}


class Bias(nn.Module):
    """Adds one learnt number to the features: all the paper's model has."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, features: Tensor) -> Tensor:
        return features + self.bias


def _balanced_bce(options: Mapping[str, Any], train: Part) -> Criterion:
    """Binary cross-entropy in which the foreground weighs as much as the background."""
    return objective("bce", positive_weight=float((train.target == 0).sum() / train.target.sum()))(
        options, train
    )


CIRCLES = Task(
    name="circles",
    title="Circles (paper 001, 4.1)",
    description=(
        "Ten circles of radius 3 to 20 on 50x50 noisy pixels; the model is one bias, judged on its"
        " training pixels."
    ),
    data=circles,
    model=Bias,
    metric="1 - excess Jaccard loss",
    measure=measures.bias_found,
    losses=(
        Loss("bce", "baseline", objective("bce"), RATES),
        Loss("hinge", "baseline", objective("hinge"), RATES),
        Loss("balanced_bce", "baseline", _balanced_bce, RATES),
        Loss("binary_soft_jaccard", "baseline", objective("binary_soft_jaccard"), RATES),
        Loss("lovasz_hinge", "ours", objective("lovasz_hinge"), RATES),
    ),
    iterations=(200,),
    predict=lambda scores, threshold: (scores > 0).long(),
)
