"""Judged by top-5 accuracy: `digits-100`, 100 classes in 20 groups of five, with label noise within
the group or without.
"""

from functools import partial

from evalgrad_lab.data.dataset import Sizes
from evalgrad_lab.data.embedded.digits import PAIRS, digit_pairs
from evalgrad_lab.models.mlp import mlp
from evalgrad_lab.tasks.task import Grid, Task, baseline, measured, ours

GRID: Grid = {"learning_rate": (0.001, 0.003), "weight_decay": (0.0, 0.1, 1.0)}


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
