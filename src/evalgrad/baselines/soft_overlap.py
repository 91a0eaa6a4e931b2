"""Soft Jaccard, Dice and Tversky losses: 1 - the index with probabilities in place of a hard
prediction. Ordinary autograd; `overlap` has the formula.

A missed pixel costs a and a false alarm b where a hit counts 1: Jaccard a = b = 1, Dice a = b =
1/2, Tversky any. With hard labels hits are sum p y, as usual; with soft ones the usual product
would not be smallest at p = y, and this is 0 exactly there. Rahman, Wang: Optimizing Intersection-
over-Union in Deep Neural Networks for Image Segmentation, 2016; Salehi, Erdogmus, Gholipour:
Tversky loss function for image segmentation, 2017; Wang, Ning, Blaschko: Jaccard Metric Losses,
NeurIPS 2023.
"""

from torch import Tensor

from evalgrad._inputs import Weight
from evalgrad._module import LossModule
from evalgrad._options import Classes, Reduction, checked, number
from evalgrad._soft_targets import MODES, Mode
from evalgrad.baselines.overlap import overlap_loss

COST = number(at_least=0, repair="1 and 1 is Jaccard, 0.5 and 0.5 is Dice.")
SMOOTH = number(at_least=0, repair="0 is the plain index; 1 is usual for tiny objects.")


