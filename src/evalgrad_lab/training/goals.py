"""What `--metric` can name: each goal knows its task, the loss that serves it, and how it is
measured.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torchmetrics import Metric

from evalgrad import metrics
from evalgrad_lab.errors import UserError
from evalgrad_lab.training.measures import JaccardMeasure, RankingMeasure, TopKMeasure

TASKS = ("segmentation", "classification", "ranking")
NAMES = (
    "miou, image-miou, image-iou, accuracy, top5 (any k), ap, ndcg, ndcg@10, f1,"
    " recall@precision=0.9, precision@recall=0.9"
)


@dataclass(frozen=True)
class Goal:
    """`measure(num_classes, ignore_index)` makes the metric; `loss` with `options` is what trains
    for it by default.
    """

    name: str
    task: str
    loss: str
    measure: Callable[[int, int], Metric]
    options: dict[str, Any] = field(default_factory=dict)
    k: int = 1  # guesses that count, for prediction


def parse_goal(name: str, task: str) -> Goal:
    """The goal that `--metric` names, if it is one of the task."""
    goal = _segmentation(name) or _classification(name) or _ranking(name)
    if goal is None:
        raise UserError(f"--metric must be one of {NAMES}; got {name!r}.")
    if goal.task != task:
        raise UserError(
            f"--metric {name} is a metric of {goal.task}, and --task is {task}. Change one of them."
        )
    return goal


def _segmentation(name: str) -> Goal | None:
    task = "segmentation"
    if name == "miou":
        return Goal(name, task, "lovasz_softmax", partial(JaccardMeasure, per_image=False))
    if name == "image-miou":
        return Goal(
            name,
            task,
            "lovasz_softmax",
            partial(JaccardMeasure, per_image=True),
            {"per_image": True},
        )
    if name == "image-iou":
        return Goal(
            name, task, "lovasz_hinge", partial(JaccardMeasure, per_image=True, foreground=True)
        )
    return None


def _classification(name: str) -> Goal | None:
    task = "classification"
    if name == "accuracy":
        return Goal(name, task, "cross_entropy", lambda classes, _: TopKMeasure(classes, 1))
    if match := re.fullmatch(r"top([1-9]\d*)", name):
        k = int(match[1])
        return Goal(
            name, task, "smooth_topk", lambda classes, _: TopKMeasure(classes, k), {"k": k}, k
        )
    return None


def _ranking(name: str) -> Goal | None:
    def goal(
        loss: str, function: Callable[..., Any], by_list: bool = False, **options: Any
    ) -> Goal:
        return Goal(
            name,
            "ranking",
            loss,
            lambda *_: RankingMeasure(partial(function, **options), by_list),
            options,
        )

    if name == "ap":
        return goal("direct_average_precision", metrics.average_precision, by_list=True)
    if match := re.fullmatch(r"ndcg(?:@([1-9]\d*))?", name):
        return goal(
            "direct_ndcg", metrics.ndcg, by_list=True, **({"k": int(match[1])} if match[1] else {})
        )
    if name == "f1":
        return goal("f_beta", metrics.fbeta_score)
    if match := re.fullmatch(r"(recall@precision|precision@recall)=(0?\.\d*[1-9]\d*|1)", name):
        if match[1] == "recall@precision":
            return goal(
                "recall_at_precision", metrics.recall_at_precision, precision=float(match[2])
            )
        return goal("precision_at_recall", metrics.precision_at_recall, recall=float(match[2]))
    return None
