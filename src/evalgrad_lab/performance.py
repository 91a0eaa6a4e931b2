"""The hook that updates the sampler `performance` with the IoU of each class in training."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import evalgrad as eg
from evalgrad_lab.data.samplers import ByClass
from evalgrad_lab.fit import Hook, Training
from evalgrad_lab.measures import of_all_ranks


class Performance(Hook):
    """Counts what is right in the batches of an epoch, on all ranks, and updates the sampler at its
    end: the next epoch is drawn by the IoU of this one.

    Args:
        draw: what draws the images, by a `PerformanceSampler`.
        labels: what the network says of a batch, and the axes of its target -> classes of pixels.
        num_classes: their number.
        ignore_index: label of pixels that do not count.
    """

    def __init__(
        self,
        draw: ByClass,
        labels: Callable[[Tensor, int], Tensor],
        num_classes: int,
        ignore_index: int,
    ) -> None:
        self.draw, self.labels = draw, labels
        self.how = {"num_classes": num_classes, "ignore_index": ignore_index}
        self.counts = torch.zeros(len(draw.classes), 3, dtype=torch.long)

    def after_step(self, training: Training) -> None:
        target = training.batch.target
        predicted = self.labels(training.output.detach(), target.ndim)
        counts = eg.metrics.jaccard_counts(predicted, target, **self.how)
        self.counts += counts[:, self.draw.classes].sum(0).cpu()

    def after_epoch(self, training: Training) -> None:
        hits, predicted, true = of_all_ranks(self.counts[None]).sum(0).double().unbind(-1)
        # a class that was in no crop keeps what it had
        iou = torch.where(true > 0, hits / (predicted + true - hits), torch.nan)
        assert isinstance(self.draw.sampler, eg.PerformanceSampler)
        self.draw.sampler.update(iou)
        self.counts.zero_()

    def state_dict(self) -> dict[str, Any]:
        return self.draw.sampler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.draw.sampler.load_state_dict(state)
