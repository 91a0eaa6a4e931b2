"""Section 4.4: ENet after weighted cross-entropy, fine-tuned in several ways."""

from typing import Any

import torch
from torch import Tensor, nn

import evalgrad as eg
from evalgrad_lab.data.dataset import Part
from evalgrad_lab.fit import Every, scores_of
from reproductions.bases import Base, read_base
from reproductions.data_sets import DataSet
from reproductions.training import Loss, adam_poly, forked, train


def category_of_class(data: DataSet) -> Tensor:
    """Index of the category of each class; the void label is unchanged."""
    table = torch.arange(256)
    for number, classes in enumerate(data.categories.values()):
        table[classes] = number
    return table


def overlaps(found: Tensor, part: Part, data: DataSet) -> dict[str, float]:
    """Class and category IoU of a prediction over the dataset, in per cent."""
    table = category_of_class(data)
    pairs = {
        "class": (found, part.target, len(data.classes)),
        "category": (table[found], table[part.target], len(data.categories)),
    }
    index = eg.metrics.jaccard_index
    return {
        kind: 100 * index(some, true, num_classes=count, ignore_index=data.void).item()
        for kind, (some, true, count) in pairs.items()
    }


def evaluate(base: Base, model: nn.Module, part: Part) -> dict[str, float]:
    """Class and category IoU of the most likely classes."""
    return overlaps(scores_of(model, part.inputs, 64).argmax(1), part, base.data)


def fine_tunings(
    *,
    start: dict[str, Any],
    iterations: int,
    every: int,
    batch_sizes: list[int],
    rates: list[float],
) -> dict[str, Any]:
    """A piece: the constant prediction and the base network on test, and every fine-tuning by
    learning rate: class IoU on validation during it, class and category IoU on test after it.
    """
    base = read_base(start)
    data, split, seed = base.data, base.split, base.seed + 1
    before = evaluate(base, base.network, split.validation)["class"]

    def further(model: nn.Module, way: tuple[Loss, int], rate: float) -> dict[str, Any]:
        curve: list[list[float]] = [[0, before]]

        def look(step: int) -> None:
            curve.append([step, evaluate(base, model, split.validation)["class"]])

        loss, batch = way
        batches, pace = base.shuffled(batch, seed), adam_poly(rate, seed=seed)
        train(model, loss, batches, pace, iterations, [Every(every, look)])
        test = evaluate(base, model, split.test)
        return {"validation": curve[-1][1], "curve": curve, "test": test}

    size, lovasz = data.batch, data.loss("lovasz_softmax")
    ways = {f"weighted cross-entropy, batch {size}": (base.cross_entropy(), size)}
    ways |= {f"Lovász, batch {number}": (lovasz, number) for number in batch_sizes}
    kept = {"constant": overlaps(base.constant(split.test), split.test, data)}
    kept["base"] = evaluate(base, base.network, split.test)
    return {**kept, "tuned": forked(base.network, ways, rates, further)}
