"""Soft Jaccard, Dice and Tversky losses: 1 - the index with probabilities in place of a hard
prediction. Ordinary autograd.

For each class the probabilities p and the target y, hard or soft, make

    hits = sum min(p, y),   missed = sum max(y - p, 0),   false alarms = sum max(p - y, 0),

and the loss is 1 - hits / (hits + a missed + b false alarms): Jaccard a = b = 1, Dice a = b = 1/2,
Tversky any. With hard labels hits are sum p y, as usual; with soft ones the usual product would not
be smallest at p = y, and this is 0 exactly there. Rahman, Wang: Optimizing Intersection-over-Union
in Deep Neural Networks for Image Segmentation, 2016; Salehi, Erdogmus, Gholipour: Tversky loss
function for image segmentation, 2017; Wang, Ning, Blaschko: Jaccard Metric Losses, NeurIPS 2023.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from evalgrad._errors import describe, fail
from evalgrad._inputs import ClassMaps, Weight, class_maps
from evalgrad._module import LossModule
from evalgrad._options import Classes, Reduction, checked, number
from evalgrad._repairs import few_shares_repair, soft_target_repair
from evalgrad._rows import class_factor
from evalgrad._soft_targets import MODES, Mode, SoftMaps, soft_maps
from evalgrad._softmax import finite_logits

COST = number(at_least=0, repair="1 and 1 is Jaccard, 0.5 and 0.5 is Dice.")
SMOOTH = number(at_least=0, repair="0 is the index itself; 1 is usual where objects are tiny.")


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

    It equals 1 - IoU at confident predictions, and is 0 exactly where the probabilities equal the
    target, soft or hard. A class neither predicted nor true has the loss 0.

    Args:
        logits: ``(N, C, *)`` raw scores, C >= 2; in binary mode ``(N, *)`` or ``(N, 1, *)``; in
            multilabel mode ``(N, C, *)``, C >= 1, with a decision of its own for each class.
        target: class indices ``(N, *)`` or ``(N, 1, *)`` (multiclass only), or shares in [0, 1] of
            the shape of the logits: one-hot or soft labels, of any dtype.
        mask: what counts (True), beside a target of shares: of their shape, or ``(N, *)``.
        mode: ``"multiclass"``: softmax over axis 1; ``"binary"`` and ``"multilabel"``: sigmoid.
        smooth: added to both sides of the fraction, which lessens the loss of tiny objects.
        classes: ``"present"`` averages over the classes that occur in the group's target, ``"all"``
            over all C, a list over those it names. In binary mode the foreground is class 0, and
            ``"all"`` counts images without foreground too.
        per_image: False: the batch is one group. True: every image is a group.
        ignore_index: label of pixels that are as if absent.
        weight: C class weights, a tensor or a sequence, normalised over the classes averaged.
        reduction: ``"mean"`` over classes, then groups; ``"sum"``; ``"none"``: ``(groups, C)``.

    Example:
        >>> soft_jaccard_loss(torch.zeros(1, 2, 4), torch.tensor([[0, 0, 1, 1]]))
        tensor(0.6667)
        >>> soft_jaccard_loss(torch.zeros(1, 4), torch.full((1, 4), 0.5), mode="binary")
        tensor(0.)
    """
    given = {**locals(), "misses": 1.0, "false_alarms": 1.0}
    return _soft_loss("soft_jaccard_loss", **given)


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

    The arguments are those of `soft_jaccard_loss`.

    Example:
        >>> soft_dice_loss(torch.zeros(1, 2, 4), torch.tensor([[0, 0, 1, 1]]))
        tensor(0.5000)
    """
    given = {**locals(), "misses": 0.5, "false_alarms": 0.5}
    return _soft_loss("soft_dice_loss", **given)


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
        logits: as in `soft_jaccard_loss`, and so are all arguments that are not here.
        target: class indices or shares.
        mask: what counts, beside a target of shares.
        misses: what a missed pixel (false negative) costs, where a hit counts 1.
        false_alarms: what a false alarm (false positive) costs. More for misses than for false
            alarms favours recall.

    Example:
        >>> soft_tversky_loss(torch.zeros(1, 2, 4), torch.tensor([[0, 0, 1, 1]]), misses=0.9)
        tensor(0.5455)
    """
    return _soft_loss("soft_tversky_loss", **locals())


