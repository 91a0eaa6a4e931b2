"""A `Dataset` has three parts (training, validation, test), in memory or read when needed.

Embedded data, fetched data and the user's files are all read as a `Dataset`. Parts in memory are of
the class `Part`; parts whose images are read from disk are `Examples`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor


def as_it_is(item: Tensor) -> Tensor:
    """The reader of a column that is in memory already."""
    return item


@dataclass(frozen=True)
class Column:
    """A sequence of tensors, kept in memory or read when they are needed."""

    items: list[Any]
    read: Callable[[Any], Tensor] = as_it_is

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> Tensor:
        return self.read(self.items[i])

    def take(self, positions: Sequence[int]) -> "Column":
        return Column([self.items[i] for i in positions], self.read)


@dataclass(frozen=True)
class Known:
    """What is known about images before they are read: their mean and standard deviation, and
    whether all have the same size. Large data sets are not read as a whole to find out.
    """

    mean: list[float]
    std: list[float]
    same_size: bool = False


@dataclass(frozen=True)
class Examples:
    """One part of a data set; position i of every field is one example.

    `inputs` are images (channels, H, W) or rows of numbers; `target` label maps (H, W), classes, 0
    and 1, or rows of 0 and 1, and None where only predictions are wanted; `names` say where an
    example comes from; `lists` numbers the list of each item of a ranking, `sources` the image that
    a region is from: all of it is set aside, or nothing.
    """

    inputs: Tensor | Column
    target: Tensor | Column | None
    names: list[str] = field(default_factory=list)
    lists: list[int] | None = None
    known: Known | None = None
    sources: list[int] | None = None

    def __len__(self) -> int:
        return len(self.inputs)

    def take(self, positions: Sequence[int]) -> "Examples":
        """The examples at these positions."""
        chosen = (_taken(values, positions) for values in (self.inputs, self.target))
        inputs, target = chosen
        assert inputs is not None
        names = [self.names[i] for i in positions] if self.names else []
        numbers = (self.lists, self.sources)
        lists, sources = (n and [n[i] for i in positions] for n in numbers)
        return Examples(inputs, target, names, lists, self.known, sources)

    def labels(self) -> Tensor:
        """All targets, where they have one shape: classes, not label maps of various sizes."""
        assert self.target is not None
        if isinstance(self.target, Tensor):
            return self.target
        return torch.stack([self.target[i] for i in range(len(self))])


@dataclass(frozen=True)
class Part(Examples):
    """A part that is in memory: tensors, first axis = examples."""

    inputs: Tensor
    target: Tensor


P = TypeVar("P", bound=Examples, covariant=True)


@dataclass(frozen=True)
class Dataset(Generic[P]):
    """Training, validation and test data. Hyper-parameters and thresholds are chosen on
    `validation`; `test` is used once. `classes` are the names of the classes, `columns` those of a
    table's inputs.
    """

    train: P
    validation: P
    test: P
    classes: list[str] = field(default_factory=list, kw_only=True)
    columns: list[str] = field(default_factory=list, kw_only=True)


@dataclass(frozen=True)
class Reading:
    """How files are read: the task, the columns of a table, the labels. `classes` and `columns` are
    those of an existing model or of the training data, which further data must match.
    """

    task: str
    target: str = "target"
    group: str | None = None
    num_classes: int | None = None
    ignore_index: int = 255
    data_options: dict[str, Any] = field(default_factory=dict, hash=False)  # of a layout
    classes: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Found:
    """What a reader returns: the examples, and validation and test data if there are any."""

    train: Examples
    validation: Examples | None = None
    test: Examples | None = None
    classes: list[str] = field(default_factory=list, kw_only=True)
    columns: list[str] = field(default_factory=list, kw_only=True)

    def complete(self, validation: float, test: float, seed: int, split: int) -> Dataset[Examples]:
        """The data set; the shares that are missing are taken from the training part. `split` draws
        the test part, so that runs of other seeds, a search among them, never see it; `seed` draws
        the validation part.
        """
        train, second, third = self.train, self.validation, self.test
        left = 1.0
        if third is None:
            train, third = set_aside(train, test, split)
            left -= test
        if second is None:
            train, second = set_aside(train, validation / left, seed + 1)
        return Dataset(train, second, third, classes=self.classes, columns=self.columns)


class Sizes(NamedTuple):
    """Examples in each part."""

    train: int
    validation: int
    test: int


def cut(inputs: Tensor, target: Tensor, sizes: Sizes) -> Dataset[Part]:
    """Split consecutive examples into the three parts; the remainder is not used."""
    ends = torch.tensor([0, *sizes]).cumsum(0).tolist()
    return Dataset(*(Part(inputs[a:b], target[a:b]) for a, b in pairwise(ends)))


def relabelled(data: Dataset[Part], change: Callable[[Tensor], Tensor]) -> Dataset[Part]:
    """With other labels, except in the test part."""
    train = Part(data.train.inputs, change(data.train.target))
    validation = Part(data.validation.inputs, change(data.validation.target))
    return Dataset(train, validation, data.test)


def permutation(count: int, seed: int) -> Tensor:
    """A seeded order of `count` examples."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


def set_aside(examples: Examples, share: float, seed: int) -> tuple[Examples, Examples]:
    """The rest, and a seeded `share`: of every class alike, or of whole lists; at least one unit,
    and not all. Nothing for 0.
    """
    if share == 0:
        return examples, examples.take([])
    generator = torch.Generator().manual_seed(seed)
    kept: list[list[int]] = []
    aside: list[list[int]] = []
    for stratum in _strata(examples):
        order = [stratum[i] for i in torch.randperm(len(stratum), generator=generator).tolist()]
        count = round(share * len(order))
        aside += order[:count]
        kept += order[count:]
    if not aside:
        aside.append(kept.pop())
    if not kept:
        kept.append(aside.pop())
    rest, part = (sorted(i for unit in units for i in unit) for units in (kept, aside))
    return examples.take(rest), examples.take(part)


def _strata(examples: Examples) -> list[list[list[int]]]:
    """Strata, each to be split in the same proportion, of units, the positions that stay
    together.
    """
    target, everything = examples.target, range(len(examples))
    for together in (examples.lists, examples.sources):
        if together is not None:
            return [places_by_value(together)]
    if target is None or target[0].ndim > 1:  # label maps
        return [[[i] for i in everything]]
    if target[0].ndim:  # labels of a multilabel task
        values = rarest(examples.labels()).tolist()
    else:
        values = [int(target[i]) for i in everything]
    return [[[i] for i in positions] for positions in places_by_value(values)]


def rarest(labels: Tensor) -> Tensor:
    """The number of the label (column) of which each row has the rarest value, 0 or 1, by how rare
    it is; rows with no rare value have the number of labels. Strata of all combinations would be
    too small to be split.
    """
    ones = labels.sum(0)
    zeros = len(labels) - ones
    rare = labels == (ones <= zeros)
    order = torch.minimum(ones, zeros).argsort(stable=True)
    first = rare[:, order].long().argmax(1)
    return torch.where(rare.any(1), first, labels.shape[1])


def places_by_value(values: list[int]) -> list[list[int]]:
    """The positions of every value, in the order of the values."""
    groups: dict[int, list[int]] = {}
    for i, value in enumerate(values):
        groups.setdefault(value, []).append(i)
    return [groups[value] for value in sorted(groups)]


def _taken(values: Tensor | Column | None, positions: Sequence[int]) -> Tensor | Column | None:
    if isinstance(values, Tensor):
        return values[torch.tensor(positions, dtype=torch.long)]
    return None if values is None else values.take(positions)
