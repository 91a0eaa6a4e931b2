"""Equibatch: a sampler that cycles over the classes."""

import random
from collections.abc import Iterator, Sequence
from typing import Any

from torch.utils.data import Sampler

from evalgrad.sampling.presence import members_of_classes
from evalgrad.sampling.stream import Stream


class EquibatchSampler(Sampler[int]):
    """Cycles over the classes, so that each is visited at least once in any C consecutive samples.

    A visit draws a sample that contains the class; a sample is drawn again for a class only after
    all other samples with that class. Berman, Rannen Triki, Blaschko: The Lovász-Softmax loss, CVPR
    2018, section 3.1.

    Args:
        presence: ``(samples, C)`` table, nonzero where a sample contains a class: a dense or sparse
            tensor, a NumPy or SciPy matrix. `class_presence` computes it from a dataset.
        classes: the classes to cycle over; None for all. A class that no sample contains raises an
            error.
        num_samples: length of an epoch over all ranks, rounded up to a multiple of `world_size`;
            None for the number of samples.
        seed: all ranks must share it.
        rank: rank of this process.
        world_size: number of processes that share the epoch.
        class_names: names for the error message.

    Example:
        >>> import torch
        >>> presence = torch.tensor([[1, 0], [1, 0], [1, 0], [0, 1]])
        >>> [index == 3 for index in EquibatchSampler(presence)].count(True)
        2
    """

    def __init__(
        self,
        presence: Any,
        *,
        classes: Sequence[int] | None = None,
        num_samples: int | None = None,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        class_names: Sequence[str] | None = None,
    ) -> None:
        function = "EquibatchSampler"
        size, self._members = members_of_classes(function, presence, classes, class_names)
        self._stream = Stream(function, num_samples, size, seed, rank, world_size)
        self._order = list(self._members)
        random.Random(f"classes/{seed}").shuffle(self._order)
        # of each class, the order of its current round
        self._rounds: dict[int, tuple[int, list[int]]] = {}

    def __iter__(self) -> Iterator[int]:
        return (sample for sample, _ in self.visits())

    def visits(self) -> Iterator[tuple[int, int]]:
        """A pass of (sample, the class that is due): for crops that must have that class."""
        return (self._at(place) for place in self._stream.places())

    def __len__(self) -> int:
        return self._stream.length

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch; without it, each pass is the next one."""
        self._stream.go_to(epoch, 0)

    def state_dict(self, *, consumed: int | None = None) -> dict[str, Any]:
        """Where the sampler is, for a checkpoint.

        A DataLoader with workers reads ahead of the training: say how many samples of the epoch
        this rank has really `consumed`.
        """
        return self._stream.state_dict(consumed)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue there: the next pass has the rest of the epoch."""
        self._stream.load_state_dict(state)

    def _at(self, place: int) -> tuple[int, int]:
        visit, turn = divmod(place, len(self._order))
        label = self._order[turn]
        members = self._members[label]
        number, position = divmod(visit, len(members))
        if self._rounds.get(label, (-1,))[0] != number:
            shuffled = members.copy()
            random.Random(f"round/{self._stream.seed}/{label}/{number}").shuffle(shuffled)
            self._rounds[label] = number, shuffled
        return self._rounds[label][1][position], label
