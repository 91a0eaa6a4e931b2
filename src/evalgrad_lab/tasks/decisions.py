"""Train on what you report: `two-mode` data judged by AP, R@P and F1, and a real imbalanced table
judged by F1 and P@R.
"""

from functools import partial

from evalgrad_lab.data.dataset import Sizes
from evalgrad_lab.data.embedded.mixtures import FEATURES, two_modes
from evalgrad_lab.data.embedded.one_vs_rest import digit_table
from evalgrad_lab.models.mlp import mlp
from evalgrad_lab.tasks import measures
from evalgrad_lab.tasks.task import Loss, Task, objective

DECAYS = {"learning_rate": (0.03, 0.1), "weight_decay": (0.0, 0.1, 0.3, 1.0)}
WEIGHTS = {"learning_rate": (0.1,), "positive_weight": (0.1, 0.2, 0.3, 0.5, 2.0, 3.0, 5.0, 10.0)}
EPSILONS = {"learning_rate": (0.03, 0.1), "epsilon": (0.1, 1.0, 10.0, 100.0)}

BCE = Loss("bce", "baseline", objective("bce"), DECAYS)
WEIGHTED_BCE = Loss("weighted_bce", "baseline", objective("bce"), WEIGHTS)
DIRECT_AP = Loss(
    "direct_average_precision", "ours", objective("direct_average_precision"), EPSILONS
)
F_BETA = Loss("f_beta", "ours", objective("f_beta"), DECAYS)
RECALL_AT_PRECISION = Loss(
    "recall_at_precision", "ours", objective("recall_at_precision", precision=0.9), DECAYS
)
PRECISION_AT_RECALL = Loss(
    "precision_at_recall", "ours", objective("precision_at_recall", recall=0.8), DECAYS
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
        metric=metric,
        measure=measures.decisions,
        threshold=measures.best_f1_threshold,
        losses=(BCE, WEIGHTED_BCE, DIRECT_AP, F_BETA, RECALL_AT_PRECISION),
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
        metric="F1",
        measure=measures.decisions,
        threshold=measures.best_f1_threshold,
        losses=(BCE, WEIGHTED_BCE, F_BETA, PRECISION_AT_RECALL),
        iterations=(300,),
    )


TABLE = _table("digit-table", "Real table, linear", "A linear scorer", ())
TABLE_MLP = _table(
    "digit-table-mlp", "Real table, perceptron", "A perceptron of two layers of 64", (64, 64)
)
