"""Table A.1 on digit scenes: a network for all classes, fine-tuned to one class at a time."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from evalgrad_lab.data.dataset import Dataset, Part
from evalgrad_lab.fit import Pace, scores_of
from reproductions.bases import read_base
from reproductions.data_sets import SCENES
from reproductions.lovasz.binary_pieces import EVALUATED, constant_iou, image_iou, losses
from reproductions.training import adam_poly, equibatches, forked, train


class OneClass(nn.Module):
    """The log-odds of one class under the softmax of a network for all of them."""

    def __init__(self, network: nn.Module, label: int) -> None:
        super().__init__()
        self.network, self.label = network, label

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.network(images)
        others = torch.cat([scores[:, : self.label], scores[:, self.label + 1 :]], 1)
        return scores[:, self.label] - others.logsumexp(1)


def has(target: Tensor, label: int) -> Tensor:
    """Which images have the class."""
    return (target == label).flatten(1).any(1)


def half_with(part: Part, label: int) -> Part:
    """As many images without the class as with it, as the paper validates; labels 0 and 1."""
    present = has(part.target, label)
    count = min(int(present.sum()), int((~present).sum()))
    chosen = torch.cat([present.nonzero()[:count, 0], (~present).nonzero()[:count, 0]])
    return Part(part.inputs[chosen], (part.target[chosen] == label).long())


def fine_tune(
    model: nn.Module, split: Dataset[Part], label: int, loss: str, pace: Pace, iterations: int
) -> dict[str, Any]:
    """One class, one loss: image IoU on validation; image IoU and every loss on test."""
    present = has(split.train.target, label)
    binary = Part(split.train.inputs, (split.train.target == label).long())
    # half of the images have the class
    batches = equibatches(binary, torch.stack([present, ~present], 1), SCENES.batch, pace.seed)
    one = train(OneClass(model, label), losses()[loss], batches, pace, iterations)
    validation, test = half_with(split.validation, label), half_with(split.test, label)
    scores = scores_of(one, test.inputs)
    return {
        "validation": image_iou(scores_of(one, validation.inputs), validation.target),
        "losses": {name: float(losses()[name](scores, test.target)) for name in EVALUATED},
        "iou": image_iou(scores, test.target),
    }


def one_by_one(
    *,
    start: dict[str, Any],
    labels: list[int],
    iterations: int,
    rates: list[float],
) -> dict[str, Any]:
    """A piece: image IoU of the base network for all classes and of the constant prediction, by
    class; and the fine-tuned results by loss, learning rate and class.
    """
    _, split, network, seed = read_base(start)
    test = {label: half_with(split.test, label) for label in labels}
    found = {label: scores_of(network, p.inputs).argmax(1) == label for label, p in test.items()}

    def further(base: nn.Module, loss: str, rate: float) -> list[dict[str, Any]]:
        models = {label: copy.deepcopy(base) for label in labels}
        how = (loss, adam_poly(rate, seed=seed), iterations)
        return [fine_tune(model, split, label, *how) for label, model in models.items()]

    return {
        "base": [image_iou(found[at].float() - 0.5, part.target) for at, part in test.items()],
        "constant": [constant_iou(part) for part in test.values()],
        "tuned": forked(network, {loss: loss for loss in EVALUATED}, rates, further),
    }
