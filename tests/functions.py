"""One row per public function that is not a loss: how to call it on tensors.
`test_function_engines.py` runs every engine on it.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

import evalgrad as eg
from evalgrad import metrics

CLASSES = 4


@dataclass(frozen=True)
class Function:
    """A public function as one of floating-point numbers x and labels y, with the items on their
    last axis.
    """

    name: str
    call: Callable[[Tensor, Tensor], Tensor]
    labels: int = 2  # how many different labels; with more than two, x has the classes on axis 1
    differentiable: bool = False
    keeps_dtype: bool = False  # half in, half out; the others return float32, float64 or integers
    module: torch.nn.Module | None = None  # the one that call calls, if it has parameters

    def draw(self, items: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(items)
        y = torch.randint(self.labels, (3, items), generator=generator)
        y[:, :2] = torch.tensor([1, 0])
        shape = (3, CLASSES, items) if self.labels > 2 else (3, items)
        return torch.randn(shape, generator=generator), y

    def __str__(self) -> str:
        return self.name


def _smooth(name: str, call: Callable[[Tensor, Tensor], Tensor], **fields: Any) -> Function:
    return Function(name, call, differentiable=True, **{"keeps_dtype": True, **fields})


def _cost_of_confusion(x: Tensor, y: Tensor) -> Tensor:
    logits, cost = x.movedim(1, -1), (1 - torch.eye(CLASSES).to(x))[y]
    return eg.direct_loss(
        score=lambda choice: logits.gather(-1, choice.unsqueeze(-1)).squeeze(-1),
        task_loss=lambda choice: cost.gather(-1, choice.unsqueeze(-1)).squeeze(-1),
        predict=lambda: logits.argmax(-1),
        augment=lambda weight: (logits + weight * cost).argmax(-1),
        epsilon=0.5,
    )


def _ceiling(x: Tensor, y: Tensor) -> Tensor:
    points, ceilings = eg.project_onto_ceiling(x, x[:, 0])
    return torch.cat([points, ceilings.unsqueeze(-1)], -1)


def _of_embeddings(x: Tensor, y: Tensor) -> Tensor:
    scores, target, mask = metrics.retrieval_lists(x.T, y[0], similarity="dot")
    return metrics.average_precision(scores, target, mask=mask)


def _overlap(function: Callable[..., Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, y: function(x.argmax(1), y, num_classes=CLASSES)


def _measure(name: str, measure: torch.nn.Module) -> Function:
    """An S-measure in eval mode, a function. Training moves its state:
    test_s_measures_training.py.
    """
    measure.eval()
    moved = copy.deepcopy(measure).to("meta")  # learned thresholds live on the device of the scores

    def call(x: Tensor, y: Tensor) -> Tensor:
        return (moved if x.is_meta else measure)(x, y)

    return _smooth(name, call, keeps_dtype=False, module=measure)


FUNCTIONS = (
    _measure("FBeta", eg.FBeta(average="micro")),
    _measure("FBeta(surrogate=square)", eg.FBeta(surrogate="square", average="micro")),
    _measure("PrecisionAtRecall", eg.PrecisionAtRecall(0.8, average="micro")),
    _measure("RecallAtPrecision", eg.RecallAtPrecision(0.8, average="micro")),
    _measure("SensitivityAtSpecificity", eg.SensitivityAtSpecificity(0.8, average="micro")),
    _measure("ROCAUC", eg.ROCAUC(3, average="micro")),
    _measure("PartialROCAUC", eg.PartialROCAUC(0.5, anchors=3, average="micro")),
    _measure("PRAUC", eg.PRAUC(3, average="micro")),
    _smooth(
        "jaccard_lovasz_extension",
        lambda x, y: eg.jaccard_lovasz_extension(x, y > 0),
        keeps_dtype=False,
    ),
    _smooth("log_elementary_symmetric", lambda x, y: eg.log_elementary_symmetric(x.T, k=2)),
    _smooth("topk_probabilities", lambda x, y: eg.topk_probabilities(x.T, k=2, temperature=0.5)),
    _smooth("project_onto_ceiling", _ceiling),
    _smooth("direct_loss", _cost_of_confusion, labels=CLASSES),
    Function("lovasz_prox", lambda x, y: eg.lovasz_prox(x, y > 0, lam=2.0), keeps_dtype=True),
    Function(
        "loss_max_pooling_weights",
        lambda x, y: eg.loss_max_pooling_weights(x.abs()),
        keeps_dtype=True,
    ),
    Function("topk_predict", lambda x, y: eg.topk_predict(x.T, k=2, crop_dim=0)),
    Function("metrics.average_precision", metrics.average_precision),
    Function(
        "metrics.average_precision(ties=worst)",
        lambda x, y: metrics.average_precision(x, y, ties="worst", dim=0, zero_division=0.0),
    ),
    Function("metrics.ndcg", lambda x, y: metrics.ndcg(x.round(), y, k=2)),
    Function("metrics.ndcg(ties=worst)", lambda x, y: metrics.ndcg(x, y, k=2, ties="worst")),
    Function(
        "metrics.ndcg(gain=exponential)",
        lambda x, y: metrics.ndcg(x.round(), 2 * y, gain="exponential", item_weight=x.abs()),
    ),
    Function("metrics.average_precision(k=2)", lambda x, y: metrics.average_precision(x, y, k=2)),
    Function("metrics.precision_at_k", lambda x, y: metrics.precision_at_k(x.round(), y, k=2)),
    Function("metrics.recall_at_k", lambda x, y: metrics.recall_at_k(x, y, k=2, ties="worst")),
    Function("metrics.reciprocal_rank", lambda x, y: metrics.reciprocal_rank(x.round(), y)),
    Function("metrics.hit_rate_at_k", lambda x, y: metrics.hit_rate_at_k(x.round(), y, k=2)),
    Function("metrics.r_precision", lambda x, y: metrics.r_precision(x, y, ties="worst")),
    Function("metrics.map_at_r", lambda x, y: metrics.map_at_r(x.round(), y)),
    Function("metrics.retrieval_lists", _of_embeddings),
    Function("metrics.fbeta_score", metrics.fbeta_score),
    Function(
        "metrics.fbeta_score(reduction=weighted)",
        lambda x, y: metrics.fbeta_score(x, y, ignore_index=1, reduction="weighted"),
        labels=CLASSES,
    ),
    Function(
        "metrics.precision_at_recall", lambda x, y: metrics.precision_at_recall(x, y, recall=0.5)
    ),
    Function(
        "metrics.recall_at_precision", lambda x, y: metrics.recall_at_precision(x, y, precision=0.5)
    ),
    Function(
        "metrics.sensitivity_at_specificity",
        lambda x, y: metrics.sensitivity_at_specificity(x, y, specificity=0.5),
    ),
    Function(
        "metrics.partial_roc_auc",
        lambda x, y: metrics.partial_roc_auc(x.round(), y, max_fpr=0.5),
    ),
    Function("metrics.roc_auc", lambda x, y: metrics.roc_auc(x.round(), y)),
    Function("metrics.pr_auc", metrics.pr_auc),
    Function("metrics.topk_error", lambda x, y: metrics.topk_error(x, y, k=2), labels=CLASSES),
    Function("metrics.jaccard_index", _overlap(metrics.jaccard_index), labels=CLASSES),
    Function("metrics.dice", _overlap(metrics.dice), labels=CLASSES),
    Function(
        "metrics.tversky_index",
        _overlap(partial(metrics.tversky_index, misses=0.7, false_alarms=0.3)),
        labels=CLASSES,
    ),
    Function("metrics.jaccard_counts", _overlap(metrics.jaccard_counts), labels=CLASSES),
    Function(
        "metrics.jaccard_from_counts",
        lambda x, y: metrics.jaccard_from_counts(torch.stack([y, y + 1, y + 2], -1)),
    ),
    Function(
        "metrics.tversky_from_counts",
        lambda x, y: metrics.tversky_from_counts(
            torch.stack([y, y + 1, y + 2], -1), misses=0.7, false_alarms=0.3
        ),
    ),
)