class SoftJaccardLoss(LossModule):
    """`soft_jaccard_loss` as a module: ``loss(logits, target)``, with the options as attributes."""

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
    """`soft_dice_loss` as a module: ``loss(logits, target)``, with the options as attributes."""

    function = staticmethod(soft_dice_loss)


class SoftTverskyLoss(LossModule):
    """`soft_tversky_loss` as a module: ``loss(logits, target)``, with the options as attributes."""

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


# ---- the overlap of prediction and truth ---------------------------------------------------------


class Overlap(NamedTuple):
    """What the index of each class is made of, ``(G, C)`` each."""

    truth: Tensor  # sum y: hits and missed together
    missed: Tensor
    alarms: Tensor


def _soft_loss(
    function: str,
    logits: Tensor,
    target: Tensor,
    mask: Tensor | None,
    *,
    misses: float,
    false_alarms: float,
    smooth: float,
    mode: Mode,
    classes: Classes,
    reduction: Reduction,
    **options: Any,
) -> Tensor:
    maps: ClassMaps | SoftMaps
    _refuse_misfit(function, logits, target, mode)
    if mode == "multiclass" and not _same_shape(logits, target):
        _refuse_mask(function, mask)
        maps = class_maps(function, logits, target, classes=classes, **options)
        overlap = _of_indices(maps)
    else:
        maps = soft_maps(function, logits, target, mask, mode=mode, classes=classes, **options)
        overlap = _of_shares(maps, mode)
    errors = misses * overlap.missed + false_alarms * overlap.alarms
    # hits + errors, without a difference of large sums
    total = overlap.truth + (misses - 1) * overlap.missed + false_alarms * overlap.alarms + smooth
    losses = torch.where(total > 0, errors / torch.where(total > 0, total, 1.0), 0.0 * errors)
    losses = losses * class_factor(maps, classes, reduction)
    return losses if reduction == "none" else losses.sum()


def _same_shape(logits: object, target: object) -> bool:
    """Whether the target holds a share for each class; class indices lack the axis of classes."""
    return (
        isinstance(logits, Tensor)
        and isinstance(target, Tensor)
        and logits.ndim > 1
        and target.shape == logits.shape
    )


def _refuse_misfit(function: str, logits: object, target: object, mode: Mode) -> None:
    """Shapes that the advice for class indices alone would send to another loss."""
    if not isinstance(logits, Tensor) or not isinstance(target, Tensor):
        return
    if mode == "multiclass" and logits.ndim > 1 and logits.shape[1] < 2:
        must, repair = "(N, C, *) with C >= 2", few_shares_repair(logits.shape[1])
        fail(ValueError, function, "logits", must, describe(logits), repair)
    wrong = None if _same_shape(logits, target) else soft_target_repair(target, logits.shape, mode)
    if wrong is not None:
        indices = "an integer or bool tensor of labels, or " if mode == "multiclass" else ""
        must = f"{indices}shares of shape {tuple(logits.shape)}"
        fail(wrong[0], function, "target", must, describe(target), wrong[1])


def _refuse_mask(function: str, mask: Tensor | None) -> None:
    if mask is not None:
        repair = "Mark the pixels to leave out in `target`, and pass their label as ignore_index."
        fail(ValueError, function, "mask", "None beside class indices", describe(mask), repair)


def _of_indices(maps: ClassMaps) -> Overlap:
    """From the probability of its own class at each pixel, and the sum of all."""
    p = finite_logits(maps).softmax(2)
    label = maps.label.clamp(min=0).unsqueeze(2)
    own = p.gather(2, label)
    if not maps.complete:
        counts = maps.label.unsqueeze(2) >= 0
        p, own = (torch.where(counts, x, 0.0) for x in (p, own))
    everything = p.sum((1, 3))
    hits = torch.zeros_like(everything).scatter_add(1, label.flatten(1), own.flatten(1))
    return Overlap(maps.counts, maps.counts - hits, everything - hits)


def _of_shares(maps: SoftMaps, mode: Mode) -> Overlap:
    p = maps.x.softmax(2) if mode == "multiclass" else maps.x.sigmoid()
    excess = p - maps.target
    if maps.mask is not None:
        excess = torch.where(maps.mask, excess, 0.0)
    # relu, not clamp: its slope at 0 is 0, and with it the gradient where p = y
    return Overlap(maps.counts, (-excess).relu().sum((1, 3)), excess.relu().sum((1, 3)))
