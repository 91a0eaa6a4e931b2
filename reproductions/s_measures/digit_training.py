"""Experiment 1: a classifier of digits with an extra node for their size, linear as in the paper or
on a shared hidden layer.
"""

import hashlib
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import evalgrad as eg
from evalgrad_lab.data.dataset import Dataset, Part, Sizes
from evalgrad_lab.data.embedded.mixtures import two_modes
from evalgrad_lab.data.embedded.s_digits import s_digits
from evalgrad_lab.data.fetched.mnist import images
from evalgrad_lab.models.mlp import mlp
from reproductions.s_measures.regulariser import Regulariser

BATCH = 100  # the paper's
MNIST_TRAIN, MNIST_VALIDATION = 20_000, 5_000


def load(data: str, seed: int) -> Dataset[Part]:
    """Flat images and targets (n, 2): the digit, and 1 where it has double size."""
    return s_digits(seed) if data == "s-digits" else s_mnist(seed)


def s_mnist(seed: int) -> Dataset[Part]:
    """MNIST at half size in the middle of the canvas, or, for half of the images, at its
    full size.
    """
    train, test = images("mnist")
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(train), generator=generator)
    first, second = order[:MNIST_TRAIN], order[MNIST_TRAIN : MNIST_TRAIN + MNIST_VALIDATION]
    parts = [
        (train.inputs[first], train.target[first]),
        (train.inputs[second], train.target[second]),
        (test.inputs, test.target),
    ]
    one, two, three = (_sized(pixels, digit, generator) for pixels, digit in parts)
    return Dataset(one, two, three)


def _sized(pixels: Tensor, digit: Tensor, generator: torch.Generator) -> Part:
    large = torch.randperm(len(digit), generator=generator) < len(digit) // 2
    small = F.pad(F.avg_pool2d(pixels, 2), [7] * 4)
    both = torch.where(large[:, None, None], pixels, small)
    return Part(3 * (both.flatten(1) - 0.3), torch.stack([digit, large.long()], 1))


class SizedClassifier(nn.Module):
    """Scores of ten digits and of the size; `hidden` 0 is the paper's single layer, where the two
    share nothing.
    """

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.trunk = (
            nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU()) if hidden else nn.Identity()
        )
        self.digits = nn.Linear(hidden or inputs, 10)
        self.size = eg.SizeHead(hidden or inputs)

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        features = self.trunk(pixels)
        return self.digits(features), self.size(features)


def train_digits(
    *,
    data: str,
    seed: int,
    hidden: int,
    alpha: float,
    solver: str,
    project: str,
    learning_rate: float,
    epochs: int,
) -> dict[str, Any]:
    """A piece: Adam, batches of 100. Accuracies in per cent; `curve` is the test accuracy after
    every epoch.

    `weights` is a digest of the digit node's weights, `f1` that of the size node on test and
    `certificate` its bound on training.
    """
    split = load(data, seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = SizedClassifier(split.train.inputs.shape[1], hidden)
    digit, large = split.train.target.unbind(1)
    regulariser = Regulariser(large, alpha, solver, project)
    optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate)
    generator = torch.Generator().manual_seed(seed)
    curve = []
    for _ in range(epochs):
        for index in torch.randperm(len(digit), generator=generator).split(BATCH):
            scores, size = model(split.train.inputs[index])
            optimiser.zero_grad()
            (
                F.cross_entropy(scores, digit[index]) + regulariser.loss(size, large[index], index)
            ).backward()
            optimiser.step()
            regulariser.after_step()
        regulariser.after_epoch()
        curve.append(_accuracy(model, split.test))
    with torch.no_grad():
        size, trained = model(split.test.inputs)[1], model(split.train.inputs)[1]
    return {
        "validation": _accuracy(model, split.validation),
        "test": curve[-1],
        "curve": curve,
        "f1": 100 * eg.metrics.fbeta_score(size, split.test.target[:, 1], ties="worst").item(),
        "certificate": regulariser.certificate(trained, large),
        "projections": regulariser.projections,
        "weights": hashlib.sha256(model.digits.weight.detach().numpy().tobytes()).hexdigest()[:16],
    }


def train_measure(
    *,
    seed: int,
    size: tuple[int, int, int],
    solver: str,
    project: str,
    learning_rate: float,
    epochs: int,
) -> dict[str, Any]:
    """A piece: the measure alone, without a main loss, for a linear scorer of data that no plane
    divides. F1 in per cent.

    A training that ends in NaN certifies nothing and finds nothing: 0.
    """
    split = two_modes(seed, Sizes(*size))
    model = mlp(split.train.inputs.shape[1])
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    regulariser = Regulariser(split.train.target, 1.0, solver, project)
    optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for index in torch.randperm(len(split.train), generator=generator).split(BATCH):
            optimiser.zero_grad()
            regulariser.loss(
                model(split.train.inputs[index]), split.train.target[index], index
            ).backward()
            optimiser.step()
            regulariser.after_step()
        regulariser.after_epoch()
    with torch.no_grad():
        trained, scores = model(split.train.inputs), model(split.test.inputs)
    if not trained.isfinite().all():
        return {"certificate": 0.0, "f1": 0.0, "projections": regulariser.projections}
    return {
        "certificate": regulariser.certificate(trained, split.train.target),
        "f1": 100 * eg.metrics.fbeta_score(scores, split.test.target, ties="worst").item(),
        "projections": regulariser.projections,
    }


@torch.no_grad()
def _accuracy(model: nn.Module, part: Part) -> float:
    return 100 * (model(part.inputs)[0].argmax(1) == part.target[:, 0]).double().mean().item()
