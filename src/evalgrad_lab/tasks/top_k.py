"""`digits-100`: 100 classes in 20 groups of 5, judged by top-5 accuracy, with label noise within
the group or without.
"""

from functools import partial

from evalgrad_lab.data.dataset import Sizes
from evalgrad_lab.data.embedded.pairs import CLASSES, digit_pairs
from evalgrad_lab.models.mlp import mlp
from evalgrad_lab.tasks.task import Method, Task, loss, measured

GRID = {"learning_rate": (0.001, 0.003), "weight_decay": (0.0, 0.1, 1.0)}


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
        model=partial(mlp, 128, (256, 256), CLASSES),
        measures=measured("classification", "top5", "top1", num_classes=CLASSES),
        methods=(
            Method("cross_entropy", "baseline", loss("cross_entropy"), GRID),
            Method(
                "smooth_topk, temperature 0.1",
                "ours",
                loss("smooth_topk", temperature=0.1),
                GRID,
            ),
            Method(
                "smooth_topk, temperature 1",
                "ours",
                loss("smooth_topk", temperature=1.0),
                GRID,
            ),
        ),
        iterations=(600,),
        batch=100,
        keep_best=True,
    )


NOISY_LABELS, CLEAN_LABELS = _digits_100(1.0), _digits_100(0.0)
