"""The hook that validates during training: metric curve, best weights, early stopping."""

import math
from collections.abc import Callable, Collection
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from evalgrad_lab.fit import Hook, Training


class Validation(Hook):
    """Calls `measure()` at the steps of `when`, or after every epoch (None).

    Args:
        measure: the metric on validation data, higher is better.
        when: steps to look at.
        keep_best: keep the weights of the best look, for `restore_best`.
        patience: stop after so many looks without a better metric; 0 never stops.
        smooth: judge a look by the mean of it and those before it, so many together: one look at
            few examples is noise. Before there are so many, none is the best.
    """

    def __init__(
        self,
        measure: Callable[[], float],
        *,
        when: Collection[int] | None = None,
        keep_best: bool = False,
        patience: int = 0,
        smooth: int = 1,
    ) -> None:
        self.smooth = smooth
        self.measure, self.when, self.keep_best, self.patience = measure, when, keep_best, patience
        self.curve: list[dict[str, float]] = []
        self.best, self.waited = -math.inf, 0
        self.weights: dict[str, Tensor] = {}

    def after_step(self, training: Training) -> None:
        if self.when is not None and training.step in self.when:
            self._look(training)

    def after_epoch(self, training: Training) -> None:
        if self.when is None:
            self._look(training)

    def _look(self, training: Training) -> None:
        metric = self.measure()
        point = {"iteration": training.step, "seconds": training.seconds}
        self.curve.append({**point, "loss": float(training.loss), "metric": metric})
        if len(self.curve) < self.smooth:
            return
        value = fmean(point["metric"] for point in self.curve[-self.smooth :])
        if value > self.best:
            self.best, self.waited = value, 0
            if self.keep_best:
                state = training.network.state_dict()
                self.weights = {name: tensor.detach().clone() for name, tensor in state.items()}
        else:
            self.waited += 1
        training.stopped |= 0 < self.patience <= self.waited

    def restore_best(self, training: Training) -> None:
        """Give the network the weights of the best look, if they were kept."""
        if self.weights:
            training.network.load_state_dict(self.weights)

    def state_dict(self) -> dict[str, Any]:
        names = ("curve", "best", "waited", "weights")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)


def looks(steps: int, count: int) -> set[int]:
    """`count` steps, evenly spread, the last among them.

    >>> sorted(looks(20, 4))
    [5, 10, 15, 20]
    """
    return {round(steps * (i + 1) / count) for i in range(count)} - {0}


def broadcast_buffers(training: Training) -> None:
    """All ranks measure with the running means of rank 0: those are saved."""
    if torch.distributed.is_initialized():
        for buffer in training.network.buffers():
            torch.distributed.broadcast(buffer, 0)
