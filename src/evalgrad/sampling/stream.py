"""The places of an endless sequence, cut into epochs and shared by ranks.

The sample at a place is a function of the seed and the place alone (and of the IoU, for one
sampler). Rank r of W reads one place of every W; hence what a sampler promises holds for the union
of the ranks, and to resume is to go to a place.
"""

import random
from collections.abc import Iterator
from typing import Any

from evalgrad._errors import fail
from evalgrad._options import integer


class Stream:
    """Places of an endless sequence, cut into epochs and shared by ranks."""

    def __init__(
        self,
        function: str,
        num_samples: int | None,
        size: int,
        seed: int,
        rank: int,
        world_size: int,
    ) -> None:
        num_samples = size if num_samples is None else num_samples
        integer(1, repair="Pass the length of an epoch.")(function, "num_samples", num_samples)
        integer(0, repair="Pass the same integer on all ranks.")(function, "seed", seed)
        integer(1, repair="Pass the number of processes.")(function, "world_size", world_size)
        integer(0, world_size - 1, repair="Pass the rank of this process.")(function, "rank", rank)
        self.seed, self.rank, self.world_size = seed, rank, world_size
        self.length = -(-num_samples // world_size)  # of an epoch on one rank
        self.go_to(0, 0)

    def go_to(self, epoch: int, position: int) -> None:
        self.epoch, self.position = epoch, position
        # the epoch of the last pass, which a reader ahead of the training may have ended already
        self.begun = epoch
        self._start = position  # of the next pass

    def places(self) -> Iterator[int]:
        # a pass that is broken off starts again
        self.begun, self.position, self._start = self.epoch, self._start, 0
        while self.position < self.length:
            turn = self.epoch * self.length + self.position
            # In each turn the ranks take W places in an order of its own: in a fixed one, a rank
            # might never meet some class.
            shift = (
                random.Random(f"turn/{self.seed}/{turn}").randrange(self.world_size)
                if self.world_size > 1
                else 0
            )
            self.position += 1
            yield turn * self.world_size + (self.rank + shift) % self.world_size
        self.epoch, self.position = self.epoch + 1, 0

    def state_dict(self, consumed: int | None) -> dict[str, Any]:
        epoch, position = (
            (self.epoch, self.position) if consumed is None else (self.begun, consumed)
        )
        if position >= self.length:
            epoch, position = epoch + 1, 0
        return {
            "epoch": epoch,
            "position": position,
            "seed": self.seed,
            "world_size": self.world_size,
            "length": self.length,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in ("seed", "world_size", "length"):
            if state[name] != getattr(self, name):
                must, repair = (
                    f"of a sampler with {name}={getattr(self, name)}",
                    "Construct the sampler as the saved one was.",
                )
                fail(
                    ValueError,
                    "load_state_dict",
                    "state",
                    must,
                    f"one with {name}={state[name]}",
                    repair,
                )
        self.go_to(state["epoch"], state["position"])
