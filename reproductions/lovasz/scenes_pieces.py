"""Section 4.3 on digit scenes: one training of one loss, watched by the three kinds of mIoU."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import evalgrad as eg
from evalgrad_lab.data.batches import in_memory
from evalgrad_lab.data.dataset import Part, Sizes
from evalgrad_lab.data.embedded.digits import SCENE_CLASSES, digit_scenes
from evalgrad_lab.fit import Every, scores_of
from evalgrad_lab.loss_factories import make
from evalgrad_lab.models.unet import UNet
from evalgrad_lab.views import multi_scale
from reproductions.training import Counts, Loss, adam_poly, equibatches, seeded, train

BATCH = 16


def losses() -> dict[str, Loss]:
    """The paper's three: Lovász of the batch is over present classes, per image over all."""
    return {
        "cross-entropy": make("cross_entropy", {}),
        "Lovász": make("lovasz_softmax", {}),
        "Lovász per image": make("lovasz_softmax", {"per_image": True, "classes": "all"}),
    }


def class_table(target: Tensor) -> Tensor:
    """Which classes each image has: (images, classes)."""
    table = torch.zeros(len(target), SCENE_CLASSES, dtype=torch.bool)
    return table.scatter_(1, target.flatten(1), True)


def mious(prediction: Tensor, target: Tensor) -> dict[str, float]:
    """In per cent: of the dataset, of batches of 16, of images with all classes (0/0 = 1)."""
    kinds: dict[str, Any] = {
        "dataset": {},
        "batch": {"over": "batch", "batch_size": BATCH},
        "image": {"over": "image", "classes": "all"},
    }
    index = partial(eg.metrics.jaccard_index, prediction, target, num_classes=SCENE_CLASSES)
    return {name: 100 * index(**how).item() for name, how in kinds.items()}


def evaluate(model: nn.Module, part: Part) -> dict[str, float]:
    """The three kinds of mIoU of the most likely classes."""
    return mious(scores_of(model, part.inputs).argmax(1), part.target)


@torch.no_grad()
def multi_scale_miou(model: nn.Module, part: Part) -> float:
    """Dataset mIoU of the mean probabilities at the paper's three scales."""
    found = [multi_scale(model, images).argmax(1) for images in part.inputs.split(100)]
    return mious(torch.cat(found), part.target)["dataset"]


def train_scenes(
    *,
    sizes: Counts,
    loss: str,
    equibatch: bool,
    iterations: int,
    learning_rate: float,
    seed: int,
    every: int,
) -> dict[str, Any]:
    """A piece: dataset mIoU on validation, the `curve` of all kinds, and all of them on test."""
    split = digit_scenes(seed, Sizes(*sizes))
    model, curve = seeded(seed, lambda: UNet(1, SCENE_CLASSES)), []

    def look(iteration: int) -> None:
        curve.append({"iteration": iteration, **evaluate(model, split.validation)})

    if equibatch:
        batches = equibatches(split.train, class_table(split.train.target), BATCH, seed)
    else:
        batches = in_memory(split.train, BATCH, seed)
    pace, hooks = adam_poly(learning_rate, seed=seed), [Every(every, look)]
    train(model, losses()[loss], batches, pace, iterations, hooks)
    test = {**evaluate(model, split.test), "multi-scale": multi_scale_miou(model, split.test)}
    return {"validation": curve[-1]["dataset"], "test": test, "curve": curve}
