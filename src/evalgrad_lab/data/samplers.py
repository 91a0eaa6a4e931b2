"""How the examples of an epoch are drawn: from its number and generator to their places."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

import evalgrad as eg
from evalgrad_lab.data.dataset import Examples
from evalgrad_lab.errors import UserError

SamplerName = Literal["uniform", "equibatch", "performance", "quarter_positive"]


class Visit(NamedTuple):
    """An example by its place, and the class that its crop must have."""

    place: int
    due: int | None = None


Draw = Callable[[int, torch.Generator], list[Visit]]


def drawing(name: SamplerName, examples: Examples, seed: int, ignore_index: int) -> Draw:
    """The sampler called `name`: `equibatch` takes an image with each class in turn, as the
    Lovász-Softmax paper does, and `performance` prefers classes that do badly, as the one on loss
    max-pooling; `quarter_positive` draws with replacement, so that a quarter is positive.
    """
    if name == "uniform":
        units = len(examples) if examples.lists is None else len(set(examples.lists))
        return lambda epoch, generator: _visits(torch.randperm(units, generator=generator))
    if examples.lists is not None:
        raise UserError(f"--sampler {name} is not for rankings in lists. Drop it.")
    if name == "quarter_positive":
        return _quarter_positive(examples)
    return ByClass(name, examples, seed, ignore_index)


def _visits(places: Tensor) -> list[Visit]:
    return [Visit(place) for place in places.tolist()]


class ByClass:
    """Images drawn for a class, by a sampler of evalgrad over the `classes` that occur."""

    def __init__(self, name: str, examples: Examples, seed: int, ignore_index: int) -> None:
        target = examples.target
        if target is None or not target[0].ndim:
            raise UserError(f"--sampler {name} is for segmentation. Drop it.")
        rows = [set(target[i].unique().tolist()) - {ignore_index} for i in range(len(examples))]
        self.classes = sorted(set().union(*rows))
        presence = torch.tensor([[c in row for c in self.classes] for row in rows])
        kind = eg.EquibatchSampler if name == "equibatch" else eg.PerformanceSampler
        self.sampler: eg.EquibatchSampler | eg.PerformanceSampler = kind(presence, seed=seed)

    def __call__(self, epoch: int, generator: torch.Generator) -> list[Visit]:
        self.sampler.set_epoch(epoch)
        drawn = self.sampler.visits()
        return [Visit(i, None if due is None else self.classes[due]) for i, due in drawn]


def _quarter_positive(examples: Examples) -> Draw:
    target = examples.target
    if target is None or target[0].ndim or not set(examples.labels().tolist()) <= {0, 1}:
        raise UserError("--sampler quarter_positive is for a ranking. Drop it.")
    chances = quarter_positive(examples.labels())

    def draw(epoch: int, generator: torch.Generator) -> list[Visit]:
        size = len(chances)
        return _visits(torch.multinomial(chances, size, replacement=True, generator=generator))

    return draw


def quarter_positive(target: Tensor) -> Tensor:
    """The chance of each example, so that positives are a quarter of what is drawn."""
    positive = int(target.sum())
    if not 0 < positive < len(target):
        raise UserError(
            "--sampler quarter_positive needs training items of both kinds; got"
            f" {positive} of {len(target)} with target 1. Raise --limit, or drop the sampler."
        )
    return torch.where(target > 0, 0.25 / positive, 0.75 / (len(target) - positive))
