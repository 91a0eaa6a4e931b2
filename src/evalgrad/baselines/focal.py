"""Focal loss: cross-entropy whose easy items count less. Ordinary autograd.

Lin, Goyal, Girshick, He, Dollár: Focal Loss for Dense Object Detection, ICCV 2017.
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from evalgrad._binary_inputs import Binary, binary_maps
from evalgrad._errors import describe, fail
from evalgrad._inputs import WORKING, ClassMaps, Weight, class_maps, plain
from evalgrad._module import LossModule
from evalgrad._options import Reduction, checked, number
from evalgrad._repairs import mode_repair
from evalgrad._rows import reduce, row_factor
from evalgrad._soft_targets import MODES, Mode
from evalgrad._softmax import pixel_losses

GAMMA = number(at_least=0, repair="2 is usual; 0 is cross-entropy.")
ALPHA = number(
    above=0,
    below=1,
    none=True,
    repair="It is the weight of the positives; the paper uses 0.25, None weights both equally.",
)


@checked(gamma=GAMMA, alpha=ALPHA, mode=MODES)
def focal_loss(
    logits: Tensor,
    target: Tensor,
    *,
    gamma: float = 2.0,
    alpha: float | None = None,
    mode: Mode = "multiclass",
    ignore_index: int | None = None,
    weight: Weight = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Focal loss, (1 - p)^gamma times cross-entropy, with p the probability of the true label.

    Args:
        logits: ``(N, C, *)`` raw scores, C >= 2; in binary and multilabel mode any shape, each
            entry a binary task.
        target: class indices ``(N, *)`` or ``(N, 1, *)``; otherwise labels 0 and 1 of the shape of
            the logits.
        gamma: how strongly easy items are down-weighted; 0 is cross-entropy.
        alpha: binary and multilabel mode: weight of the positives, with 1 - alpha for the
            negatives; the mean is over the number of entries, as in torchvision.
        mode: ``"multiclass"``: softmax over dim 1; ``"binary"`` and ``"multilabel"``: sigmoid.
        ignore_index: label of items to ignore.
        weight: C class weights in multiclass mode; the mean is weighted, as in `F.cross_entropy`.
        reduction: over items ``"mean"`` | ``"sum"`` | ``"none"``: the shape of `target`.

    Example:
        >>> focal_loss(torch.zeros(4, 2), torch.tensor([0, 1, 1, 0]))  # log(2) / 4
        tensor(0.1733)
    """
    _check_weighting(mode, alpha, weight)
    given: dict[str, Any] = {"per_image": False, "ignore_index": ignore_index}
    if mode == "multiclass":
        maps = class_maps("focal_loss", logits, target, weight=weight, has_mode=True, **given)
        shape, losses = (logits.shape[0], *logits.shape[2:]), pixel_losses(maps).flatten()
        factor = row_factor(losses, _weights(maps), reduction, maps.invalid)
    else:
        logits, target = (
            plain("focal_loss", "logits", logits),
            plain("focal_loss", "target", target),
        )
        _refuse_indices(logits, target, mode)
        items = binary_maps("focal_loss", logits, target, per_class=False, **given)
        shape, losses = tuple(logits.shape), _entry_losses(items)
        factor = _entry_factor(items, losses, alpha, reduction)
    loss = reduce(_focused(losses, gamma), factor, reduction)
    return loss.reshape(shape) if reduction == "none" else loss


class FocalLoss(LossModule):
    """`focal_loss` as an `nn.Module`: ``loss(logits, target)``.

    Args:
        gamma: how strongly easy items are down-weighted; 0 is cross-entropy.
        alpha: binary and multilabel mode: weight of the positives, with 1 - alpha for the
            negatives; the mean is over the number of entries, as in torchvision.
        mode: ``"multiclass"``: softmax over dim 1; ``"binary"`` and ``"multilabel"``: sigmoid.
        ignore_index: label of items to ignore.
        weight: C class weights in multiclass mode; the mean is weighted, as in `F.cross_entropy`.
        reduction: over items ``"mean"`` | ``"sum"`` | ``"none"``: the shape of `target`.

    Example:
        >>> loss = FocalLoss(gamma=1.0)
        >>> logits = torch.randn(2, 21, 8, 8, requires_grad=True)
        >>> loss(logits, torch.randint(21, (2, 8, 8))).backward()
    """

    function = staticmethod(focal_loss)

    def __init__(
        self,
        *,
        gamma: float = 2.0,
        alpha: float | None = None,
        mode: Mode = "multiclass",
        ignore_index: int | None = None,
        weight: Weight = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(locals())

    def _check_together(self, options: Mapping[str, Any]) -> None:
        _check_weighting(options["mode"], options["alpha"], options["weight"])


def _refuse_indices(logits: Tensor, target: Tensor, mode: Mode) -> None:
    """Class indices, which are for the same loss in another mode."""
    wrong = mode_repair(target, tuple(logits.shape), mode)
    if wrong is not None:
        must = f"of shape {tuple(logits.shape)}"
        fail(wrong[0], "focal_loss", "target", must, describe(target), wrong[1])


def _check_weighting(mode: Mode, alpha: float | None, weight: object) -> None:
    if mode == "multiclass" and alpha is not None:
        repair = "Pass `weight`, one number per class."
        fail(ValueError, "focal_loss", "alpha", "None in multiclass mode", repr(alpha), repair)
    if mode != "multiclass" and weight is not None:
        repair = "Pass `alpha` to weight positives and negatives."
        fail(ValueError, "focal_loss", "weight", f"None in {mode} mode", describe(weight), repair)


def _focused(losses: Tensor, gamma: float) -> Tensor:
    """(1 - p)^gamma of cross-entropies -log p; away from 0, where a power below 1 has no slope."""
    tiny = torch.finfo(losses.dtype).tiny
    return losses * (-torch.expm1(-losses)).clamp(min=tiny) ** gamma


def _weights(maps: ClassMaps) -> Tensor | None:
    """How much each pixel counts; None: all alike."""
    label = maps.label.flatten()
    if maps.weight is None:
        return None if maps.complete else label >= 0
    return torch.where(label >= 0, maps.weight[label.clamp(min=0)], 0.0)


def _entry_losses(items: Binary) -> Tensor:
    """Cross-entropy of each entry, log(1 + exp(-s)) with s the score of its true side."""
    x = items.rows[0].to(WORKING[items.rows.dtype])
    x = x if items.mask is None else torch.where(items.mask[0], x, 0.0)
    return F.softplus(torch.where(items.positive[0], -x, x))


def _entry_factor(
    items: Binary, losses: Tensor, alpha: float | None, reduction: Reduction
) -> Tensor:
    counted = None if items.mask is None else items.mask[0]
    factor = row_factor(losses, counted, reduction, items.invalid)
    if alpha is None:
        return factor
    return factor * torch.where(items.positive[0], alpha, 1 - alpha).to(factor.dtype)
