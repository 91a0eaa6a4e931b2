"""Judged by IoU: `circles` (which loss has its minimum where the Jaccard loss has its own?),
`digit-scenes` (multi-class with a class tail) and `strokes` (binary, thin and noisy).
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from evalgrad_lab.data.dataset import Part, Sizes
from evalgrad_lab.data.embedded.digits import SCENE_CLASSES, digit_scenes, strokes
from evalgrad_lab.data.embedded.points import circles
from evalgrad_lab.decisions import mask, offsets, quantiles, thresholds
from evalgrad_lab.fit import BatchLoss
from evalgrad_lab.measures import Measure
from evalgrad_lab.models.unet import UNet
from evalgrad_lab.tasks.task import Method, Task, baseline, by_default, loss, measured, ours

IMAGE_IOU = measured("segmentation", "image-iou")
SCENE_IOU = measured("segmentation", "miou", "image-miou", num_classes=SCENE_CLASSES)
CIRCLE_RATES = {"learning_rate": (0.03, 0.1)}
RATES = {"learning_rate": (0.006, 0.012, 0.024)}
STROKE_RATES = {"learning_rate": (0.002, 0.006, 0.012)}
WEIGHTS = {"learning_rate": (0.012,), "weight_power": (0.25, 0.5, 1.0)}


class Bias(nn.Module):
    """Adds one learnt number to the features: all the paper's model has."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, features: Tensor) -> Tensor:
        return features + self.bias


def _balanced_bce(options: Mapping[str, Any], train: Part) -> BatchLoss:
    """Binary cross-entropy in which the foreground weighs as much as the background."""
    weight = float((train.target == 0).sum() / train.target.sum())
    return loss("bce", positive_weight=weight)(options, train)


def _pairs(scores: Tensor, target: Tensor, lists: Tensor | None) -> Tensor:
    return torch.stack([scores, target.to(scores)], 1)


def bias_found(rows: Tensor) -> Tensor:
    """How close the Jaccard loss at this bias comes to that at the best bias, of all that are
    tried at once: one by one they would take longer than the training.
    """
    scores, target = rows[:, 0], rows[:, 1].flatten(1) > 0
    cuts = torch.tensor([0.0, *thresholds(scores, 60)])
    above = scores.flatten(1) > cuts[:, None, None]
    index = (above & target).sum(-1).double() / (above | target).sum(-1)  # (biases, images)
    reached, *others = index.mean(1)
    return 1 - (max(reached, *others) - reached)


CIRCLES = Task(
    name="circles",
    title="Circles (Lovász-Softmax, 4.1)",
    description=(
        "Ten circles of radius 3 to 20 on 50x50 noisy pixels; the model is one bias, judged on its"
        " training pixels."
    ),
    data=circles,
    model=Bias,
    measures={"1 - excess Jaccard loss": Measure(_pairs, bias_found), **IMAGE_IOU},
    methods=(
        baseline("bce", CIRCLE_RATES),
        baseline("hinge", CIRCLE_RATES),
        Method("balanced_bce", "baseline", _balanced_bce, CIRCLE_RATES),
        baseline("binary_soft_jaccard", CIRCLE_RATES),
        ours("lovasz_hinge", CIRCLE_RATES),
    ),
    iterations=(200,),
)


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
    model=partial(UNet, 1, SCENE_CLASSES),
    measures={**SCENE_IOU, "mIoU by argmax": by_default(SCENE_IOU["mIoU"])},
    decided=(offsets,),
    classes=("background", *map(str, range(SCENE_CLASSES - 1))),
    methods=(
        baseline("cross_entropy", RATES),
        baseline("weighted_cross_entropy", WEIGHTS),
        baseline("bootstrapped_cross_entropy", RATES),
        baseline("soft_jaccard", RATES),
        ours("loss_max_pooling", RATES),
        ours("lovasz_softmax", RATES),
        ours("cross_entropy+lovasz_softmax", RATES),
    ),
    iterations=(500, 1000),
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
    measures={**IMAGE_IOU, "image IoU at 0": by_default(IMAGE_IOU["image IoU"])},
    decided=(quantiles, mask("jaccard_mask")),
    methods=(
        baseline("bce", STROKE_RATES),
        baseline("hinge", STROKE_RATES),
        baseline("binary_soft_jaccard", STROKE_RATES),
        ours("lovasz_hinge", STROKE_RATES),
    ),
    iterations=(300,),
    batch=16,
)
