"""`digit-scenes` (multi-class with a class tail) and `strokes` (binary, thin and noisy): a small
U-Net judged by IoU.
"""

from functools import partial

from torch import Tensor, nn

from evalgrad_lab.data.dataset import Sizes
from evalgrad_lab.data.embedded.scenes import CLASSES, digit_scenes
from evalgrad_lab.data.embedded.strokes import strokes
from evalgrad_lab.models.unet import UNet
from evalgrad_lab.tasks import measures
from evalgrad_lab.tasks.task import Loss, Task, objective

RATES = {"learning_rate": (0.006, 0.012, 0.024)}
STROKE_RATES = {"learning_rate": (0.002, 0.006, 0.012)}


def _argmax(scores: Tensor, threshold: float) -> Tensor:
    return scores.argmax(1)


def _above(scores: Tensor, threshold: float) -> Tensor:
    return (scores > threshold).long()


def _binary_unet() -> nn.Module:
    return nn.Sequential(UNet(1, 1, width=8), nn.Flatten(1, 2))


DIGIT_SCENES = Task(
    name="digit-scenes",
    title="Digit scenes",
    description=(
        "One to three real digits on 32x32 pixels, digit 0 nine times as frequent as digit 9; a"
        " small U-Net."
    ),
    data=partial(digit_scenes, sizes=Sizes(1500, 200, 400)),
    model=partial(UNet, 1, CLASSES),
    metric="dataset mIoU",
    measure=measures.scene_iou,
    per_class=measures.iou_per_class,
    predict=_argmax,
    losses=(
        Loss("cross_entropy", "baseline", objective("cross_entropy"), RATES),
        Loss(
            "weighted_cross_entropy",
            "baseline",
            objective("weighted_cross_entropy"),
            {"learning_rate": (0.012,), "weight_power": (0.25, 0.5, 1.0)},
        ),
        Loss(
            "bootstrapped_cross_entropy", "baseline", objective("bootstrapped_cross_entropy"), RATES
        ),
        Loss("soft_jaccard", "baseline", objective("soft_jaccard"), RATES),
        Loss("loss_max_pooling", "ours", objective("loss_max_pooling"), RATES),
        Loss("lovasz_softmax", "ours", objective("lovasz_softmax"), RATES),
        Loss(
            "cross_entropy+lovasz_softmax", "ours", objective("cross_entropy+lovasz_softmax"), RATES
        ),
    ),
    iterations=(500, 1200),
    batch=16,
    seeds=3,
)

STROKES = Task(
    name="strokes",
    title="Strokes",
    description=(
        "The thin inner line of a real digit under noise as strong as it; decision thresholds"
        " chosen on validation."
    ),
    data=partial(strokes, sizes=Sizes(600, 150, 400)),
    model=_binary_unet,
    metric="image IoU",
    measure=measures.stroke_iou,
    threshold=measures.best_iou_threshold,
    predict=_above,
    losses=(
        Loss("bce", "baseline", objective("bce"), STROKE_RATES),
        Loss("hinge", "baseline", objective("hinge"), STROKE_RATES),
        Loss("binary_soft_jaccard", "baseline", objective("binary_soft_jaccard"), STROKE_RATES),
        Loss("lovasz_hinge", "ours", objective("lovasz_hinge"), STROKE_RATES),
    ),
    iterations=(300,),
    batch=16,
)
