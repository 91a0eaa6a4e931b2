"""`s-digits`, after experiment 1 of paper 002: does an F1 regulariser on the size of the digit help
to tell the digits apart?

The paper's classifier is linear. There the node that predicts the size shares no parameter with the
digits, so the regulariser cannot change them; here both read one hidden layer.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor

import evalgrad as eg
from evalgrad_lab.data.dataset import Part
from evalgrad_lab.data.embedded.s_digits import CANVAS, s_digits
from evalgrad_lab.models.mlp import mlp
from evalgrad_lab.tasks import measures
from evalgrad_lab.tasks.task import Criterion, Loss, Task

DIGITS = 10


def _cross_entropy(options: Mapping[str, Any], train: Part) -> Criterion:
    return lambda scores, target, index: F.cross_entropy(scores[:, :DIGITS], target[:, 0])


def _with_size(options: Mapping[str, Any], train: Part) -> Criterion:
    """Cross-entropy of the digit + alpha * F1 loss of the size, whose score is the last column."""
    size = eg.FBeta(labels=train.target[:, 1])

    def criterion(scores: Tensor, target: Tensor, index: Tensor) -> Tensor:
        regulariser = size(scores[:, DIGITS], target[:, 1], index=index)
        return F.cross_entropy(scores[:, :DIGITS], target[:, 0]) + options["alpha"] * regulariser

    return criterion


S_DIGITS = Task(
    name="s-digits",
    title="s-digits (paper 002, experiment 1)",
    description=(
        "Real digits, doubled in size in half of the images; the regulariser predicts the size from"
        " a shared layer of 64."
    ),
    data=s_digits,
    model=partial(mlp, CANVAS**2, (64,), DIGITS + 1),
    metric="accuracy",
    measure=measures.digit_accuracy,
    losses=(
        Loss(
            "cross_entropy",
            "baseline",
            _cross_entropy,
            {"learning_rate": (0.001, 0.003, 0.01), "weight_decay": (0.0, 0.1, 1.0)},
        ),
        Loss(
            "cross_entropy + size",
            "ours",
            _with_size,
            {"learning_rate": (0.001, 0.003, 0.01), "alpha": (0.01, 0.1, 1.0)},
        ),
    ),
    iterations=(440,),
    batch=100,
)
