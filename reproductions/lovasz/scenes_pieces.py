"""Section 4.3 on digit scenes: fine-tunings of one base, watched by the three kinds of mIoU."""

from typing import Any

import torch
from torch import Tensor, nn

from evalgrad_lab.data.batches import in_memory
from evalgrad_lab.data.dataset import Part
from evalgrad_lab.data.embedded.digits import SCENE_CLASSES
from evalgrad_lab.fit import Every
from evalgrad_lab.loss_factories import make
from evalgrad_lab.views import multi_scale
from reproductions.scene_base import BATCH, constant, evaluate, mious, read_base
from reproductions.training import Counts, Loss, adam_poly, equibatches, forked, train


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


@torch.no_grad()
def multi_scale_miou(model: nn.Module, part: Part) -> float:
    """Dataset mIoU of the mean probabilities at the paper's three scales."""
    found = [multi_scale(model, images).argmax(1) for images in part.inputs.split(100)]
    return mious(torch.cat(found), part.target)["dataset"]


def fine_tune_scenes(
    *,
    seed: int,
    sizes: Counts,
    width: int,
    base: str,
    variants: dict[str, list[Any]],
    rates: list[float],
    iterations: int,
    every: int,
) -> dict[str, Any]:
    """A piece: the constant prediction and the base on test; every variant (loss, equibatch, factor
    of the iterations) by learning rate: its mIoU on validation, the `curve` of all kinds there, and
    all of them on test.
    """
    split, start = read_base(seed, sizes, width, base)

    def further(model: nn.Module, variant: list[Any], rate: float) -> dict[str, Any]:
        loss, equibatch, factor = variant
        curve: list[dict[str, float]] = []

        def look(iteration: int) -> None:
            curve.append({"iteration": iteration, **evaluate(model, split.validation)})

        look(0)
        batches = in_memory(split.train, BATCH, seed + 1)
        if equibatch:
            batches = equibatches(split.train, class_table(split.train.target), BATCH, seed + 1)
        pace, steps = adam_poly(rate, seed=seed + 1), round(factor * iterations)
        train(model, losses()[loss], batches, pace, steps, [Every(every, look)])
        test = {**evaluate(model, split.test), "multi-scale": multi_scale_miou(model, split.test)}
        own = "image" if loss == "Lovász per image" else "dataset"  # what the loss stands for
        return {"validation": curve[-1][own], "test": test, "curve": curve}

    kept = {"constant": constant(split.test), "base": evaluate(start, split.test)}
    return {**kept, "tuned": forked(start, variants, rates, further)}
