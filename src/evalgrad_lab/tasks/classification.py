"""Judged by accuracy. `digits-100`: 100 classes in 20 groups of 5, by top-5 accuracy, with label
noise within the group or without. `s-digits`, after experiment 1 of S-measures: does an F1
regulariser on the size of the digit help to tell the digits apart?

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
from evalgrad_lab.data.dataset import Part, Sizes
from evalgrad_lab.data.embedded.digits import CANVAS, PAIRS, digit_pairs, s_digits
from evalgrad_lab.fit import BatchLoss
from evalgrad_lab.measures import Measure
from evalgrad_lab.models.mlp import mlp
from evalgrad_lab.tasks.task import Grid, Method, Task, baseline, measured, ours

DECAYS: Grid = {"weight_decay": (0.0, 0.1, 1.0)}
GRID: Grid = {"learning_rate": (0.001, 0.003), **DECAYS}
RATES: Grid = {"learning_rate": (0.001, 0.003, 0.01)}
DIGITS = 10
ACCURACY = measured("classification", "accuracy", num_classes=DIGITS)["accuracy"]


def _digits_100(noise: float) -> Task:
    share = "all" if noise == 1 else "no" if noise == 0 else f"{noise:.0%} of the"
    return Task(
        name=f"digits-100-p{noise:g}",
        title=f"digits-100, label noise {noise:g}",
        description=(
            f"2,000 pairs of real digits; {share} labels are redrawn within their group of five;"
            " early stopping for all."
        ),
        data=partial(digit_pairs, sizes=Sizes(2000, 1000, 2000), noise=noise),
        model=partial(mlp, 128, (256, 256), PAIRS),
        measures=measured("classification", "top5", "top1", num_classes=PAIRS),
        methods=(
            baseline("cross_entropy", GRID),
            *(
                ours("smooth_topk", GRID, f"smooth_topk, temperature {t:g}", temperature=t)
                for t in (0.1, 1.0)
            ),
        ),
        iterations=(600,),
        batch=100,
        keep_best=True,
    )


NOISY_LABELS, CLEAN_LABELS = _digits_100(1.0), _digits_100(0.0)


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


def _digit_rows(scores: Tensor, target: Tensor, lists: Tensor | None) -> Tensor:
    return ACCURACY.rows(scores[:, :DIGITS], target[:, 0], lists)


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
        Method("cross_entropy", "baseline", _cross_entropy, {**RATES, **DECAYS}),
        Method("cross_entropy + size", "ours", _with_size, {**RATES, "alpha": (0.01, 0.1, 1.0)}),
    ),
    iterations=(440,),
    batch=100,
)
