"""The losses by name: what each is for, and how to make it. Read by `--loss`, `--losses` and
`evalgrad losses`.

A task is of one kind, which fixes what a loss is given:

- "segmentation", "classification": scores ``(N, C, *)``, class indices ``(N, *)``;
- "binary segmentation": scores and labels 0 or 1, both ``(N, *)``;
- "ranking" (any binary task on items): scores and labels 0 or 1, both ``(n,)`` or ``(lists, n)``.
"""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

import evalgrad as eg
from evalgrad_lab import loss_factories
from evalgrad_lab.errors import UserError

KINDS = ("segmentation", "binary segmentation", "classification", "ranking")
PIXELS, BINARY, CLASSES, RANKING = ((kind,) for kind in KINDS)


@dataclass(frozen=True)
class Objective:
    """One loss: `factory(**options)` makes a callable (scores, target) -> scalar; with
    `takes_index` also `index=`.

    `needs` names the option that must be given and comes from the training data: "weight" (class
    weights), "labels" (of every training item, in the order of `index`), or "" for none.
    """

    kinds: tuple[str, ...]
    metric: str
    guidance: str
    factory: Callable[..., Callable[..., Tensor]]
    needs: str = ""
    takes_index: bool = False


OBJECTIVES: dict[str, Objective] = {
    "cross_entropy": Objective(
        PIXELS + CLASSES,
        "accuracy",
        "the baseline; good when classes are balanced or training is long",
        loss_factories.cross_entropy,
    ),
    "weighted_cross_entropy": Objective(
        PIXELS + CLASSES,
        "mean class accuracy",
        "lifts rare classes at the price of false alarms; the baseline to beat under imbalance",
        loss_factories.cross_entropy,
        needs="weight",
    ),
    "bootstrapped_cross_entropy": Objective(
        PIXELS,
        "accuracy",
        "trains on the hardest pixels; a cheap help for rare classes",
        eg.BootstrappedCrossEntropy,
    ),
    "loss_max_pooling": Objective(
        PIXELS,
        "mean class accuracy",
        "weighs pixels by the worst case; against imbalance without class weights",
        loss_factories.loss_max_pooling,
    ),
    "soft_jaccard": Objective(
        PIXELS, "miou", "IoU with probabilities; simple, not tight", eg.SoftJaccardLoss
    ),
    "lovasz_softmax": Objective(
        PIXELS,
        "miou",
        "the first choice for mean IoU; gains most with rare classes and short training",
        eg.LovaszSoftmaxLoss,
    ),
    "bce": Objective(
        BINARY + RANKING,
        "accuracy",
        "the baseline; tune its decision threshold before you compare",
        loss_factories.bce,
    ),
    "hinge": Objective(
        BINARY + RANKING, "accuracy", "large margin for decisions at score 0", loss_factories.hinge
    ),
    "binary_soft_jaccard": Objective(
        BINARY,
        "image-iou",
        "IoU of the foreground with probabilities; strong on thin shapes",
        loss_factories.binary_soft_jaccard,
    ),
    "binary_loss_max_pooling": Objective(
        BINARY,
        "mean class accuracy",
        "weighs pixels by the worst case, for little foreground",
        loss_factories.binary_loss_max_pooling,
    ),
    "lovasz_hinge": Objective(
        BINARY,
        "image-iou",
        "the first choice for the IoU of each image; `empty` says what images without"
        " foreground do",
        eg.LovaszHingeLoss,
    ),
    "direct_jaccard": Objective(
        BINARY,
        "image-iou",
        "the IoU itself by direct loss minimisation; tune epsilon and the learning rate",
        loss_factories.direct_jaccard,
    ),
    "smooth_topk": Objective(
        CLASSES,
        "top5",
        "top-k accuracy under label noise or many confusable classes; try temperature 0.1 and 1",
        eg.SmoothTopKLoss,
    ),
    "topk_hinge": Objective(
        CLASSES,
        "top5",
        "the sparse limit of smooth top-k; hard to train, shown for comparison",
        eg.TopKHingeLoss,
    ),
    "direct_average_precision": Objective(
        RANKING,
        "ap",
        "the first choice for AP with a small model or noisy positives; tune epsilon",
        eg.DirectAveragePrecisionLoss,
    ),
    "direct_ndcg": Objective(
        RANKING, "ndcg", "the first choice for NDCG@k; tune epsilon", eg.DirectNDCGLoss
    ),
    "average_precision_hinge": Objective(
        RANKING,
        "ap",
        "the structured SVM of AP; safe, pessimistic about outliers",
        eg.AveragePrecisionHingeLoss,
    ),
    "average_precision_perceptron": Objective(
        RANKING,
        "ap",
        "ranks pairs without a margin; shown for comparison",
        eg.AveragePrecisionPerceptronLoss,
    ),
    "direct_zero_one": Objective(
        RANKING,
        "accuracy",
        "decisions at score 0 by direct loss minimisation; can collapse",
        eg.DirectZeroOneLoss,
    ),
    "zero_one_hinge": Objective(
        RANKING, "accuracy", "the hinge loss of decisions at score 0, per list", eg.ZeroOneHingeLoss
    ),
    "zero_one_perceptron": Objective(
        RANKING, "accuracy", "the perceptron; shown for comparison", eg.ZeroOnePerceptronLoss
    ),
    "f_beta": Objective(
        RANKING,
        "f1",
        "F-beta at score 0 without tuning a threshold; best with small models",
        eg.FBeta,
        needs="labels",
        takes_index=True,
    ),
    "recall_at_precision": Objective(
        RANKING,
        "recall@precision",
        "most recall while alarms stay right",
        eg.RecallAtPrecision,
        needs="labels",
        takes_index=True,
    ),
    "precision_at_recall": Objective(
        RANKING,
        "precision@recall",
        "fewest false alarms at a given recall",
        eg.PrecisionAtRecall,
        needs="labels",
        takes_index=True,
    ),
}


