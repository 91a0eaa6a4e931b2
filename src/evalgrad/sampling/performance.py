"""A sampler that prefers the classes that the network does badly on."""

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Sampler

from evalgrad._errors import describe, fail
from evalgrad._inputs import converted
from evalgrad._options import number
from evalgrad.sampling.presence import members_of_classes
from evalgrad.sampling.stream import Stream

BLEND = number(
    at_least=0,
    at_most=1,
    repair="It is the fraction of samples drawn by class; start with 0.5.",
)
MOMENTUM = number(at_least=0, below=1, repair="It is the weight of the earlier IoU in an update.")


class PerformanceSampler(Sampler[int]):
    """Blends uniform sampling with sampling from the classes that the network does badly on.

    With probability `blend` a class is drawn in proportion to 1 - IoU, then one of the samples that
    contain it; otherwise any sample. All draws are with replacement. Rota Bulò, Neuhold,
    Kontschieder: Loss Max-Pooling, CVPR 2017, section 4.

    Args:
        presence: ``(samples, C)`` table, nonzero where a sample contains a class: a dense or sparse
            tensor, a NumPy or SciPy matrix. `class_presence` computes it from a dataset.
        blend: fraction of samples drawn by class, in [0, 1].
        momentum: weight of the earlier IoU in an update, in [0, 1); 0 if you pass a running IoU.
        classes: the classes to cycle over; None for all. A class that no sample contains raises an
            error.
        num_samples: length of an epoch over all ranks, rounded up to a multiple of `world_size`;
            None for the number of samples.
        seed: all ranks must share it.
        rank: rank of this process.
        world_size: number of processes that share the epoch.
        class_names: names for the error message.

    Example:
        >>> sampler = PerformanceSampler(torch.tensor([[1, 0], [1, 0], [1, 0], [0, 1]]), blend=1.0)
        >>> sampler.update([1.0, 0.2])
        >>> list(sampler)
        [3, 3, 3, 3]
    """

    def __init__(
        self,
        presence: Any,
        *,
        blend: float = 0.5,
        momentum: float = 0.0,
        classes: Sequence[int] | None = None,
        num_samples: int | None = None,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        class_names: Sequence[str] | None = None,
    ) -> None:
        function = "PerformanceSampler"
        BLEND(function, "blend", blend)
        MOMENTUM(function, "momentum", momentum)
        self._size, self._members = members_of_classes(function, presence, classes, class_names)
        self._num_classes, self._labels = presence.shape[1], list(self._members)
        self._stream = Stream(function, num_samples, self._size, seed, rank, world_size)
        self.blend, self.momentum = blend, momentum
        self._set_iou([0.0] * self._num_classes)

    def __iter__(self) -> Iterator[int]:
        return (sample for sample, _ in self.visits())

    def visits(self) -> Iterator[tuple[int, int | None]]:
        """A pass of (sample, the class it was drawn for): for crops that must have that class. It
        is None for the samples that are drawn from all.
        """
        return (self._at(place) for place in self._stream.places())

    def __len__(self) -> int:
        return self._stream.length

    def update(self, per_class_iou: Tensor | Sequence[float]) -> None:
        """Take the ``(C,)`` IoU of the training data, the same on all ranks. NaN (nothing seen of a
        class) keeps what was.
        """
        name = "PerformanceSampler.update"
        given = converted(name, "per_class_iou", per_class_iou, torch.float64)
        iou = given.flatten().tolist()
        must, repair = (
            f"{self._num_classes} values in [0, 1]",
            "Pass the IoU of every class, NaN for classes without one.",
        )
        if given.shape != (self._num_classes,) or any(x < 0 or x > 1 for x in iou):
            fail(ValueError, name, "per_class_iou", must, describe(per_class_iou), repair)
        self._set_iou(
            [
                old if math.isnan(new) else self.momentum * old + (1 - self.momentum) * new
                for old, new in zip(self._iou, iou, strict=True)
            ]
        )

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch; without it, each pass is the next one."""
        self._stream.go_to(epoch, 0)

    def state_dict(self, *, consumed: int | None = None) -> dict[str, Any]:
        """Where the sampler is, as for `EquibatchSampler`, and the IoU it knows."""
        return {**self._stream.state_dict(consumed), "iou": list(self._iou)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue there: the next pass has the rest of the epoch."""
        self._stream.load_state_dict(state)
        self._set_iou(list(state["iou"]))

    def _set_iou(self, iou: list[float]) -> None:
        self._iou = iou
        weights = [1 - iou[label] for label in self._labels]
        # All perfect: every class alike. 1 - IoU, unlike 1/IoU, is finite for a class that is never
        # found.
        self._cumulative = list(
            itertools.accumulate(weights if sum(weights) > 0 else [1.0] * len(weights))
        )

    def _at(self, place: int) -> tuple[int, int | None]:
        draw = random.Random(f"draw/{self._stream.seed}/{place}")
        if draw.random() >= self.blend:
            return draw.randrange(self._size), None
        (label,) = draw.choices(self._labels, cum_weights=self._cumulative)
        return draw.choice(self._members[label]), label
