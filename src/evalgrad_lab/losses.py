"""The table of losses by name, for `--loss`, `--losses` and `evalgrad losses`. It does not import
torch, so that the last is quick; `phases` creates the losses.

The kind of a task determines the arguments of its losses:

- "segmentation", "classification": scores ``(N, C, *)``, class indices ``(N, *)``;
- "binary segmentation": scores and labels 0 or 1, both ``(N, *)``;
- "ranking" (any binary task on items): scores and labels 0 or 1, both ``(n,)`` or ``(lists, n)``;
- "multilabel": scores and labels 0 or 1, both ``(N, C)``: each column is a task of its own.
"""

import difflib
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from evalgrad_lab.errors import UserError

Kind = Literal["segmentation", "binary segmentation", "classification", "ranking", "multilabel"]
KINDS = get_args(Kind)
PIXELS, BINARY, CLASSES, RANKING, LABELS = ((kind,) for kind in KINDS)


@dataclass(frozen=True)
class Loss:
    """A loss, called as (scores, target). `factory` names the class of evalgrad that creates it
    from its options; without one, it is the function of that name in `loss_factories`.

    `needs` names a required option that is computed from the training data: "weight" (class
    weights), "labels" (those of all training items; the loss is then called with `index=` too), or
    "" for none. `columns` are the options that make each column of a multilabel task a task of its
    own.
    """

    kinds: tuple[str, ...]
    metric: str
    guidance: str
    factory: str = ""
    needs: str = ""
    columns: dict[str, Any] = field(default_factory=dict)

    @property
    def takes_index(self) -> bool:
        return self.needs == "labels"


def _of_all_items(metric: str, guidance: str, factory: str) -> Loss:
    """An S-measure, which needs the labels of the whole training set, column by column."""
    return Loss(RANKING + LABELS, metric, guidance, factory, needs="labels")


def _of_columns(metric: str, guidance: str, factory: str) -> Loss:
    """A ranking loss, of every column by itself."""
    return Loss(RANKING + LABELS, metric, guidance, factory, columns={"dim": 0})


