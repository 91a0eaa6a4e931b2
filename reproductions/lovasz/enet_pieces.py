"""Section 4.4 on digit scenes: ENet trained with weighted cross-entropy, then fine-tuned from the
same weights in several ways.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

import evalgrad as eg
from evalgrad_lab.data.batches import in_memory
from evalgrad_lab.data.dataset import Dataset, Part, Sizes
from evalgrad_lab.data.embedded.digits import SCENE_CLASSES, digit_scenes
from evalgrad_lab.fit import Every, Pace, scores_of
from evalgrad_lab.loss_factories import make
from evalgrad_lab.models.enet import ENet
from reproductions.training import Loss, seeded, train

# As Cityscapes has categories of classes: the background, digits with a loop, straight ones, open
# curves.
CATEGORIES = {"background": [0], "loops": [0, 6, 8, 9], "straight": [1, 4, 7], "curves": [2, 3, 5]}
BATCH = 10  # of the weighted cross-entropy, before and in fine-tuning
BASE_RATE = 0.01


def category_of_class() -> Tensor:
    """(11,) number of the category of each class; digit d is class d + 1."""
    table = torch.zeros(SCENE_CLASSES, dtype=torch.int64)
    for number, digits in enumerate(list(CATEGORIES.values())[1:], 1):
        table[torch.tensor(digits) + 1] = number
    return table


def evaluate(model: nn.Module, part: Part) -> dict[str, float]:
    """Class and category IoU over the dataset, in per cent."""
    prediction, table = scores_of(model, part.inputs).argmax(1), category_of_class()
    return {
        "class": (
            100
            * eg.metrics.jaccard_index(prediction, part.target, num_classes=SCENE_CLASSES).item()
        ),
        "category": (
            100
            * eg.metrics.jaccard_index(
                table[prediction], table[part.target], num_classes=len(CATEGORIES)
            ).item()
        ),
    }


def weighted_cross_entropy(target: Tensor) -> Loss:
    """With ENet's class weights 1 / ln(1.02 + frequency)."""
    frequency = torch.bincount(target.flatten(), minlength=SCENE_CLASSES) / target.numel()
    return make("cross_entropy", {"weight": (1 / (1.02 + frequency).log()).tolist()})


def _trained(
    model: nn.Module,
    part: Part,
    loss: Loss,
    batch: int,
    rate: float,
    iterations: int,
    seed: int,
    hooks: Sequence[Every] = (),
) -> None:
    pace = Pace(rate, optimiser="adam", schedule="poly", seed=seed)
    train(model, loss, in_memory(part, batch, seed), pace, iterations, hooks)


def fine_tune(
    base: nn.Module,
    split: Dataset[Part],
    loss: Loss,
    batch: int,
    rate: float,
    iterations: int,
    every: int,
    seed: int,
) -> dict[str, Any]:
    """Further training from the base's weights: class IoU on validation during it, class and
    category IoU on test after it.
    """
    model, curve = copy.deepcopy(base), []

    def look(step: int) -> None:
        curve.append([step, evaluate(model, split.validation)["class"]])

    look(0)
    _trained(model, split.train, loss, batch, rate, iterations, seed + 1, [Every(every, look)])
    return {"validation": curve[-1][1], "curve": curve, "test": evaluate(model, split.test)}


def fine_tunings(
    *,
    seed: int,
    sizes: tuple[int, int, int],
    base_iterations: int,
    iterations: int,
    every: int,
    batch_sizes: list[int],
    rates: list[float],
) -> dict[str, Any]:
    """A piece: the base network on test, and every fine-tuning by learning rate. One base per seed,
    so that all start alike.
    """
    split = digit_scenes(seed, Sizes(*sizes))
    weighted = weighted_cross_entropy(split.train.target)
    base = seeded(seed, lambda: ENet(1, SCENE_CLASSES))
    _trained(base, split.train, weighted, BATCH, BASE_RATE, base_iterations, seed)
    ways: dict[str, tuple[Loss, int]] = {"weighted cross-entropy, batch 10": (weighted, BATCH)}
    ways |= {f"Lovász, batch {size}": (make("lovasz_softmax", {}), size) for size in batch_sizes}
    tuned = {
        name: [fine_tune(base, split, *way, rate, iterations, every, seed) for rate in rates]
        for name, way in ways.items()
    }
    return {"base": evaluate(base, split.test), "tuned": tuned}
