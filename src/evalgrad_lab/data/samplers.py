"""How the examples of an epoch are drawn: samplers map its number and generator to positions."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

import evalgrad as eg
from evalgrad_lab.data.dataset import Examples
from evalgrad_lab.errors import UserError

SamplerName = Literal["uniform", "equibatch", "performance", "quarter_positive", "half_foreground"]


class Visit(NamedTuple):
    """An example by its place, and the class that its crop must have."""

    place: int
    due: int | None = None


Draw = Callable[[int, torch.Generator], list[Visit]]


def drawing(name: SamplerName, examples: Examples, seed: int, ignore_index: int) -> Draw:
    """The sampler called `name`: `equibatch` takes an image with each class in turn, as the
    Lovász-Softmax paper does, and `performance` prefers classes that do badly, as the one on loss
    max-pooling; `quarter_positive` draws with replacement, so that a quarter is positive, of
    classes not class 0, and `half_foreground`, so that half of the images show class 1.
    """
    if name == "uniform":
        units = len(examples) if examples.lists is None else len(set(examples.lists))
        return lambda epoch, generator: _visits(torch.randperm(units, generator=generator))
    if examples.lists is not None:
        raise UserError(f"--sampler {name} is not for rankings in lists. Drop it.")
    if name in ("quarter_positive", "half_foreground"):
        return _with_share(name, examples)
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


def _with_share(name: str, examples: Examples) -> Draw:
    target, maps = examples.target, name == "half_foreground"
    if target is None or (target[0].ndim > 0) != maps:
        task = "segmentation of two classes" if maps else "ranking or classification"
        raise UserError(f"--sampler {name} is for a {task}. Drop it.")
    if maps:
        positive = torch.tensor([bool((target[i] == 1).any()) for i in range(len(examples))])
    else:
        positive = examples.labels() > 0
    chances = share_positive(positive, 0.5 if maps else 0.25, name)

    def draw(epoch: int, generator: torch.Generator) -> list[Visit]:
        size = len(chances)
        return _visits(torch.multinomial(chances, size, replacement=True, generator=generator))

    return draw


def share_positive(positive: Tensor, share: float, name: str) -> Tensor:
    """Sampling weight of each example, so that positives are this fraction of the samples."""
    count = int(positive.sum())
    if not 0 < count < len(positive):
        raise UserError(
            f"--sampler {name} needs training items of both kinds; got {count} of {len(positive)}"
            " positive. Increase --limit, or drop the sampler."
        )
    return torch.where(positive > 0, share / count, (1 - share) / (len(positive) - count))
