"""The metrics of the tasks, by name, from scores; each lies in [0, 1], higher is better.

They are evalgrad's own, not torchmetrics': with the rules for ties and absent classes that the
losses follow.
"""

import torch
from torch import Tensor

from evalgrad import metrics

THRESHOLDS = 100  # decision thresholds tried on validation: quantiles of the scores


def scene_iou(scores: Tensor, target: Tensor, threshold: float) -> dict[str, float]:
    """mIoU of the most probable classes, over the data set and per image."""
    prediction, classes = scores.argmax(1), scores.shape[1]
    return {
        f"{over} mIoU": float(
            metrics.jaccard_index(prediction, target, num_classes=classes, over=over)
        )
        for over in ("dataset", "image")
    }


def iou_per_class(scores: Tensor, target: Tensor) -> tuple[list[str], list[float]]:
    """The IoU of every digit over the data set, and of the background."""
    classes = scores.shape[1]
    prediction = scores.argmax(1)
    values = [
        float(metrics.jaccard_index(prediction, target, num_classes=classes, classes=[c]))
        for c in range(classes)
    ]
    return ["background", *map(str, range(classes - 1))], values


def stroke_iou(scores: Tensor, target: Tensor, threshold: float) -> dict[str, float]:
    """Mean IoU of the foreground of each image, above the chosen threshold and above 0."""
    return {
        name: _image_iou(scores > cut, target)
        for name, cut in (("image IoU", threshold), ("image IoU at 0", 0.0))
    }


def best_iou_threshold(scores: Tensor, target: Tensor) -> float:
    """The threshold with the best image IoU."""
    return max(_cuts(scores, 20), key=lambda cut: _image_iou(scores > cut, target))


def bias_found(scores: Tensor, target: Tensor, threshold: float) -> dict[str, float]:
    """How close the Jaccard loss at this bias comes to that at the best bias, and the IoU itself:
    `circles`.
    """
    reached = _image_iou(scores > 0, target)
    best = max(_image_iou(scores > cut, target) for cut in _cuts(scores, 60))
    return {"1 - excess Jaccard loss": 1 - (max(best, reached) - reached), "image IoU": reached}


def ranking(scores: Tensor, target: Tensor, threshold: float) -> dict[str, float]:
    """Average precision of scores ``(n,)``; of ``(n, lists)`` the mean over the lists."""
    return {"AP": float(metrics.average_precision(scores.movedim(0, -1), target.movedim(0, -1)))}


def decisions(scores: Tensor, target: Tensor, threshold: float) -> dict[str, float]:
    """What a binary scorer is reported by: F1 at the chosen threshold and at 0, AP, R@P 0.9 and P@R
    0.8.
    """
    return {
        "F1": float(metrics.fbeta_score(scores, target, threshold=threshold)),
        "F1 at 0": float(metrics.fbeta_score(scores, target)),
        "AP": float(metrics.average_precision(scores, target)),
        "recall at precision 0.9": float(
            metrics.recall_at_precision(scores, target, precision=0.9)
        ),
        "precision at recall 0.8": float(metrics.precision_at_recall(scores, target, recall=0.8)),
    }


def best_f1_threshold(scores: Tensor, target: Tensor) -> float:
    """The threshold with the best F1."""
    cuts = torch.tensor(_cuts(scores, THRESHOLDS))[:, None]
    values = metrics.fbeta_score(scores - cuts, target.expand(len(cuts), -1), reduction="none")
    return float(cuts[values.argmax(), 0])


def top_five(scores: Tensor, target: Tensor, threshold: float) -> dict[str, float]:
    """Share of the items whose label is among the five best scores, and the best one."""
    return {f"top-{k} accuracy": 1 - float(metrics.topk_error(scores, target, k=k)) for k in (5, 1)}


def digit_accuracy(scores: Tensor, target: Tensor, threshold: float) -> dict[str, float]:
    """Accuracy of the digit; scores (n, 11) and target (n, 2) of s-digits."""
    return {"accuracy": float((scores[:, :10].argmax(1) == target[:, 0]).double().mean())}


def _image_iou(prediction: Tensor, target: Tensor) -> float:
    return float(
        metrics.jaccard_index(prediction, target, num_classes=2, classes=[1], over="image")
    )


def _cuts(scores: Tensor, count: int) -> list[float]:
    """0 and quantiles of the scores, the ends left out; 0 comes first, so that it wins a draw."""
    flat = scores.flatten()
    flat = flat[:: max(1, len(flat) // 10_000)].sort().values
    places = torch.linspace(0, len(flat) - 1, count + 2)[1:-1].long()
    return [0.0, *flat[places].tolist()]
