"""`digit-scenes` (multi-class with a class tail) and `strokes` (binary, thin and noisy): a small
U-Net judged by IoU.
"""

from functools import partial

from torch import nn

from evalgrad_lab.data.dataset import Sizes
from evalgrad_lab.data.embedded.scenes import CLASSES, digit_scenes
from evalgrad_lab.data.embedded.strokes import strokes
from evalgrad_lab.models.unet import UNet
from evalgrad_lab.tasks.task import Method, Task, at_zero, loss, measured

IMAGE_IOU = measured("segmentation", "image-iou")
RATES = {"learning_rate": (0.006, 0.012, 0.024)}
STROKE_RATES = {"learning_rate": (0.002, 0.006, 0.012)}


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
    measures=measured("segmentation", "miou", "image-miou", num_classes=CLASSES),
    classes=("background", *map(str, range(CLASSES - 1))),
    methods=(
        Method("cross_entropy", "baseline", loss("cross_entropy"), RATES),
        Method(
            "weighted_cross_entropy",
            "baseline",
            loss("weighted_cross_entropy"),
            {"learning_rate": (0.012,), "weight_power": (0.25, 0.5, 1.0)},
        ),
        Method("bootstrapped_cross_entropy", "baseline", loss("bootstrapped_cross_entropy"), RATES),
        Method("soft_jaccard", "baseline", loss("soft_jaccard"), RATES),
        Method("loss_max_pooling", "ours", loss("loss_max_pooling"), RATES),
        Method("lovasz_softmax", "ours", loss("lovasz_softmax"), RATES),
        Method("cross_entropy+lovasz_softmax", "ours", loss("cross_entropy+lovasz_softmax"), RATES),
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
    measures={**IMAGE_IOU, "image IoU at 0": at_zero(IMAGE_IOU["image IoU"])},
    thresholds=20,
    methods=(
        Method("bce", "baseline", loss("bce"), STROKE_RATES),
        Method("hinge", "baseline", loss("hinge"), STROKE_RATES),
        Method("binary_soft_jaccard", "baseline", loss("binary_soft_jaccard"), STROKE_RATES),
        Method("lovasz_hinge", "ours", loss("lovasz_hinge"), STROKE_RATES),
    ),
    iterations=(300,),
    batch=16,
)
