"""The padding of `DistributedSampler`: items it repeats so that every rank draws equally many."""

import torch
from torch import Tensor
from torch.utils.data import DistributedSampler

from evalgrad._errors import fail


def sampler_padding(sampler: "DistributedSampler[object]", start: int, count: int) -> Tensor:
    """Which of the `count` items that this rank drew from place `start` of its epoch are padding:
    ``(count,)`` bool.

    The samples of an epoch are dealt to the ranks in turn, and what exceeds the data set is
    padding. Let the network see it, so that all ranks take equally many steps, and leave it out of
    the loss: ``real = ~sampler_padding(sampler, step * batch_size, len(target))``, then
    ``loss(scores[real], target[real])``.

    Args:
        sampler: the one of the data loader.
        start: how many items this rank has drawn in this epoch before.
        count: number of items in the batch.

    Example:
        >>> sampler = DistributedSampler(range(5), num_replicas=2, rank=1, shuffle=False)
        >>> list(sampler), sampler_padding(sampler, 0, 3)
        ([1, 3, 0], tensor([False, False,  True]))
    """
    if not isinstance(sampler, DistributedSampler):
        repair = "The samplers of evalgrad need no padding."
        fail(TypeError, "sampler_padding", "sampler", "a DistributedSampler", repr(sampler), repair)
    place = torch.arange(start, start + count) * sampler.num_replicas + sampler.rank
    return place >= len(sampler.dataset)  # type: ignore[arg-type]
