"""The tasks of `make demo`: where training on the metric helps, where it does not, and data
designed to show it.

It is sized to take at most five minutes on two idle cores.
"""

from dataclasses import dataclass

from evalgrad_lab import tasks
from evalgrad_lab.tasks.task import EQUAL_TIME, Task


@dataclass(frozen=True)
class Selection:
    """A task, and which of its budgets, losses and seeds to show; None shows all."""

    task: Task
    budgets: tuple[str, ...] | None = None
    losses: tuple[str, ...] | None = None
    seeds: int | None = None


# Weighted cross-entropy is in every panel of the scenes: without it the gain would be over a weaker
# baseline than there is.
SCENES = ("cross_entropy", "weighted_cross_entropy", "lovasz_softmax")
TOP_FIVE = ("cross_entropy", "smooth_topk, temperature 0.1")
TEACHER = ("bce", "average_precision_hinge", "direct_average_precision")

# The longest runs come first, so that no core waits for them at the end.
DEMO = [
    Selection(tasks.find("digit-scenes"), ("500 iterations",), (*SCENES, "loss_max_pooling")),
    Selection(tasks.find("digit-scenes"), (EQUAL_TIME,), SCENES),
    Selection(tasks.find("digit-scenes"), ("1000 iterations",), SCENES[1:]),
    Selection(tasks.find("teacher-ranking"), ("300 iterations",), TEACHER, seeds=3),
    Selection(tasks.find("digits-100-p1"), ("600 iterations",), TOP_FIVE),
    Selection(tasks.find("digits-100-p0"), ("600 iterations",), TOP_FIVE, seeds=3),
    Selection(tasks.find("circles"), ("200 iterations",)),
    Selection(tasks.find("two-mode-ap"), ("300 iterations",)),
    Selection(tasks.find("two-mode-recall"), ("300 iterations",)),
    Selection(tasks.find("two-mode-f1"), ("300 iterations",)),
    Selection(tasks.find("hopeless-positives"), ("300 iterations",)),
    Selection(tasks.find("noisy-digits"), ("300 iterations",)),
    Selection(tasks.find("digit-table-mlp"), ("300 iterations",)),
]
