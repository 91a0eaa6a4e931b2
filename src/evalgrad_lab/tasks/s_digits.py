"""`s-digits`, after experiment 1 of S-measures: does an F1 regulariser on the size of the digit
help to tell the digits apart?

The paper's classifier is linear. There the node that predicts the size shares no parameter with the
digits, so the regulariser cannot change them; here both read one hidden layer.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor

import evalgrad as eg
from evalgrad_lab.data.batches import Batch
from evalgrad_lab.data.dataset import Part
from evalgrad_lab.data.embedded.s_digits import CANVAS, s_digits
from evalgrad_lab.fit import BatchLoss
from evalgrad_lab.metrics import Measure
from evalgrad_lab.models.mlp import mlp
from evalgrad_lab.tasks.task import Method, Task, measured

DIGITS = 10
ACCURACY = measured("classification", "accuracy", num_classes=DIGITS)["accuracy"]


def _cross_entropy(options: Mapping[str, Any], train: Part) -> BatchLoss:
    return lambda scores, batch: F.cross_entropy(scores[:, :DIGITS], batch.target[:, 0])


def _with_size(options: Mapping[str, Any], train: Part) -> BatchLoss:
    """Cross-entropy of the digit + alpha * F1 loss of the size, whose score is the last column."""
    size = eg.FBeta(labels=train.target[:, 1])

    def loss(scores: Tensor, batch: Batch) -> Tensor:
        digit, large = batch.target.unbind(1)
        regulariser = size(scores[:, DIGITS], large, index=batch.index)
        return F.cross_entropy(scores[:, :DIGITS], digit) + options["alpha"] * regulariser

    return loss


def _digit_rows(scores: Tensor, target: Tensor, threshold: float, lists: Tensor | None) -> Tensor:
    return ACCURACY.rows(scores[:, :DIGITS], target[:, 0], threshold, lists)


S_DIGITS = Task(
    name="s-digits",
    title="s-digits (S-measures, experiment 1)",
    description=(
        "Real digits, doubled in size in half of the images; the regulariser predicts the size from"
        " a shared layer of 64."
    ),
    data=s_digits,
    model=partial(mlp, CANVAS**2, (64,), DIGITS + 1),
    measures={"accuracy": Measure(_digit_rows, ACCURACY.value)},
    methods=(
        Method(
            "cross_entropy",
            "baseline",
            _cross_entropy,
            {"learning_rate": (0.001, 0.003, 0.01), "weight_decay": (0.0, 0.1, 1.0)},
        ),
        Method(
            "cross_entropy + size",
            "ours",
            _with_size,
            {"learning_rate": (0.001, 0.003, 0.01), "alpha": (0.01, 0.1, 1.0)},
        ),
    ),
    iterations=(440,),
    batch=100,
)
