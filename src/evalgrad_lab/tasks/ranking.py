"""Average precision: `teacher-ranking` (direct loss, 4.1), `hopeless-positives` (designed) and
`noisy-digits` (ten real rankings).
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from evalgrad_lab.data.dataset import Part, Sizes
from evalgrad_lab.data.embedded.mixtures import FEATURES, hopeless_positives
from evalgrad_lab.data.embedded.one_vs_rest import noisy_digits
from evalgrad_lab.data.embedded.teachers import teacher_ranking
from evalgrad_lab.fit import BatchLoss
from evalgrad_lab.models.mlp import mlp
from evalgrad_lab.tasks.task import Build, Method, Task, loss, measured

TEACHER = {"learning_rate": (0.01, 0.03), "weight_decay": (0.0, 0.1)}
TEACHER_DIRECT = {"learning_rate": (0.01, 0.03), "epsilon": (0.3, 3.0)}
HOPELESS = {"learning_rate": (0.03, 0.1), "weight_decay": (0.0, 0.1, 1.0, 3.0)}
DECAYS = (0.0, 0.3, 1.0, 3.0)
NOISY = {"learning_rate": (0.01, 0.03, 0.1), "weight_decay": DECAYS}


def _by_column(build: Build) -> Build:
    """One list per column of scores (n, lists): the losses want the items on the last axis."""

    def transposed(options: Mapping[str, Any], train: Part) -> BatchLoss:
        loss = build(options, train)
        return lambda scores, batch: loss(scores.T, replace(batch, target=batch.target.T))

    return transposed


TEACHER_RANKING = Task(
    name="teacher-ranking",
    title="Teacher ranking (direct loss, 4.1)",
    description=(
        "10,000 Gaussian points; a four-layer ReLU network learns the top fifth of a random network"
        " of its own kind."
    ),
    data=teacher_ranking,
    model=partial(mlp, 10, (20, 20, 20)),
    measures=measured("ranking", "ap"),
    methods=(
        Method("bce", "baseline", loss("bce"), TEACHER),
        Method("average_precision_hinge", "baseline", loss("average_precision_hinge"), TEACHER),
        Method("zero_one_hinge", "baseline", loss("zero_one_hinge"), TEACHER),
        Method(
            "average_precision_perceptron",
            "baseline",
            loss("average_precision_perceptron"),
            TEACHER,
        ),
        Method("zero_one_perceptron", "baseline", loss("zero_one_perceptron"), TEACHER),
        Method(
            "direct_average_precision",
            "ours",
            loss("direct_average_precision"),
            TEACHER_DIRECT,
        ),
        Method(
            "direct_average_precision, negative",
            "ours",
            loss("direct_average_precision", direction="negative"),
            TEACHER_DIRECT,
        ),
        Method("direct_zero_one", "ours", loss("direct_zero_one"), TEACHER_DIRECT),
        Method(
            "direct_zero_one, negative",
            "ours",
            loss("direct_zero_one", direction="negative"),
            TEACHER_DIRECT,
        ),
    ),
    iterations=(300,),
)

HOPELESS_POSITIVES = Task(
    name="hopeless-positives",
    title="Hopeless positives",
    description=(
        "A linear scorer; one item in ten is positive, and three tenths of the positives lie far on"
        " the wrong side."
    ),
    designed=True,
    data=partial(hopeless_positives, sizes=Sizes(2000, 2000, 4000)),
    model=partial(mlp, FEATURES),
    measures=measured("ranking", "ap"),
    methods=(
        Method("bce", "baseline", loss("bce"), HOPELESS),
        Method(
            "weighted_bce",
            "baseline",
            loss("bce"),
            {"learning_rate": (0.1,), "positive_weight": (0.03, 0.1, 0.2, 0.3, 0.5, 2, 4, 10)},
        ),
        Method("average_precision_hinge", "baseline", loss("average_precision_hinge"), HOPELESS),
        Method(
            "direct_average_precision",
            "ours",
            loss("direct_average_precision"),
            {"learning_rate": (0.03, 0.1), "epsilon": (0.1, 1.0, 10.0, 100.0)},
        ),
    ),
    iterations=(300,),
)

NOISY_DIGITS = Task(
    name="noisy-digits",
    title="Noisy digits, one against the rest",
    description=(
        "Ten linear scorers of real digits; 40 % of each digit's labels are swapped except in the"
        " test."
    ),
    data=noisy_digits,
    model=partial(mlp, 64, (), 10),
    measures=measured("ranking", "ap"),
    methods=(
        Method("bce", "baseline", _by_column(loss("bce")), NOISY),
        Method(
            "weighted_bce",
            "baseline",
            _by_column(loss("bce")),
            {"learning_rate": (0.03,), "weight_decay": DECAYS, "positive_weight": (0.3, 3.0, 9.0)},
        ),
        Method(
            "average_precision_hinge",
            "baseline",
            _by_column(loss("average_precision_hinge")),
            NOISY,
        ),
        Method(
            "direct_average_precision",
            "ours",
            _by_column(loss("direct_average_precision")),
            {"learning_rate": (0.03,), "weight_decay": DECAYS, "epsilon": (0.1, 1.0, 10.0)},
        ),
    ),
    iterations=(300,),
)
