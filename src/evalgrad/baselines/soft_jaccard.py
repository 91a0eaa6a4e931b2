"""The soft Jaccard loss: 1 - IoU with probabilities in place of a hard prediction. Ordinary
autograd.
"""

import torch
from torch import Tensor

from evalgrad._inputs import ClassMaps, Weight, class_maps
from evalgrad._module import LossModule
from evalgrad._options import Classes, Reduction, checked
from evalgrad._rows import class_factor
from evalgrad._softmax import finite_logits


@checked()
def soft_jaccard_loss(
    logits: Tensor,
    target: Tensor,
    *,
    classes: Classes = "present",
    per_image: bool = False,
    ignore_index: int | None = None,
    weight: Weight = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """1 - the Jaccard index with probabilities in place of a hard prediction: sum p y / sum (p + y
    - p y) for each class.

    Rahman, Wang: Optimizing Intersection-over-Union in Deep Neural Networks for Image Segmentation,
    2016. It equals 1 - IoU at confident predictions. A class neither predicted nor true has the
    loss 0.

    Args:
        logits: ``(N, C, *)`` raw scores.
        target: ``(N, *)`` or ``(N, 1, *)`` class indices.
        classes: ``"present"`` averages over the classes that occur in the group's target, ``"all"``
            over all C, a list over those it names.
        per_image: False: the batch is one group. True: every image is a group.
        ignore_index: label of pixels that are as if absent.
        weight: C class weights, a tensor or a sequence, normalised over the classes averaged.
        reduction: ``"mean"`` over classes, then groups; ``"sum"``; ``"none"``: ``(groups, C)``.

    Example:
        >>> soft_jaccard_loss(torch.zeros(1, 2, 4), torch.tensor([[0, 0, 1, 1]]))
        tensor(0.6667)
    """
    maps = class_maps(
        "soft_jaccard_loss",
        logits,
        target,
        per_image=per_image,
        ignore_index=ignore_index,
        weight=weight,
        classes=classes,
    )
    losses = _class_losses(maps) * class_factor(maps, classes, reduction)
    return losses if reduction == "none" else losses.sum()


class SoftJaccardLoss(LossModule):
    """`soft_jaccard_loss` as a module: ``loss(logits, target)``, with the options as attributes."""

    function = staticmethod(soft_jaccard_loss)

    def __init__(
        self,
        *,
        classes: Classes = "present",
        per_image: bool = False,
        ignore_index: int | None = None,
        weight: Weight = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(locals())


def _class_losses(maps: ClassMaps) -> Tensor:
    """Soft Jaccard loss of every class, ``(G, C)``: its errors over its soft union.

    The errors are 1 - p on the pixels of the class (missed) and p on all others; the soft union is
    the number of its pixels + p of the others. Sums of small terms only: a small loss keeps its
    digits.
    """
    p = finite_logits(maps).softmax(2)
    label = maps.label.clamp(min=0).unsqueeze(2)
    missed = 1 - p.gather(2, label)
    others = p.scatter(2, label, 0.0)
    if not maps.complete:
        counts = maps.label.unsqueeze(2) >= 0
        missed, others = (torch.where(counts, x, 0.0) for x in (missed, others))
    back = others.sum((1, 3))
    front = torch.zeros_like(back).scatter_add(1, label.flatten(1), missed.flatten(1))
    union = maps.counts + back
    loss = (front + back) / torch.where(union > 0, union, 1.0)
    return torch.where(union > 0, loss, 0.0 * front)
