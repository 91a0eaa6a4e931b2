"""Lovász-Softmax with bins over ranks: the counts of the ranks add up, and the pixels stay where
they are.

Three small sums over the ranks: pixels per class, errors per class and bin, and the value. From the
first two every rank knows the slope of each bin, and looks up its own pixels in them.
"""

from __future__ import annotations  # a torch built without `distributed` has no ProcessGroup

import torch.distributed as dist
from torch import Tensor

from evalgrad._inputs import class_maps
from evalgrad._rows import attach, class_factor, marked, working
from evalgrad.distributed.gather import add_over_ranks, number_of_ranks
from evalgrad.lovasz import LovaszSoftmaxLoss
from evalgrad.lovasz.metric import METRICS
from evalgrad.lovasz.softmax_bins import bin_counts, bin_gradient, bin_slopes


def applies(loss: LovaszSoftmaxLoss) -> bool:
    """Whether counts say it all: one group of pixels and one number as a result."""
    return loss.bins is not None and not loss.per_image and loss.reduction != "none"


def lovasz_softmax_loss(
    loss: LovaszSoftmaxLoss, logits: Tensor, target: Tensor, *, group: dist.ProcessGroup | None
) -> Tensor:
    """The loss of the pixels of all ranks; its gradient at this rank's pixels, times the number of
    ranks.
    """
    maps = class_maps(
        "lovasz_softmax_loss",
        logits,
        target,
        per_image=False,
        ignore_index=loss.ignore_index,
        weight=loss.weight,
        classes=loss.classes,
    )
    x, label = working(maps.x), maps.label
    maps = maps._replace(counts=add_over_ranks(maps.counts, group))
    factor = class_factor(maps, loss.classes, loss.reduction)
    errors = add_over_ranks(bin_counts(x, label, loss.bins), group)
    slopes = bin_slopes(errors, factor, *METRICS.get(loss.metric, loss.metric))
    value, gradient = bin_gradient(x, label, slopes)
    total = add_over_ranks(marked(value, maps.invalid).sum(), group)
    return attach(maps.x, total, gradient * number_of_ranks(group), loss.reduction)
