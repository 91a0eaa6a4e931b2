"""Binary items. By average precision: `teacher-ranking` (direct loss, 4.1), `hopeless-positives`
(designed) and `noisy-digits` (ten real rankings). By what you report: designed `two-mode` data with
AP, R@P and F1, and a real imbalanced `digit-table` with F1 and P@R.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from evalgrad_lab.data.dataset import Part, Sizes
from evalgrad_lab.data.embedded.digits import digit_table, noisy_digits
from evalgrad_lab.data.embedded.points import (
    FEATURES,
    hopeless_positives,
    teacher_ranking,
    two_modes,
)
from evalgrad_lab.decisions import best_threshold
from evalgrad_lab.fit import BatchLoss
from evalgrad_lab.models.mlp import mlp
from evalgrad_lab.tasks.task import Grid, Method, Task, baseline, by_default, measured, ours

SIZES = Sizes(2000, 2000, 4000)  # of designed data
TEACHER: Grid = {"learning_rate": (0.01, 0.03), "weight_decay": (0.0, 0.1)}
TEACHER_DIRECT: Grid = {"learning_rate": (0.01, 0.03), "epsilon": (0.3, 3.0)}
HOPELESS: Grid = {"learning_rate": (0.03, 0.1), "weight_decay": (0.0, 0.1, 1.0, 3.0)}
HOPELESS_WEIGHTS = {"positive_weight": (0.03, 0.1, 0.2, 0.3, 0.5, 2, 4, 10)}
DECAYS: Grid = {"weight_decay": (0.0, 0.3, 1.0, 3.0)}
NOISY: Grid = {"learning_rate": (0.01, 0.03, 0.1), **DECAYS}
NOISY_DECAYS: Grid = {"learning_rate": (0.03,), **DECAYS}
EPSILONS: Grid = {"learning_rate": (0.03, 0.1), "epsilon": (0.1, 1.0, 10.0, 100.0)}
TWO: Grid = {"learning_rate": (0.03, 0.1), "weight_decay": (0.0, 0.1, 0.3, 1.0)}
TWO_WEIGHTS = {"positive_weight": (0.1, 0.2, 0.3, 0.5, 2.0, 3.0, 5.0, 10.0)}
MEASURES = measured("ranking", "f1", "ap", "recall@precision=0.9", "precision@recall=0.8")
MEASURES["F1 at 0"] = by_default(MEASURES["F1"])
THRESHOLD = (best_threshold("fbeta"),)


def _by_column(method: Method) -> Method:
    """One list per column of scores (n, lists): the losses want the items on the last axis."""

    def transposed(options: Mapping[str, Any], train: Part) -> BatchLoss:
        loss = method.build(options, train)
        return lambda scores, batch: loss(scores.T, replace(batch, target=batch.target.T))

    return replace(method, build=transposed)


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
        baseline("bce", TEACHER),
        baseline("average_precision_hinge", TEACHER),
        baseline("zero_one_hinge", TEACHER),
        baseline("average_precision_perceptron", TEACHER),
        baseline("zero_one_perceptron", TEACHER),
        *(
            ours(name, TEACHER_DIRECT, f"{name}{called}", direction=direction)
            for name in ("direct_average_precision", "direct_zero_one")
            for direction, called in (("positive", ""), ("negative", ", negative"))
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
    data=partial(hopeless_positives, sizes=SIZES),
    model=partial(mlp, FEATURES),
    measures=measured("ranking", "ap"),
    methods=(
        baseline("bce", HOPELESS),
        baseline("bce", {"learning_rate": (0.1,), **HOPELESS_WEIGHTS}, "weighted_bce"),
        baseline("average_precision_hinge", HOPELESS),
        ours("direct_average_precision", EPSILONS),
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
        _by_column(baseline("bce", NOISY)),
        _by_column(
            baseline("bce", {**NOISY_DECAYS, "positive_weight": (0.3, 3.0, 9.0)}, "weighted_bce")
        ),
        _by_column(baseline("average_precision_hinge", NOISY)),
        _by_column(ours("direct_average_precision", {**NOISY_DECAYS, "epsilon": (0.1, 1.0, 10.0)})),
    ),
    iterations=(300,),
)

BCE = baseline("bce", TWO)
WEIGHTED_BCE = baseline("bce", {"learning_rate": (0.1,), **TWO_WEIGHTS}, "weighted_bce")
F_BETA = ours("f_beta", TWO)


def _two_mode(short: str, metric: str) -> Task:
    return Task(
        name=f"two-mode-{short}",
        title=f"Train on what you report: two-mode data by {metric}",
        description=(
            "A linear scorer of positives in two places, one pure, one with decoys beside it:"
            " objectives must disagree."
        ),
        designed=True,
        data=partial(two_modes, sizes=SIZES),
        model=partial(mlp, FEATURES),
        measures={metric: MEASURES[metric], **MEASURES},
        decided=THRESHOLD,
        methods=(
            BCE,
            WEIGHTED_BCE,
            ours("direct_average_precision", EPSILONS),
            F_BETA,
            ours("recall_at_precision", TWO, precision=0.9),
        ),
        iterations=(300,),
    )


TWO_MODE_AP = _two_mode("ap", "AP")
TWO_MODE_RECALL = _two_mode("recall", "recall at precision 0.9")
TWO_MODE_F1 = _two_mode("f1", "F1")


def _table(name: str, title: str, network: str, widths: tuple[int, ...]) -> Task:
    return Task(
        name=name,
        title=title,
        description=(
            f"Is it an eight, from 4x4 pixels? One in ten is. {network}; decision thresholds are"
            " chosen on validation."
        ),
        data=digit_table,
        model=partial(mlp, 16, widths),
        measures=MEASURES,
        decided=THRESHOLD,
        methods=(BCE, WEIGHTED_BCE, F_BETA, ours("precision_at_recall", TWO, recall=0.8)),
        iterations=(300,),
    )


TABLE = _table("digit-table", "Real table, linear", "A linear scorer", ())
TABLE_MLP = _table(
    "digit-table-mlp", "Real table, perceptron", "A perceptron of two layers of 64", (64, 64)
)
