"""Train on what you report: `two-mode` data judged by AP, R@P and F1, and a real imbalanced table
judged by F1 and P@R.
"""

from functools import partial

from evalgrad_lab.data.dataset import Sizes
from evalgrad_lab.data.embedded.mixtures import FEATURES, two_modes
from evalgrad_lab.data.embedded.one_vs_rest import digit_table
from evalgrad_lab.models.mlp import mlp
from evalgrad_lab.tasks.task import Method, Task, at_zero, loss, measured

THRESHOLDS = 100  # tried on validation: quantiles of the scores
MEASURES = measured("ranking", "f1", "ap", "recall@precision=0.9", "precision@recall=0.8")
MEASURES["F1 at 0"] = at_zero(MEASURES["F1"])
DECAYS = {"learning_rate": (0.03, 0.1), "weight_decay": (0.0, 0.1, 0.3, 1.0)}
WEIGHTS = {"learning_rate": (0.1,), "positive_weight": (0.1, 0.2, 0.3, 0.5, 2.0, 3.0, 5.0, 10.0)}
EPSILONS = {"learning_rate": (0.03, 0.1), "epsilon": (0.1, 1.0, 10.0, 100.0)}

BCE = Method("bce", "baseline", loss("bce"), DECAYS)
WEIGHTED_BCE = Method("weighted_bce", "baseline", loss("bce"), WEIGHTS)
DIRECT_AP = Method("direct_average_precision", "ours", loss("direct_average_precision"), EPSILONS)
F_BETA = Method("f_beta", "ours", loss("f_beta"), DECAYS)
RECALL_AT_PRECISION = Method(
    "recall_at_precision", "ours", loss("recall_at_precision", precision=0.9), DECAYS
)
PRECISION_AT_RECALL = Method(
    "precision_at_recall", "ours", loss("precision_at_recall", recall=0.8), DECAYS
)


def _two_mode(short: str, metric: str) -> Task:
    return Task(
        name=f"two-mode-{short}",
        title=f"Train on what you report: two-mode data by {metric}",
        description=(
            "A linear scorer of positives in two places, one pure, one with decoys beside it:"
            " objectives must disagree."
        ),
        designed=True,
        data=partial(two_modes, sizes=Sizes(2000, 2000, 4000)),
        model=partial(mlp, FEATURES),
        measures={metric: MEASURES[metric], **MEASURES},
        thresholds=THRESHOLDS,
        methods=(BCE, WEIGHTED_BCE, DIRECT_AP, F_BETA, RECALL_AT_PRECISION),
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
        thresholds=THRESHOLDS,
        methods=(BCE, WEIGHTED_BCE, F_BETA, PRECISION_AT_RECALL),
        iterations=(300,),
    )


TABLE = _table("digit-table", "Real table, linear", "A linear scorer", ())
TABLE_MLP = _table(
    "digit-table-mlp", "Real table, perceptron", "A perceptron of two layers of 64", (64, 64)
)