LOSSES: dict[str, Loss] = {
    "cross_entropy": Loss(
        PIXELS + CLASSES,
        "accuracy",
        "the baseline; good when classes are balanced or training is long",
    ),
    "weighted_cross_entropy": Loss(
        PIXELS + CLASSES,
        "mean class accuracy",
        "improves rare classes at the cost of false alarms; the baseline to beat under imbalance",
        "cross_entropy",
        needs="weight",
    ),
    "bootstrapped_cross_entropy": Loss(
        PIXELS,
        "accuracy",
        "trains on the hardest pixels; a cheap way to help rare classes",
        "BootstrappedCrossEntropy",
    ),
    "loss_max_pooling": Loss(
        PIXELS,
        "mean class accuracy",
        "gives the hardest pixels more weight; helps with imbalance without class weights",
    ),
    "soft_jaccard": Loss(
        PIXELS, "miou", "IoU with probabilities; simple, not tight", "SoftJaccardLoss"
    ),
    "lovasz_softmax": Loss(
        PIXELS + CLASSES,
        "miou",
        "the first choice for mean IoU; gains most with rare classes and short training",
        "LovaszSoftmaxLoss",
    ),
    "bce": Loss(
        BINARY + RANKING + LABELS,
        "accuracy",
        "the baseline; tune its decision threshold before you compare",
    ),
    "hinge": Loss(BINARY + RANKING + LABELS, "accuracy", "large margin for decisions at score 0"),
    "binary_soft_jaccard": Loss(
        BINARY, "image-iou", "IoU of the foreground with probabilities; strong on thin shapes"
    ),
    "binary_loss_max_pooling": Loss(
        BINARY, "mean class accuracy", "gives the hardest pixels more weight; for little foreground"
    ),
    "lovasz_hinge": Loss(
        BINARY + LABELS,
        "image-iou",
        "the first choice for the IoU of each image, or of each label; `empty` says what images"
        " without foreground do",
        "LovaszHingeLoss",
        columns={"per_class": True, "per_image": False},
    ),
    "direct_jaccard": Loss(
        BINARY,
        "image-iou",
        "the IoU itself by direct loss minimisation; tune epsilon and the learning rate",
    ),
    "smooth_topk": Loss(
        CLASSES,
        "top5",
        "top-k accuracy under label noise or many confusable classes; try temperature 0.1 and 1",
        "SmoothTopKLoss",
    ),
    "topk_hinge": Loss(
        CLASSES,
        "top5",
        "the sparse limit of smooth top-k; hard to train, shown for comparison",
        "TopKHingeLoss",
    ),
    "direct_average_precision": _of_columns(
        "ap",
        "the first choice for AP with a small model or noisy positives; tune epsilon",
        "DirectAveragePrecisionLoss",
    ),
    "direct_ndcg": _of_columns(
        "ndcg", "the first choice for NDCG@k; tune epsilon", "DirectNDCGLoss"
    ),
    "average_precision_hinge": _of_columns(
        "ap",
        "the structured SVM of AP; safe, pessimistic about outliers",
        "AveragePrecisionHingeLoss",
    ),
    "average_precision_perceptron": Loss(
        RANKING,
        "ap",
        "ranks pairs without a margin; shown for comparison",
        "AveragePrecisionPerceptronLoss",
    ),
    "direct_zero_one": Loss(
        RANKING,
        "accuracy",
        "decisions at score 0 by direct loss minimisation; can collapse",
        "DirectZeroOneLoss",
    ),
    "zero_one_hinge": Loss(
        RANKING, "accuracy", "the hinge loss of decisions at score 0, per list", "ZeroOneHingeLoss"
    ),
    "zero_one_perceptron": Loss(
        RANKING, "accuracy", "the perceptron; shown for comparison", "ZeroOnePerceptronLoss"
    ),
    "f_beta": _of_all_items(
        "f1", "F-beta at score 0 without tuning a threshold; best with small models", "FBeta"
    ),
    "roc_auc": _of_all_items(
        "auc",
        "true-positive rates at ten false-positive rates; its thresholds are learnt too",
        "ROCAUC",
    ),
    "recall_at_precision": _of_all_items(
        "recall@precision", "highest recall at a given precision", "RecallAtPrecision"
    ),
    "precision_at_recall": _of_all_items(
        "precision@recall", "highest precision at a given recall", "PrecisionAtRecall"
    ),
    "sensitivity_at_specificity": _of_all_items(
        "sensitivity@specificity",
        "highest sensitivity at a given specificity",
        "SensitivityAtSpecificity",
    ),
    "partial_roc_auc": _of_all_items(
        "auc@fpr",
        "the ROC curve up to a false-positive rate; its thresholds are learnt too",
        "PartialROCAUC",
    ),
}


def find(name: str) -> Loss:
    """The loss of that name; ``first+second`` is the weighted sum of two."""
    if "+" in name:
        return _sum_of(*name.split("+", 1))
    if name not in LOSSES:
        near = difflib.get_close_matches(name, LOSSES, n=3, cutoff=0.4)
        hint = f"Did you mean {' or '.join(near)}?" if near else "See `evalgrad losses`."
        raise UserError(f"the loss must be one that `evalgrad losses` lists; got {name!r}. {hint}")
    return LOSSES[name]


def _sum_of(first: str, second: str) -> Loss:
    parts = find(first), find(second)
    kinds = tuple(kind for kind in parts[0].kinds if kind in parts[1].kinds)
    if not kinds:
        raise UserError(
            f"a sum must be of losses for the same task; {first} is for {parts[0].kinds}, {second}"
            f" for {parts[1].kinds}."
        )
    guidance = f"{first} and {second} together; `share` is the share of the latter"
    needs = "labels" if any(part.takes_index for part in parts) else ""
    return Loss(kinds, parts[1].metric, guidance, needs=needs)