@checked(mode=MODES, smooth=SMOOTH)
def soft_jaccard_loss(
    logits: Tensor,
    target: Tensor,
    mask: Tensor | None = None,
    *,
    mode: Mode = "multiclass",
    smooth: float = 0.0,
    classes: Classes = "present",
    per_image: bool = False,
    ignore_index: int | None = None,
    weight: Weight = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """1 - the Jaccard index (IoU) with probabilities in place of a hard prediction.

    It equals 1 - IoU if every probability is 0 or 1, and is 0 exactly if the probabilities equal
    the target, soft or hard. A class neither predicted nor true has the loss 0.

    Args:
        logits: ``(N, C, *)`` raw scores, C >= 2; in binary mode ``(N, *)`` or ``(N, 1, *)``; in
            multilabel mode ``(N, C, *)``, C >= 1, each class a binary task.
        target: class indices ``(N, *)`` or ``(N, 1, *)`` (multiclass only), or one-hot or soft
            labels in [0, 1] of the shape of the logits, of any dtype.
        mask: True = keep; only with soft labels, of their shape or ``(N, *)``.
        mode: ``"multiclass"``: softmax over dim 1; ``"binary"`` and ``"multilabel"``: sigmoid.
        smooth: added to numerator and denominator, which lowers the loss of tiny objects.
        classes: ``"present"`` averages over the classes in the group's target, ``"all"`` over all
            C, a list over the classes in it. In binary mode the foreground is class 0, and
            ``"all"`` includes images without foreground.
        per_image: if False, the batch is one group; if True, every image is a group.
        ignore_index: label of pixels to ignore.
        weight: C class weights, a tensor or a sequence, normalised over the classes in the mean.
        reduction: ``"mean"`` over classes, then groups; ``"sum"``; ``"none"``: ``(groups, C)``.

    Example:
        >>> soft_jaccard_loss(torch.zeros(1, 2, 4), torch.tensor([[0, 0, 1, 1]]))
        tensor(0.6667)
        >>> soft_jaccard_loss(torch.zeros(1, 4), torch.full((1, 4), 0.5), mode="binary")
        tensor(0.)
    """
    groups = (classes, per_image, ignore_index, weight)
    given = (logits, target, mask, mode, smooth, reduction, *groups)
    return overlap_loss("soft_jaccard_loss", 1.0, 1.0, *given)


@checked(mode=MODES, smooth=SMOOTH)
def soft_dice_loss(
    logits: Tensor,
    target: Tensor,
    mask: Tensor | None = None,
    *,
    mode: Mode = "multiclass",
    smooth: float = 0.0,
    classes: Classes = "present",
    per_image: bool = False,
    ignore_index: int | None = None,
    weight: Weight = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """1 - the Dice coefficient (F1) with probabilities in place of a hard prediction.

    Args:
        logits: ``(N, C, *)`` raw scores, C >= 2; in binary mode ``(N, *)`` or ``(N, 1, *)``; in
            multilabel mode ``(N, C, *)``, C >= 1, each class a binary task.
        target: class indices ``(N, *)`` or ``(N, 1, *)`` (multiclass only), or one-hot or soft
            labels in [0, 1] of the shape of the logits, of any dtype.
        mask: True = keep; only with soft labels, of their shape or ``(N, *)``.
        mode: ``"multiclass"``: softmax over dim 1; ``"binary"`` and ``"multilabel"``: sigmoid.
        smooth: added to numerator and denominator, which lowers the loss of tiny objects.
        classes: ``"present"`` averages over the classes in the group's target, ``"all"`` over all
            C, a list over the classes in it. In binary mode the foreground is class 0, and
            ``"all"`` includes images without foreground.
        per_image: if False, the batch is one group; if True, every image is a group.
        ignore_index: label of pixels to ignore.
        weight: C class weights, a tensor or a sequence, normalised over the classes in the mean.
        reduction: ``"mean"`` over classes, then groups; ``"sum"``; ``"none"``: ``(groups, C)``.

    Example:
        >>> soft_dice_loss(torch.zeros(1, 2, 4), torch.tensor([[0, 0, 1, 1]]))
        tensor(0.5000)
    """
    groups = (classes, per_image, ignore_index, weight)
    given = (logits, target, mask, mode, smooth, reduction, *groups)
    return overlap_loss("soft_dice_loss", 0.5, 0.5, *given)


@checked(mode=MODES, smooth=SMOOTH, misses=COST, false_alarms=COST)
def soft_tversky_loss(
    logits: Tensor,
    target: Tensor,
    mask: Tensor | None = None,
    *,
    misses: float = 0.7,
    false_alarms: float = 0.3,
    mode: Mode = "multiclass",
    smooth: float = 0.0,
    classes: Classes = "present",
    per_image: bool = False,
    ignore_index: int | None = None,
    weight: Weight = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """1 - the Tversky index with probabilities in place of a hard prediction.

    Args:
        logits: ``(N, C, *)`` raw scores, C >= 2; in binary mode ``(N, *)`` or ``(N, 1, *)``; in
            multilabel mode ``(N, C, *)``, C >= 1, each class a binary task.
        target: class indices ``(N, *)`` or ``(N, 1, *)`` (multiclass only), or one-hot or soft
            labels in [0, 1] of the shape of the logits, of any dtype.
        mask: True = keep; only with soft labels, of their shape or ``(N, *)``.
        misses: weight of a false negative, relative to a hit.
        false_alarms: weight of a false positive. `misses` above `false_alarms` favours recall.
        mode: ``"multiclass"``: softmax over dim 1; ``"binary"`` and ``"multilabel"``: sigmoid.
        smooth: added to numerator and denominator, which lowers the loss of tiny objects.
        classes: ``"present"`` averages over the classes in the group's target, ``"all"`` over all
            C, a list over the classes in it. In binary mode the foreground is class 0, and
            ``"all"`` includes images without foreground.
        per_image: if False, the batch is one group; if True, every image is a group.
        ignore_index: label of pixels to ignore.
        weight: C class weights, a tensor or a sequence, normalised over the classes in the mean.
        reduction: ``"mean"`` over classes, then groups; ``"sum"``; ``"none"``: ``(groups, C)``.

    Example:
        >>> soft_tversky_loss(torch.zeros(1, 2, 4), torch.tensor([[0, 0, 1, 1]]), misses=0.9)
        tensor(0.5455)
    """
    groups = (classes, per_image, ignore_index, weight)
    given = (logits, target, mask, mode, smooth, reduction, *groups)
    return overlap_loss("soft_tversky_loss", misses, false_alarms, *given)


class SoftJaccardLoss(LossModule):
    """`soft_jaccard_loss` as an `nn.Module`: ``loss(logits, target)``.

    Args:
        mode: ``"multiclass"``: softmax over dim 1; ``"binary"`` and ``"multilabel"``: sigmoid.
        smooth: added to numerator and denominator, which lowers the loss of tiny objects.
        classes: ``"present"`` averages over the classes in the group's target, ``"all"`` over all
            C, a list over the classes in it. In binary mode the foreground is class 0, and
            ``"all"`` includes images without foreground.
        per_image: if False, the batch is one group; if True, every image is a group.
        ignore_index: label of pixels to ignore.
        weight: C class weights, a tensor or a sequence, normalised over the classes in the mean.
        reduction: ``"mean"`` over classes, then groups; ``"sum"``; ``"none"``: ``(groups, C)``.

    Example:
        >>> loss = SoftJaccardLoss(ignore_index=255)
        >>> logits = torch.randn(2, 21, 8, 8, requires_grad=True)
        >>> loss(logits, torch.randint(21, (2, 8, 8))).backward()
    """

    function = staticmethod(soft_jaccard_loss)

    def __init__(
        self,
        *,
        mode: Mode = "multiclass",
        smooth: float = 0.0,
        classes: Classes = "present",
        per_image: bool = False,
        ignore_index: int | None = None,
        weight: Weight = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(locals())


class SoftDiceLoss(SoftJaccardLoss):
    """`soft_dice_loss` as an `nn.Module`: ``loss(logits, target)``.

    Args:
        mode: ``"multiclass"``: softmax over dim 1; ``"binary"`` and ``"multilabel"``: sigmoid.
        smooth: added to numerator and denominator, which lowers the loss of tiny objects.
        classes: ``"present"`` averages over the classes in the group's target, ``"all"`` over all
            C, a list over the classes in it. In binary mode the foreground is class 0, and
            ``"all"`` includes images without foreground.
        per_image: if False, the batch is one group; if True, every image is a group.
        ignore_index: label of pixels to ignore.
        weight: C class weights, a tensor or a sequence, normalised over the classes in the mean.
        reduction: ``"mean"`` over classes, then groups; ``"sum"``; ``"none"``: ``(groups, C)``.

    Example:
        >>> loss = SoftDiceLoss(per_image=True)
        >>> logits = torch.randn(2, 21, 8, 8, requires_grad=True)
        >>> loss(logits, torch.randint(21, (2, 8, 8))).backward()
    """

    function = staticmethod(soft_dice_loss)


class SoftTverskyLoss(LossModule):
    """`soft_tversky_loss` as an `nn.Module`: ``loss(logits, target)``.

    Args:
        misses: weight of a false negative, relative to a hit.
        false_alarms: weight of a false positive. `misses` above `false_alarms` favours recall.
        mode: ``"multiclass"``: softmax over dim 1; ``"binary"`` and ``"multilabel"``: sigmoid.
        smooth: added to numerator and denominator, which lowers the loss of tiny objects.
        classes: ``"present"`` averages over the classes in the group's target, ``"all"`` over all
            C, a list over the classes in it. In binary mode the foreground is class 0, and
            ``"all"`` includes images without foreground.
        per_image: if False, the batch is one group; if True, every image is a group.
        ignore_index: label of pixels to ignore.
        weight: C class weights, a tensor or a sequence, normalised over the classes in the mean.
        reduction: ``"mean"`` over classes, then groups; ``"sum"``; ``"none"``: ``(groups, C)``.

    Example:
        >>> loss = SoftTverskyLoss(misses=0.8, false_alarms=0.2)
        >>> logits = torch.randn(2, 21, 8, 8, requires_grad=True)
        >>> loss(logits, torch.randint(21, (2, 8, 8))).backward()
    """

    function = staticmethod(soft_tversky_loss)

    def __init__(
        self,
        *,
        misses: float = 0.7,
        false_alarms: float = 0.3,
        mode: Mode = "multiclass",
        smooth: float = 0.0,
        classes: Classes = "present",
        per_image: bool = False,
        ignore_index: int | None = None,
        weight: Weight = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(locals())
