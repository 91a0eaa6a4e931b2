"""The Lovász-Softmax loss: a surrogate of 1 - mean IoU for multi-class segmentation.

The errors of class c are 1 - p_c on its own pixels and p_c elsewhere; the loss of the class is the Lovász extension of its Jaccard
loss at these errors, and the loss is the mean over the classes. Over a batch it follows the IoU of the dataset, per image the mean
IoU of the images. Berman, Rannen Triki, Blaschko: The Lovász-Softmax loss, CVPR 2018.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from evalgrad import _checks
from evalgrad._gradient import with_gradient
from evalgrad._masking import valid_mask, working_dtype
from evalgrad.lovasz import class_maps
from evalgrad.lovasz.bins import bin_weights, count, look_up
from evalgrad.lovasz.extension import extend

Classes = str | Sequence[int]


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
        target: ``(N, *)`` class indices, of any integer dtype. Soft targets are refused: the Jaccard index is a function of sets.
        classes: ``"present"`` averages over the classes that occur in the group's target, ``"all"`` over all C, a list over those
            it names. The loss of a class that is averaged without occurring is its largest error.
        per_image: False: the batch is one group, which follows the IoU over a dataset. True: every image is a group.
        ignore_index: label of pixels that are as if absent.
        weight: ``(C,)`` class weights, normalised over the classes averaged.
        bins: None sorts and is exact; K counts errors in K equal bins instead, which needs no sort: the value is then within 1/K of
            the exact one, and the gradient close where a class has many pixels, but off by some percent where it has a few dozen.
        reduction: ``"mean"``: the weighted mean over the classes of each group, then the mean over the groups of which something
            counts; ``"sum"``: the weighted sum; ``"none"``: ``(groups, C)`` weighted losses, 0 for what is not averaged.

    Example:
        >>> logits = torch.randn(2, 21, 8, 8, requires_grad=True)
        >>> target = torch.randint(21, (2, 8, 8))
        >>> lovasz_softmax_loss(logits, target, ignore_index=255).backward()
    """
    _check_options(classes, per_image, ignore_index, bins, reduction)
    _check_tensors(logits, target, classes, ignore_index, weight)
    x, label = _group(logits, target, per_image, ignore_index)
    factor = _class_factor(_class_counts(label, x.shape[2]), classes, weight, reduction).to(working_dtype(logits))
    if reduction == "none":
        return (_class_losses(x, label, bins) * factor).to(logits.dtype)
    inputs = (x.detach().to(factor.dtype), label, factor)
    value, gradient = class_maps.exact(*inputs) if bins is None else class_maps.binned(*inputs, bins)
    return with_gradient(x, value, gradient).sum().to(logits.dtype)


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


def _check_options(classes: Classes, per_image: bool, ignore_index: int | None, bins: int | None, reduction: str) -> None:
    function = "lovasz_softmax_loss"
    if isinstance(classes, str):
        _checks.check_option(function, "classes", classes, ("present", "all"))
    _checks.check_flag(function, "per_image", per_image)
    _checks.check_ignore_index(function, ignore_index)
    _checks.check_option(function, "reduction", reduction, _checks.REDUCTIONS)
    if bins is not None:
        _checks.check_integer(function, "bins", bins, low=1, high=2**20, repair="4096 is a good number; None is exact.")


def _check_tensors(logits: Tensor, target: Tensor, classes: Classes, ignore_index: int | None, weight: Tensor | None) -> None:
    function = "lovasz_softmax_loss"
    _checks.check_floating(function, "logits", logits, at_least=2)
    num_classes = logits.shape[1]
    if num_classes == 0:
        _checks.fail(
            ValueError, function, "logits", "(N, C, *) with C >= 1", _checks.describe(logits), "Put the classes on axis 1."
        )
    _checks.check_target(function, target, logits, (logits.shape[0], *logits.shape[2:]))
    _checks.check_labels(function, target, num_classes, valid_mask(target, ignore_index))
    _checks.check_weight(function, weight, num_classes, logits)
    if not isinstance(classes, str):
        for c in classes:
            _checks.check_integer(function, "classes", c, low=0, high=num_classes - 1, repair="List indices of existing classes.")


def _group(logits: Tensor, target: Tensor, per_image: bool, ignore_index: int | None) -> tuple[Tensor, Tensor]:
    """Canonical form: logits ``(groups, images, C, pixels)`` and int64 labels ``(groups, images, pixels)``, -1 where ignored."""
    mask = valid_mask(target, ignore_index)
    label = target.long() if mask is None else target.long().masked_fill(~mask, -1)
    axis = 1 if per_image else 0
    n, c = logits.shape[:2]
    return logits.reshape(n, c, -1 if n else 0).unsqueeze(axis), label.reshape(n, -1 if n else 0).unsqueeze(axis)


def _class_factor(counts: Tensor, classes: Classes, weight: Tensor | None, reduction: str) -> Tensor:
    """Factor ``(groups, C)`` of each class loss in the result: 0 for what is not averaged."""
    if classes == "present":
        counted = counts > 0
    else:
        chosen = torch.ones_like(counts[:1], dtype=torch.bool)
        if classes != "all":
            chosen = torch.zeros_like(chosen).index_fill(
                1, torch.tensor(list(classes), dtype=torch.int64, device=counts.device), True
            )
        counted = chosen & (counts.sum(1, keepdim=True) > 0)  # a void group has no largest error
    factor = counted.double() if weight is None else torch.where(counted, weight.double(), 0.0)
    if reduction != "mean":
        return factor
    total = factor.sum(1, keepdim=True)
    groups = (total > 0).sum().clamp(min=1)
    return torch.where(total > 0, factor / total, 0.0) / groups


def _class_counts(label: Tensor, num_classes: int) -> Tensor:
    """Pixels of each class per group, ``(G, C)``."""
    slot = torch.where(label >= 0, label, num_classes).flatten(1)
    counts = torch.zeros(label.shape[0], num_classes + 1, dtype=torch.int64, device=label.device)
    return counts.scatter_add(1, slot, torch.ones_like(slot))[:, :-1]


def _class_losses(x: Tensor, label: Tensor, bins: int | None) -> Tensor:
    """Loss of every class by itself, ``(G, C)``, by autograd through the softmax."""
    _, errors, foreground, mask = class_maps.by_class(x.to(working_dtype(x)), label)
    if bins is None:
        return extend(errors, foreground, mask)
    table = bin_weights(count(errors.detach(), foreground, mask, bins)).to(errors.dtype)
    return (errors * look_up(table, errors.detach(), foreground, mask)).sum(-1)
