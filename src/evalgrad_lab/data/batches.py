"""From examples to batches. `Batches` maps the number of an epoch to its batches, in an order that
depends only on the seed and the epoch, so that a resumed training sees the same batches.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from evalgrad_lab.data.augment import augment
from evalgrad_lab.data.dataset import Examples, Part, places_by_value
from evalgrad_lab.data.samplers import Draw, SamplerName, Visit, drawing
from evalgrad_lab.errors import UserError


@dataclass(frozen=True)
class Batch:
    """A batch. `index` are the positions of its examples in their part of the data, `lists` the
    list of each example, if the data are in lists.
    """

    inputs: Tensor
    target: Tensor
    index: Tensor
    lists: Tensor | None = None

    def to(self, device: torch.device | str) -> "Batch":
        lists = None if self.lists is None else self.lists.to(device)
        inputs, target = self.inputs.to(device), self.target.to(device)
        return Batch(inputs, target, self.index.to(device), lists)


Batches = Callable[[int], Iterable[Batch]]


def in_memory(part: Part, size: int | None, seed: int) -> Batches:
    """Shuffled passes over tensors, what does not fill a batch left out; None is one batch of
    everything.
    """
    everything = torch.arange(len(part))
    whole = Batch(part.inputs, part.target, everything)

    def epoch(number: int) -> Iterable[Batch]:
        if size is None or size >= len(part):
            return [whole]
        generator = torch.Generator().manual_seed(mixed_seed(seed, number))
        order = torch.randperm(len(part), generator=generator)
        return (at(part, index) for index in order.split(size)[: len(part) // size])

    return epoch


def sampled(part: Part, sampler: Sampler[int], size: int) -> Batches:
    """The batches of a sampler: an epoch is one pass over it, what does not fill a batch left
    out. Epochs must be asked for in their order.
    """

    def epoch(number: int) -> Iterator[Batch]:
        drawn = iter(sampler)
        while len(index := list(itertools.islice(drawn, size))) == size:
            yield at(part, torch.tensor(index))

    return epoch


def at(part: Part, index: Tensor) -> Batch:
    """The examples at these places."""
    return Batch(part.inputs[index], part.target[index], index)


@dataclass(frozen=True)
class Loading:
    """Makes batches of examples that are read from disk when they are needed."""

    size: int
    seed: int
    augment: Literal["none", "flip", "full"] = "none"
    crop: int | None = None
    ignore_index: int = 255
    workers: int = 0
    sampler: SamplerName = "uniform"


def loaded(
    examples: Examples, loading: Loading, rank: int = 0, ranks: int = 1, draw: Draw | None = None
) -> Batches:
    """Shuffled and augmented passes for one of several ranks, what does not fill a batch left
    out. Examples in lists come in whole lists, `size` lists at a time. `draw` is what draws them,
    where it is known already.
    """
    items = _Items(examples, loading)
    draw = draw or drawing(loading.sampler, examples, loading.seed, loading.ignore_index)
    order = EpochOrder(len(items), loading.seed, rank, ranks, draw)
    loader = _loader(items, order, loading.size, loading.workers, len(order) >= loading.size)

    def epoch(number: int) -> Iterator[Batch]:
        order.epoch = number
        return _told(loader)

    return epoch


def in_order(examples: Examples, size: int, rank: int = 0, ranks: int = 1) -> Iterable[Batch]:
    """All examples once, as they are, for one of several ranks; lists whole."""
    items = _Items(examples, Loading(size, 0))
    return _told(_loader(items, EpochOrder(len(items), 0, rank, ranks), size, 0, False))


def steps_per_epoch(examples: Examples, size: int, ranks: int) -> int:
    """Batches that one rank sees in an epoch."""
    units = len(examples) if examples.lists is None else len(set(examples.lists))
    return max(-(-units // ranks) // size, 1)


class Turn(NamedTuple):
    """One entry of an epoch's order: `number` counts them over all ranks, `unit` is an example or a
    list, `due` the class that its crop must have. The epoch is -1 where nothing is drawn.
    """

    epoch: int
    number: int
    unit: int
    due: int | None = None


class EpochOrder(Sampler[Turn]):
    """What `draw` has in the epoch, for one of several ranks; without it all in order, nothing
    repeated.
    """

    def __init__(
        self, length: int, seed: int, rank: int, ranks: int, draw: Draw | None = None
    ) -> None:
        self.length, self.seed, self.draw = length, seed, draw
        self.rank, self.ranks, self.epoch = rank, ranks, 0

    def __len__(self) -> int:
        if self.draw is None:
            return len(range(self.rank, self.length, self.ranks))
        return -(-self.length // self.ranks)

    def __iter__(self) -> Iterator[Turn]:
        epoch, order = -1, [Visit(i) for i in range(self.length)]
        if self.draw is not None:
            epoch = self.epoch
            order = self.draw(epoch, torch.Generator().manual_seed(mixed_seed(self.seed, epoch)))
            order += order[: -self.length % self.ranks]  # every rank has to take as many steps
        turns = [Turn(epoch, number, *visit) for number, visit in enumerate(order)]
        return iter(turns[self.rank :: self.ranks])


class _Items(Dataset["Batch | UserError"]):
    """One entry per example, or per list where the examples are in lists."""

    def __init__(self, examples: Examples, loading: Loading) -> None:
        self.examples, self.loading = examples, loading
        everything = list(range(len(examples)))
        self.units = places_by_value(everything if examples.lists is None else examples.lists)

    def __len__(self) -> int:
        return len(self.units)

    def __getitem__(self, turn: Turn) -> "Batch | UserError":
        return self.__getitems__([turn])

    def __getitems__(self, turns: list[Turn]) -> "Batch | UserError":
        """A whole batch, which is what a `DataLoader` asks for where it can; or what is wrong with
        the data, given and not raised: out of a worker it would come with a traceback.
        """
        try:
            return self._batch(turns)
        except UserError as error:
            return error

    def _batch(self, turns: list[Turn]) -> Batch:
        places = [(turn, i) for turn in turns for i in self.units[turn.unit]]
        index, lists = torch.tensor([i for _, i in places]), None
        if self.examples.lists is not None:
            lists = torch.tensor([turn.unit for turn, _ in places])
        inputs, target, how = self.examples.inputs, self.examples.target, self.loading
        as_they_are = turns[0].epoch < 0 or (how.augment == "none" and how.crop is None)
        if isinstance(inputs, Tensor) and isinstance(target, Tensor) and as_they_are:
            return Batch(inputs[index], target[index], index, lists)  # no loop over the examples
        pairs = [self._pair(*place) for place in places]
        first, second = (torch.stack(part) for part in zip(*pairs, strict=True))
        return Batch(first, second, index, lists)

    def _pair(self, turn: Turn, i: int) -> tuple[Tensor, Tensor]:
        examples, how = self.examples, self.loading
        inputs = examples.inputs[i]
        target = torch.tensor(0) if examples.target is None else examples.target[i]
        if turn.epoch < 0 or inputs.ndim == 1:
            return inputs, target
        # by the turn: an example that is drawn twice in an epoch is changed in two ways
        generator = torch.Generator().manual_seed(mixed_seed(how.seed, turn.epoch, turn.number, i))
        how_much = (how.augment, how.crop, how.ignore_index)
        return augment(inputs, target, generator, *how_much, turn.due)


def _loader(
    items: _Items, order: EpochOrder, size: int, workers: int, drop_last: bool
) -> DataLoader[Batch | UserError]:
    return DataLoader(
        items,
        batch_size=size,
        sampler=order,
        collate_fn=_as_it_is,
        drop_last=drop_last,
        num_workers=workers,
        persistent_workers=workers > 0,
    )


def _told(loader: Iterable[Batch | UserError]) -> Iterator[Batch]:
    for batch in loader:
        if isinstance(batch, UserError):
            raise batch
        yield batch


def _as_it_is(batch: Any) -> Any:
    """`_Items` returns whole batches, so there is nothing to collate."""
    return batch


def mixed_seed(*numbers: int) -> int:
    """Combine several numbers into one seed; collisions are unlikely."""
    seed = 0
    for number in numbers:
        seed = (seed * 1_000_003 + number + 1) % (2**63 - 25)
    return seed
