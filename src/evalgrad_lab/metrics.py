"""The table of metrics by name: the loss for each, how it is computed, and its decision rules.
Higher is better.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor

from evalgrad import metrics
from evalgrad_lab import measures
from evalgrad_lab.decisions import Fit, Rule, best_threshold, mask, offsets, quantiles
from evalgrad_lab.errors import UserError
from evalgrad_lab.measures import Measure

POINTS = "recall@precision=0.9, precision@recall=0.9, sensitivity@specificity=0.9"
RANKED = f"ap, auc, auc@fpr=0.1, ndcg, ndcg@10, f1, dice, {POINTS}"
NAMES = {
    "segmentation": "miou, image-miou, image-iou, dice, image-dice, f1, auc",
    "classification": "accuracy, top5 (any k), f1, dice, auc",
    "ranking": RANKED,
    "multilabel": f"{RANKED}, miou",
}
TASKS = tuple(NAMES)
MASKS: dict[str, Rule] = {"image-iou": "jaccard_mask", "image-dice": "dice_mask"}
SHARE = r"(0?\.\d*[1-9]\d*|1)"


@dataclass(frozen=True)
class Metric:
    """A value of `--metric`. `measure(num_classes, ignore_index)` creates the `Measure`; `loss`
    with `options` is its default loss; `title` is its name in reports. `of_classes` and `of_one`
    are the decision rules that are tried besides argmax, for class scores, and a threshold of 0,
    for one score.
    """

    name: str
    title: str
    loss: str
    measure: Callable[[int, int], Measure]
    options: dict[str, Any] = field(default_factory=dict)
    k: int = 1  # guesses that count, for prediction
    of_classes: tuple[Fit, ...] = ()
    of_one: tuple[Fit, ...] = ()


def find(name: str, task: str) -> Metric:
    """The metric that `--metric` names, if it is one of the task."""
    metric = TABLES[task](name)
    others = [other for other, table in TABLES.items() if table(name)]
    if metric is None and others:
        tasks = " and ".join(others)
        raise UserError(
            f"--metric {name} is a metric of {tasks}, and --task is {task}. Change one of them."
        )
    if metric is None:
        raise UserError(f"--metric must be one of {NAMES[task]} for {task}; got {name!r}.")
    return metric


def _segmentation(name: str) -> Metric | None:
    def metric(title: str, loss: str, measure: Callable[..., Measure], **given: Any) -> Metric:
        options = {"per_image": True} if "by_image" in given else {}
        masks = (mask(MASKS[name]),) if name in MASKS else ()
        fits: Any = {"of_classes": (offsets,), "of_one": (quantiles, *masks)}
        return Metric(name, title, loss, partial(measure, **given), options, **fits)

    if name == "miou":
        return metric("mIoU", "lovasz_softmax", measures.overlap)
    if name == "image-miou":
        return metric("image mIoU", "lovasz_softmax", measures.overlap, by_image=True)
    if name == "dice":
        return metric("Dice", "lovasz_softmax", measures.overlap, dice=True)
    if name == "f1":  # of all classes that are true or predicted, as in scikit-learn
        every = {"classes": "all", "zero_division": math.nan}
        return metric("F1", "lovasz_softmax", measures.overlap, dice=True, **every)
    if name in ("image-iou", "image-dice"):
        dice = name == "image-dice"
        title = "image Dice" if dice else "image IoU"
        return metric(title, "lovasz_hinge", measures.foreground, name=name, dice=dice)
    return Metric(name, "AUC", "cross_entropy", measures.one_vs_rest) if name == "auc" else None


def _classification(name: str) -> Metric | None:
    if name in ("f1", "dice"):
        fits = (offsets,)
        return Metric(name, "F1", "lovasz_softmax", measures.macro_f1, of_classes=fits)
    if name == "auc":
        return Metric(name, "AUC", "cross_entropy", measures.one_vs_rest)
    match = re.fullmatch(r"top([1-9]\d*)", name)
    if name != "accuracy" and not match:
        return None
    k = int(match[1]) if match else 1
    title, loss = (f"top-{k} accuracy", "smooth_topk") if match else (name, "cross_entropy")
    options = {"k": k} if match else {}
    return Metric(name, title, loss, partial(measures.top_k, k), options, k)


def _ranking(name: str, columns: bool = False) -> Metric | None:
    """Of one ranking, or of each label of a multilabel task (`columns`) and the mean of them."""

    def metric(
        title: str, loss: str, function: Callable[..., Tensor], *fits: Fit, **options: Any
    ) -> Metric:
        by_list = function in (metrics.average_precision, metrics.ndcg)
        decides = function in (metrics.fbeta_score, measures.decided_jaccard)
        measure = measures.ranking(partial(function, **options), by_list, decides, columns)
        return Metric(name, title, loss, lambda *_: measure, options, of_one=fits)

    if name == "ap":
        return metric("AP", "direct_average_precision", metrics.average_precision)
    if match := re.fullmatch(r"ndcg(?:@([1-9]\d*))?", name):
        options = {"k": int(match[1])} if match[1] else {}
        return metric(name.upper(), "direct_ndcg", metrics.ndcg, **options)
    if name in ("f1", "dice"):
        return metric("F1", "f_beta", metrics.fbeta_score, best_threshold("fbeta"))
    if name == "miou" and columns:
        fit = best_threshold("jaccard")
        return metric("mIoU", "lovasz_hinge", measures.decided_jaccard, fit)
    if name == "auc":
        return metric("AUC", "roc_auc", metrics.roc_auc)
    if match := re.fullmatch(rf"auc@fpr={SHARE}", name):
        title, most = f"AUC up to FPR {float(match[1]):g}", {"max_fpr": float(match[1])}
        return metric(title, "partial_roc_auc", metrics.partial_roc_auc, **most)
    points = "recall@precision|precision@recall|sensitivity@specificity"
    if match := re.fullmatch(rf"({points})={SHARE}", name):
        given, share = match[1].partition("@")[2], float(match[2])
        title = f"{match[1].replace('@', ' at ')} {share:g}"
        loss = match[1].replace("@", "_at_")
        fit = best_threshold(loss, at_least=share)
        return metric(title, loss, getattr(metrics, loss), fit, **{given: share})
    return None


TABLES: dict[str, Callable[[str], Metric | None]] = {
    "segmentation": _segmentation,
    "classification": _classification,
    "ranking": _ranking,
    "multilabel": partial(_ranking, columns=True),
}
