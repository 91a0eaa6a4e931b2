"""The overlap of prediction and truth that the soft Jaccard, Dice and Tversky losses are made of.

For each class the probabilities p and the target y, hard or soft, make

    hits = sum min(p, y),   missed = sum max(y - p, 0),   false alarms = sum max(p - y, 0),

and the loss is 1 - hits / (hits + a missed + b false alarms).
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from evalgrad._errors import describe, fail
from evalgrad._inputs import ClassMaps, Weight, class_maps, plain
from evalgrad._options import Classes, Reduction
from evalgrad._repairs import few_classes_repair, mode_repair
from evalgrad._rows import class_factor
from evalgrad._soft_targets import Mode, SoftMaps, soft_maps
from evalgrad._softmax import finite_logits


class Overlap(NamedTuple):
    """What the index of each class is made of, ``(G, C)`` each."""

    hits: Tensor
    missed: Tensor
    alarms: Tensor


def overlap_loss(
    function: str,
    misses: float,
    false_alarms: float,
    logits: Tensor,
    target: Tensor,
    mask: Tensor | None,
    mode: Mode,
    smooth: float,
    reduction: Reduction,
    classes: Classes,
    per_image: bool,
    ignore_index: int | None,
    weight: Weight,
) -> Tensor:
    """1 - the index of each class that counts, reduced."""
    maps: ClassMaps | SoftMaps
    options: dict[str, Any] = {"ignore_index": ignore_index, "weight": weight, "classes": classes}
    logits, target = plain(function, "logits", logits), plain(function, "target", target)
    _refuse_misfit(function, logits, target, mode)
    if mode == "multiclass" and not _same_shape(logits, target):
        _refuse_mask(function, mask)
        maps = class_maps(function, logits, target, per_image=per_image, **options)
        overlap = _of_indices(maps)
    else:
        maps = soft_maps(function, logits, target, mask, mode=mode, per_image=per_image, **options)
        overlap = _of_shares(maps, mode)
    errors = misses * overlap.missed + false_alarms * overlap.alarms
    total = overlap.hits + errors + smooth
    # where nothing is true or predicted there is no error either
    losses = errors / torch.where(total > 0, total, 1.0) * class_factor(maps, classes, reduction)
    return losses if reduction == "none" else losses.sum()


def _same_shape(logits: Tensor, target: Tensor) -> bool:
    """Whether the target holds a share for each class; class indices lack the axis of classes."""
    return logits.ndim > 1 and target.shape == logits.shape


def _refuse_misfit(function: str, logits: Tensor, target: Tensor, mode: Mode) -> None:
    """Shapes that the advice for class indices alone would send to another loss."""
    if mode == "multiclass" and logits.ndim > 1 and logits.shape[1] < 2:
        repair = few_classes_repair("logits", logits.shape[1], has_mode=True)
        must = "(N, C, *) with C >= 2"
        fail(ValueError, function, "logits", must, describe(logits), repair)
    wrong = None if _same_shape(logits, target) else mode_repair(target, logits.shape, mode)
    if wrong is not None:
        indices = "an integer or bool tensor of labels, or " if mode == "multiclass" else ""
        must = f"{indices}soft labels of shape {tuple(logits.shape)}"
        fail(wrong[0], function, "target", must, describe(target), wrong[1])


def _refuse_mask(function: str, mask: Tensor | None) -> None:
    if mask is not None:
        repair = "Mark the pixels to ignore in `target`, and pass their label as ignore_index."
        fail(ValueError, function, "mask", "None with class indices", describe(mask), repair)


def _of_indices(maps: ClassMaps) -> Overlap:
    """From the probability of its own class at each pixel, and the sum of all."""
    p = finite_logits(maps).softmax(2)
    label = (maps.label if maps.complete else maps.label.clamp(min=0)).unsqueeze(2)
    own = p.gather(2, label)
    if not maps.complete:
        counts = maps.label.unsqueeze(2) >= 0
        p, own = (torch.where(counts, x, 0.0) for x in (p, own))
    everything = p.sum((1, 3))
    hits = torch.zeros_like(everything).scatter_add(1, label.flatten(1), own.flatten(1))
    return Overlap(hits, maps.counts.to(hits.dtype) - hits, everything - hits)


def _of_shares(maps: SoftMaps, mode: Mode) -> Overlap:
    p = maps.x.softmax(2) if mode == "multiclass" else maps.x.sigmoid()
    excess = p - maps.target
    if maps.mask is not None:
        excess = torch.where(maps.mask, excess, 0.0)
    # relu, not clamp: its slope at 0 is 0, and with it the gradient where p = y
    missed = (-excess).relu().sum((1, 3))
    return Overlap(maps.counts - missed, missed, excess.relu().sum((1, 3)))
