"""Examples in memory or on disk, and how they are split. The readers make them: `folders`, `arrays`
and `tables`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


def as_it_is(item: Tensor) -> Tensor:
    """The reader of a column that is in memory already."""
    return item


@dataclass(frozen=True)
class Column:
    """Tensors by position: kept in memory, or read when they are asked for."""

    items: list[Any]
    read: Callable[[Any], Tensor] = as_it_is

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> Tensor:
        return self.read(self.items[i])

    def take(self, positions: list[int]) -> "Column":
        return Column([self.items[i] for i in positions], self.read)


@dataclass(frozen=True)
class Examples:
    """One split; position i of every field is one example.

    `inputs` are images (channels, H, W) in [0, 1] or rows of numbers; `targets` label maps (H, W),
    classes, or 0 and 1, and None where only predictions are wanted; `names` say where an example
    comes from; `lists` numbers the list of each item of a ranking.
    """

    inputs: Column
    targets: Column | None
    names: list[str]
    lists: list[int] | None = None

    def __len__(self) -> int:
        return len(self.names)

    def take(self, positions: list[int]) -> "Examples":
        return Examples(
            self.inputs.take(positions),
            None if self.targets is None else self.targets.take(positions),
            [self.names[i] for i in positions],
            None if self.lists is None else [self.lists[i] for i in positions],
        )


@dataclass(frozen=True)
class Source:
    """What a reader found: the examples, those set aside for validation (None: split yourself), and
    the names of the classes.
    """

    train: Examples
    validation: Examples | None
    classes: list[str]
    columns: tuple[str, ...] = ()  # of a table


def split(examples: Examples, fraction: float, seed: int) -> tuple[Examples, Examples]:
    """Set aside a seeded `fraction`: the same share of every class, or whole lists; at least one
    unit, and not all.
    """
    generator = torch.Generator().manual_seed(seed)
    kept: list[list[int]] = []
    aside: list[list[int]] = []
    for stratum in _strata(examples):
        order = [stratum[i] for i in torch.randperm(len(stratum), generator=generator).tolist()]
        count = round(fraction * len(order))
        aside += order[:count]
        kept += order[count:]
    if not aside:
        aside.append(kept.pop())
    if not kept:
        kept.append(aside.pop())
    first, second = (
        examples.take(sorted(i for unit in units for i in unit)) for units in (kept, aside)
    )
    return first, second


def _strata(examples: Examples) -> list[list[list[int]]]:
    """Strata, each to be split in the same proportion, of units, the positions that stay
    together.
    """
    targets, everything = examples.targets, range(len(examples))
    if examples.lists is not None:
        return [_by_value(examples.lists)]
    if targets is None or targets[0].ndim:  # label maps
        return [[[i] for i in everything]]
    return [
        [[i] for i in positions] for positions in _by_value([int(targets[i]) for i in everything])
    ]


def _by_value(values: list[int]) -> list[list[int]]:
    groups: dict[int, list[int]] = {}
    for i, value in enumerate(values):
        groups.setdefault(value, []).append(i)
    return [groups[value] for value in sorted(groups)]
