"""Lovász-Softmax with bins over ranks: the counts of the ranks add up, and the pixels stay where
they are.

Three small sums over the ranks: pixels per class, errors per class and bin, and the value. From the
first two every rank knows the slope of each bin, and looks up its own pixels in them.
"""

from __future__ import annotations  # a torch built without `distributed` has no ProcessGroup

import torch.distributed as dist
from torch import Tensor

from evalgrad._gradient import with_gradient
from evalgrad._masking import class_counts, class_factor, group_pixels, working_dtype
from evalgrad.distributed.gather import add_over_ranks, number_of_ranks
from evalgrad.lovasz import LovaszSoftmaxLoss, class_maps
from evalgrad.lovasz.softmax import check_tensors


def applies(loss: LovaszSoftmaxLoss) -> bool:
    """Whether counts say it all: one group of pixels and one number as a result."""
    options = loss.options
    return (
        options["bins"] is not None and not options["per_image"] and options["reduction"] != "none"
    )


def lovasz_softmax_loss(
    loss: LovaszSoftmaxLoss, logits: Tensor, target: Tensor, *, group: dist.ProcessGroup | None
) -> Tensor:
    """The loss of the pixels of all ranks; its gradient at this rank's pixels, times the number of
    ranks.
    """
    classes, ignore_index = loss.options["classes"], loss.options["ignore_index"]
    check_tensors(logits, target, classes, ignore_index, loss.weight)
    x, label = group_pixels(logits, target, False, ignore_index)
    pixels = add_over_ranks(class_counts(label, x.shape[2]), group)
    factor = class_factor(pixels, classes, loss.weight, loss.options["reduction"]).to(
        working_dtype(logits)
    )
    wide = x.detach().to(factor.dtype)
    errors = add_over_ranks(class_maps.bin_counts(wide, label, loss.options["bins"]), group)
    value, gradient = class_maps.bin_gradient(wide, label, class_maps.bin_slopes(errors, factor))
    return with_gradient(
        x, add_over_ranks(value.sum(), group), gradient * number_of_ranks(group)
    ).to(logits.dtype)
