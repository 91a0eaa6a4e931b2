"""Section 4.4 on digit scenes: ENet after weighted cross-entropy, fine-tuned in several ways."""

from typing import Any

import torch
from torch import Tensor, nn

import evalgrad as eg
from evalgrad_lab.data.batches import in_memory
from evalgrad_lab.data.dataset import Part, Sizes
from evalgrad_lab.data.embedded.digits import SCENE_CLASSES, digit_scenes
from evalgrad_lab.fit import Every, scores_of
from evalgrad_lab.loss_factories import make
from evalgrad_lab.models.enet import ENet
from reproductions.training import Counts, Loss, adam_poly, forked, seeded, train

# As Cityscapes has categories of classes: the background, digits with a loop, straight ones, open
# curves.
CATEGORIES = {"background": [0], "loops": [0, 6, 8, 9], "straight": [1, 4, 7], "curves": [2, 3, 5]}
BATCH = 10  # of the weighted cross-entropy, before and in fine-tuning
BASE_RATE = 0.01
CANVAS = 64  # ENet works at an eighth of the resolution


def category_of_class() -> Tensor:
    """(11,) number of the category of each class; digit d is class d + 1."""
    table = torch.zeros(SCENE_CLASSES, dtype=torch.int64)
    for number, digits in enumerate(list(CATEGORIES.values())[1:], 1):
        table[torch.tensor(digits) + 1] = number
    return table


def evaluate(model: nn.Module, part: Part) -> dict[str, float]:
    """Class and category IoU over the dataset, in per cent."""
    return overlaps(scores_of(model, part.inputs).argmax(1), part)


def overlaps(found: Tensor, part: Part) -> dict[str, float]:
    """Class and category IoU of a prediction."""
    table = category_of_class()
    pairs = {
        "class": (found, part.target, SCENE_CLASSES),
        "category": (table[found], table[part.target], len(CATEGORIES)),
    }
    index = eg.metrics.jaccard_index
    return {
        kind: 100 * index(some, true, num_classes=count).item()
        for kind, (some, true, count) in pairs.items()
    }


def weighted_cross_entropy(target: Tensor) -> Loss:
    """With ENet's class weights 1 / ln(1.02 + frequency)."""
    frequency = torch.bincount(target.flatten(), minlength=SCENE_CLASSES) / target.numel()
    return make("cross_entropy", {"weight": (1 / (1.02 + frequency).log()).tolist()})


def fine_tunings(
    *,
    seed: int,
    sizes: Counts,
    base_iterations: int,
    iterations: int,
    every: int,
    batch_sizes: list[int],
    rates: list[float],
) -> dict[str, Any]:
    """A piece: the constant prediction and the base network on test, and every fine-tuning by
    learning rate: class IoU on validation during it, class and category IoU on test after it.
    """
    split = digit_scenes(seed, Sizes(*sizes), canvas=CANVAS)
    weighted = weighted_cross_entropy(split.train.target)
    base = seeded(seed, lambda: ENet(1, SCENE_CLASSES))
    first, pace = in_memory(split.train, BATCH, seed), adam_poly(BASE_RATE, seed=seed)
    train(base, weighted, first, pace, base_iterations)

    def further(model: nn.Module, way: tuple[Loss, int], rate: float) -> dict[str, Any]:
        curve: list[list[float]] = []

        def look(step: int) -> None:
            curve.append([step, evaluate(model, split.validation)["class"]])

        look(0)
        loss, batch = way
        batches, pace = in_memory(split.train, batch, seed + 1), adam_poly(rate, seed=seed + 1)
        train(model, loss, batches, pace, iterations, [Every(every, look)])
        return {"validation": curve[-1][1], "curve": curve, "test": evaluate(model, split.test)}

    ways: dict[str, tuple[Loss, int]] = {"weighted cross-entropy, batch 10": (weighted, BATCH)}
    ways |= {f"Lovász, batch {size}": (make("lovasz_softmax", {}), size) for size in batch_sizes}
    kept = {"constant": overlaps(torch.zeros_like(split.test.target), split.test)}
    kept["base"] = evaluate(base, split.test)
    return {**kept, "tuned": forked(base, ways, rates, further)}
