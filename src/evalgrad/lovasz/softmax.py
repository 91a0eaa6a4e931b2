"""The Lovász-Softmax loss: a surrogate of 1 - mean IoU for multi-class segmentation.

The errors of class c are 1 - p_c on its own pixels and p_c elsewhere; the loss of the class is the
Lovász extension of its Jaccard loss at these errors, and the loss is the mean over the classes.
Over a batch it follows the IoU of the dataset, per image the mean IoU of the images. Berman, Rannen
Triki, Blaschko: The Lovász-Softmax loss, CVPR 2018.
"""

from typing import Any

from torch import Tensor, nn

from evalgrad import _checks
from evalgrad._gradient import with_gradient
from evalgrad._masking import Classes, class_counts, class_factor, group_pixels, working_dtype
from evalgrad.lovasz import class_maps
from evalgrad.lovasz.bins import bin_of, bin_weights, count, look_up
from evalgrad.lovasz.extension import extend


def lovasz_softmax_loss(
    logits: Tensor,
    target: Tensor,
    *,
    classes: Classes = "present",
    per_image: bool = False,
    ignore_index: int | None = None,
    weight: Tensor | None = None,
    bins: int | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Lovász-Softmax loss of raw class scores.

    Args:
        logits: ``(N, C, *)`` raw scores, any number of spatial axes.
        target: ``(N, *)`` class indices, of any integer dtype. Soft targets are refused: the
            Jaccard index is a function of sets.
        classes: ``"present"`` averages over the classes that occur in the group's target, ``"all"``
            over all C, a list over those it names. The loss of a class that is averaged without
            occurring is its largest error.
        per_image: False: the batch is one group, which follows the IoU over a dataset. True: every
            image is a group.
        ignore_index: label of pixels that are as if absent.
        weight: ``(C,)`` class weights, normalised over the classes averaged.
        bins: None is exact; K counts errors in K equal bins instead, which needs no sort: the value
            is then within 1/K of the exact one, and the gradient close where a class has many
            pixels, but off by some percent where it has a few dozen.
        reduction: ``"mean"``: the weighted mean over the classes of each group, then the mean over
            the groups of which something counts; ``"sum"``: the weighted sum; ``"none"``:
            ``(groups, C)`` weighted losses, 0 for what is not averaged.

    Example:
        >>> import torch
        >>> logits = torch.randn(2, 21, 8, 8, requires_grad=True)
        >>> target = torch.randint(21, (2, 8, 8))
        >>> lovasz_softmax_loss(logits, target, ignore_index=255).backward()
    """
    _check_options(classes, per_image, ignore_index, bins, reduction)
    check_tensors(logits, target, classes, ignore_index, weight)
    x, label = group_pixels(logits, target, per_image, ignore_index)
    factor = class_factor(class_counts(label, x.shape[2]), classes, weight, reduction).to(
        working_dtype(logits)
    )
    if reduction == "none":
        return (_class_losses(x, label, bins) * factor).to(logits.dtype)
    inputs = (x.detach().to(factor.dtype), label, factor)
    value, gradient = (
        class_maps.exact(*inputs) if bins is None else class_maps.binned(*inputs, bins)
    )
    return with_gradient(x, value.sum(), gradient).to(logits.dtype)


class LovaszSoftmaxLoss(nn.Module):
    """`lovasz_softmax_loss` as a module, with the same options."""

    weight: Tensor | None

    def __init__(
        self,
        *,
        classes: Classes = "present",
        per_image: bool = False,
        ignore_index: int | None = None,
        weight: Tensor | None = None,
        bins: int | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        _check_options(classes, per_image, ignore_index, bins, reduction)
        self.options: dict[str, Any] = {
            "classes": classes,
            "per_image": per_image,
            "ignore_index": ignore_index,
            "bins": bins,
            "reduction": reduction,
        }
        self.register_buffer("weight", weight)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return lovasz_softmax_loss(logits, target, weight=self.weight, **self.options)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())


def _check_options(
    classes: Classes, per_image: bool, ignore_index: int | None, bins: int | None, reduction: str
) -> None:
    function = "lovasz_softmax_loss"
    _checks.check_classes(function, classes)
    _checks.check_flag(function, "per_image", per_image)
    _checks.check_ignore_index(function, ignore_index)
    _checks.check_option(function, "reduction", reduction, _checks.REDUCTIONS)
    if bins is not None:
        _checks.check_integer(
            function,
            "bins",
            bins,
            low=1,
            high=2**20,
            repair="4096 is a good number; None is exact.",
        )


def check_tensors(
    logits: Tensor,
    target: Tensor,
    classes: Classes,
    ignore_index: int | None,
    weight: Tensor | None,
) -> None:
    """Logits, labels and weights that fit each other."""
    function = "lovasz_softmax_loss"
    _checks.check_class_maps(function, logits, target, ignore_index, weight)
    _checks.check_classes(function, classes, logits.shape[1])


def _class_losses(x: Tensor, label: Tensor, bins: int | None) -> Tensor:
    """Loss of every class by itself, ``(G, C)``, by autograd through the softmax."""
    _, errors, foreground, mask = class_maps.by_class(x.to(working_dtype(x)), label)
    if bins is None:
        return extend(errors, foreground, mask)
    number = bin_of(errors.detach(), bins)
    table = bin_weights(count(number, foreground, mask, bins)).to(errors.dtype)
    return (errors * look_up(table, number, foreground, mask)).sum(-1)
