"""What every generator returns: inputs and targets of the training, validation and test part."""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass(frozen=True)
class Part:
    """Inputs and targets, first axis = examples."""

    inputs: Tensor
    target: Tensor

    def __len__(self) -> int:
        return len(self.inputs)


@dataclass(frozen=True)
class Split:
    """The three parts of a data set. Hyper-parameters and thresholds are chosen on `validation`;
    `test` is looked at once.
    """

    train: Part
    validation: Part
    test: Part


class Sizes(NamedTuple):
    """Examples in each part."""

    train: int
    validation: int
    test: int


def cut(inputs: Tensor, target: Tensor, sizes: Sizes) -> Split:
    """Consecutive examples as the three parts; what is left over is not used."""
    ends = torch.tensor([0, *sizes]).cumsum(0).tolist()
    return Split(*(Part(inputs[a:b], target[a:b]) for a, b in pairwise(ends)))


def permutation(count: int, seed: int) -> Tensor:
    """A seeded order of `count` examples."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))