class WeightedSum(nn.Module):
    """(1 - share) * first + share * second, each with its own options; `index` goes to those that
    take it.
    """

    def __init__(
        self, first: str, second: str, *, share: float = 0.5, **options: dict[str, Any]
    ) -> None:
        super().__init__()
        if not 0 <= share <= 1:
            raise ValueError(
                f"`share` must be in [0, 1]; got {share}. It is the share of {second}."
            )
        if unknown := set(options) - {first, second}:
            raise TypeError(
                f"options of a sum are given by loss; got {sorted(unknown)}. Name {first} or"
                f" {second}."
            )
        self.losses = [find(name).factory(**options.get(name, {})) for name in (first, second)]
        self.takes_index = [find(name).takes_index for name in (first, second)]
        self.shares = (1 - share, share)
        # their state is saved
        self.parts = nn.ModuleList(loss for loss in self.losses if isinstance(loss, nn.Module))

    def forward(self, scores: Tensor, target: Tensor, *, index: Tensor | None = None) -> Tensor:
        first, second = (
            loss(scores, target, index=index) if takes else loss(scores, target)
            for loss, takes in zip(self.losses, self.takes_index, strict=True)
        )
        return self.shares[0] * first + self.shares[1] * second


def find(name: str) -> Objective:
    """The objective of that name; ``first+second`` is the weighted sum of two, as `WeightedSum`
    takes its options.
    """
    if "+" in name:
        return _sum_of(*name.split("+", 1))
    if name not in OBJECTIVES:
        near = difflib.get_close_matches(name, OBJECTIVES, n=3, cutoff=0.4)
        hint = f"Did you mean {' or '.join(near)}?" if near else "See `evalgrad losses`."
        raise UserError(f"the loss must be one that `evalgrad losses` lists; got {name!r}. {hint}")
    return OBJECTIVES[name]


def _sum_of(first: str, second: str) -> Objective:
    parts = find(first), find(second)
    kinds = tuple(kind for kind in parts[0].kinds if kind in parts[1].kinds)
    if not kinds:
        raise UserError(
            f"a sum must be of losses for the same task; {first} is for {parts[0].kinds}, {second}"
            f" for {parts[1].kinds}."
        )

    def factory(**options: Any) -> Callable[..., Tensor]:
        return WeightedSum(first, second, **options)

    guidance = f"{first} and {second} together; `share` is the share of the latter"
    return Objective(
        kinds,
        parts[1].metric,
        guidance,
        factory,
        takes_index=any(part.takes_index for part in parts),
    )


def make(name: str, options: dict[str, Any]) -> Callable[..., Tensor]:
    """The loss `name` with the user's `options`; what does not fit is told in a sentence."""
    try:
        return find(name).factory(**options)
    except (TypeError, ValueError) as error:
        raise UserError(f"the loss {name} does not take the options {options}: {error}") from error
