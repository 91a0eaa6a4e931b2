"""The soft Jaccard loss: 1 - IoU with probabilities in place of a hard prediction. Ordinary
autograd.
"""

from typing import Any

import torch
from torch import Tensor, nn

from evalgrad import _checks
from evalgrad._masking import (
    Classes,
    class_counts,
    class_factor,
    finite_where_ignored,
    group_pixels,
    working_dtype,
)


def soft_jaccard_loss(
    logits: Tensor,
    target: Tensor,
    *,
    classes: Classes = "present",
    per_image: bool = False,
    ignore_index: int | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """1 - the Jaccard index with probabilities in place of a hard prediction: sum p y / sum (p + y
    - p y) for each class.

    Rahman, Wang: Optimizing Intersection-over-Union in Deep Neural Networks for Image Segmentation,
    2016. It equals 1 - IoU at confident predictions. A class neither predicted nor true has the
    loss 0.

    Args:
        logits: ``(N, C, *)`` raw scores.
        target: ``(N, *)`` class indices.
        classes: ``"present"`` averages over the classes that occur in the group's target, ``"all"``
            over all C, a list over those it names.
        per_image: False: the batch is one group. True: every image is a group.
        ignore_index: label of pixels that are as if absent.
        weight: ``(C,)`` class weights, normalised over the classes averaged.
        reduction: ``"mean"`` over classes, then groups; ``"sum"``; ``"none"``: ``(groups, C)``.

    Example:
        >>> soft_jaccard_loss(torch.zeros(1, 2, 4), torch.tensor([[0, 0, 1, 1]]))
        tensor(0.6667)
    """
    _check_options(classes, per_image, ignore_index, reduction)
    _checks.check_class_maps("soft_jaccard_loss", logits, target, ignore_index, weight)
    _checks.check_classes("soft_jaccard_loss", classes, logits.shape[1])
    x, label = group_pixels(logits, target, per_image, ignore_index)
    losses = _class_losses(x.to(working_dtype(logits)), label)
    losses = losses * class_factor(class_counts(label, x.shape[2]), classes, weight, reduction).to(
        losses
    )
    return (losses if reduction == "none" else losses.sum()).to(logits.dtype)


class SoftJaccardLoss(nn.Module):
    """`soft_jaccard_loss` as a module, with the same options."""

    weight: Tensor | None

    def __init__(
        self,
        *,
        classes: Classes = "present",
        per_image: bool = False,
        ignore_index: int | None = None,
        weight: Tensor | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        _check_options(classes, per_image, ignore_index, reduction)
        self.options: dict[str, Any] = {
            "classes": classes,
            "per_image": per_image,
            "ignore_index": ignore_index,
            "reduction": reduction,
        }
        self.register_buffer("weight", weight)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return soft_jaccard_loss(logits, target, weight=self.weight, **self.options)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())


def _check_options(
    classes: Classes, per_image: bool, ignore_index: int | None, reduction: str
) -> None:
    function = "soft_jaccard_loss"
    _checks.check_classes(function, classes)
    _checks.check_flag(function, "per_image", per_image)
    _checks.check_ignore_index(function, ignore_index)
    _checks.check_option(function, "reduction", reduction, _checks.REDUCTIONS)


def _class_losses(x: Tensor, label: Tensor) -> Tensor:
    """Soft Jaccard loss of every class, ``(G, C)``: the errors over the soft union, which loses no
    digits near 0.
    """
    p = finite_where_ignored(x, label).softmax(2)
    item = label.unsqueeze(2)
    front = item == torch.arange(x.shape[2], device=x.device).unsqueeze(-1)
    back = torch.where(front | (item < 0), 0.0, p).sum((1, 3))
    errors = torch.where(front, 1 - p, 0.0).sum((1, 3)) + back
    union = front.sum((1, 3)) + back
    return torch.where(union > 0, errors / torch.where(union > 0, union, 1.0), 0.0 * errors)
