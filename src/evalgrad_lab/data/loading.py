"""From examples to batches, in an order that depends on the seed and the epoch alone: what was
interrupted can be repeated.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import lightning
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from evalgrad_lab.data.augment import augment
from evalgrad_lab.data.examples import Examples

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class Loading:
    """How batches are made."""

    batch_size: int
    seed: int
    augment: str = "none"
    crop: int | None = None
    ignore_index: int = 255
    workers: int = 0
    same_size: bool = True  # of all inputs that are measured: then they fit into a batch


class EpochOrder(Sampler[tuple[int, int]]):
    """(epoch, position) in the order of that epoch, for one of several ranks; `epoch` -1: in order,
    without repetition.
    """

    def __init__(self, length: int, seed: int, rank: int, ranks: int, shuffle: bool) -> None:
        self.length, self.seed, self.rank, self.ranks, self.shuffle = (
            length,
            seed,
            rank,
            ranks,
            shuffle,
        )
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return (
            len(range(self.rank, self.length, self.ranks))
            if not self.shuffle
            else -(-self.length // self.ranks)
        )

    def __iter__(self) -> Iterator[tuple[int, int]]:
        if not self.shuffle:
            return iter([(-1, i) for i in range(self.rank, self.length, self.ranks)])
        generator = torch.Generator().manual_seed(mixed_seed(self.seed, self.epoch))
        order = torch.randperm(self.length, generator=generator).tolist()
        order += order[: -self.length % self.ranks]  # every rank has to take as many steps
        return iter([(self.epoch, i) for i in order[self.rank :: self.ranks]])


class Items(Dataset[Batch]):
    """One entry per example, or per list where the examples are in lists."""

    def __init__(self, examples: Examples, loading: Loading) -> None:
        self.examples, self.loading = examples, loading
        lists = examples.lists
        self.units = [[i] for i in range(len(examples))]
        if lists is not None:
            self.units = [
                [i for i, other in enumerate(lists) if other == number]
                for number in sorted(set(lists))
            ]

    def __len__(self) -> int:
        return len(self.units)

    def __getitem__(self, key: tuple[int, int]) -> Batch:
        epoch, unit = key
        pairs = [self._pair(epoch, i) for i in self.units[unit]]
        inputs, targets = (torch.stack(part) for part in zip(*pairs, strict=True))
        index = torch.tensor(self.units[unit])
        return {
            "inputs": inputs,
            "target": targets,
            "index": index,
            "lists": torch.full_like(index, unit),
        }

    def _pair(self, epoch: int, i: int) -> tuple[Tensor, Tensor]:
        inputs, loading = self.examples.inputs[i], self.loading
        target = torch.tensor(0) if self.examples.targets is None else self.examples.targets[i]
        if epoch < 0 or inputs.ndim == 1:
            return inputs, target
        generator = torch.Generator().manual_seed(mixed_seed(loading.seed, epoch, i))
        return augment(
            inputs, target, generator, loading.augment, loading.crop, loading.ignore_index
        )


class Loaders(lightning.LightningDataModule):
    """The loaders of one rank."""

    def __init__(self, train: Examples, validation: Examples, loading: Loading) -> None:
        super().__init__()
        self.train_items, self.validation_items, self.loading = (
            Items(train, loading),
            Items(validation, loading),
            loading,
        )

    def train_dataloader(self) -> DataLoader[Batch]:
        return self._loader(self.train_items, shuffle=True)

    def val_dataloader(self) -> DataLoader[Batch]:
        return self._loader(self.validation_items, shuffle=False)

    def _loader(self, items: Items, shuffle: bool) -> DataLoader[Batch]:
        rank, ranks = (
            (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)
        )
        sampler = EpochOrder(len(items), self.loading.seed, rank, ranks, shuffle)
        return loader(
            items,
            self.loading,
            sampler,
            drop_last=shuffle and len(sampler) >= self.loading.batch_size,
        )


def loader(
    items: Items, loading: Loading, sampler: EpochOrder, drop_last: bool = False
) -> DataLoader[Batch]:
    """Batches in the order of the sampler; images of different sizes are measured one by one."""
    options: dict[str, Any] = {
        "num_workers": loading.workers,
        "persistent_workers": loading.workers > 0,
    }
    size = loading.batch_size if loading.same_size or sampler.shuffle else 1
    return DataLoader(
        items, batch_size=size, sampler=sampler, collate_fn=_join, drop_last=drop_last, **options
    )


def steps_per_epoch(units: int, batch_size: int, ranks: int) -> int:
    """Batches that one rank sees in an epoch."""
    share = -(-units // ranks)
    return max(share // batch_size, 1)


def mixed_seed(*numbers: int) -> int:
    """One seed of several numbers, different for different ones but for rare accidents."""
    seed = 0
    for number in numbers:
        seed = (seed * 1_000_003 + number + 1) % (2**63 - 25)
    return seed


def _join(entries: list[Batch]) -> Batch:
    return {key: torch.cat([entry[key] for entry in entries]) for key in entries[0]}
