"""The padding of `DistributedSampler`: items it repeats so that every rank draws equally many."""

import torch
from torch import Tensor
from torch.utils.data import DistributedSampler

from evalgrad._errors import describe, fail
from evalgrad._options import integer


def sampler_padding(sampler: "DistributedSampler[object]", start: int, count: int) -> Tensor:
    """Which of the `count` items that this rank drew from position `start` of its epoch are
    padding: ``(count,)`` bool.

    The samples of an epoch are distributed to the ranks in turn, and those beyond the end of the
    dataset are padding. Pass them to the network, so that all ranks take the same number of steps,
    but leave them out of the loss: ``real = ~sampler_padding(sampler, step * batch_size,
    len(target))``, then ``loss(scores[real], target[real])``.

    Args:
        sampler: the sampler of the DataLoader.
        start: number of items this rank has drawn in this epoch before.
        count: number of items in the batch.

    Example:
        >>> sampler = DistributedSampler(range(5), num_replicas=2, rank=1, shuffle=False)
        >>> list(sampler), sampler_padding(sampler, 0, 3)
        ([1, 3, 0], tensor([False, False,  True]))
    """
    if not isinstance(sampler, DistributedSampler):
        repair = "The samplers of evalgrad need no padding."
        must, got = "a DistributedSampler", describe(sampler)
        fail(TypeError, "sampler_padding", "sampler", must, got, repair)
    drawn, repair = sampler.num_samples, "A rank draws `sampler.num_samples` items per epoch."
    integer(0, drawn, repair=repair)("sampler_padding", "start", start)
    integer(0, drawn - start, repair=repair)("sampler_padding", "count", count)
    place = torch.arange(start, start + count) * sampler.num_replicas + sampler.rank
    return place >= len(sampler.dataset)  # type: ignore[arg-type]
