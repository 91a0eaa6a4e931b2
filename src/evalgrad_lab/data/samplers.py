"""How the examples of an epoch are drawn: from its number and generator to their places."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

import evalgrad as eg
from evalgrad_lab.data.dataset import Examples
from evalgrad_lab.errors import UserError

SamplerName = Literal["uniform", "equibatch", "quarter_positive"]
Draw = Callable[[int, torch.Generator], list[int]]


def drawing(name: SamplerName, examples: Examples, seed: int, ignore_index: int) -> Draw:
    """The sampler called `name`: `equibatch` takes an image with each class in turn, as the
    Lovász-Softmax paper does; `quarter_positive` draws with replacement, so that a quarter is
    positive.
    """
    if name == "uniform":
        units = len(examples) if examples.lists is None else len(set(examples.lists))
        return lambda epoch, generator: torch.randperm(units, generator=generator).tolist()
    if examples.lists is not None:
        raise UserError(f"--sampler {name} is not for rankings in lists. Drop it.")
    if name == "equibatch":
        return _equibatch(examples, seed, ignore_index)
    return _quarter_positive(examples)


def _equibatch(examples: Examples, seed: int, ignore_index: int) -> Draw:
    target = examples.target
    if target is None or not target[0].ndim:
        raise UserError("--sampler equibatch is for segmentation. Drop it.")
    rows = [set(target[i].unique().tolist()) - {ignore_index} for i in range(len(examples))]
    classes = sorted(set().union(*rows))
    presence = torch.tensor([[c in row for c in classes] for row in rows])
    sampler = eg.EquibatchSampler(presence, seed=seed)

    def draw(epoch: int, generator: torch.Generator) -> list[int]:
        sampler.set_epoch(epoch)
        return list(sampler)

    return draw


def _quarter_positive(examples: Examples) -> Draw:
    target = examples.target
    if target is None or target[0].ndim or not set(examples.labels().tolist()) <= {0, 1}:
        raise UserError("--sampler quarter_positive is for a ranking. Drop it.")
    chances = quarter_positive(examples.labels())

    def draw(epoch: int, generator: torch.Generator) -> list[int]:
        drawn = torch.multinomial(chances, len(chances), replacement=True, generator=generator)
        return drawn.tolist()

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
