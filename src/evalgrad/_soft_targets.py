"""The way in for targets that may be soft: shares in [0, 1] of the shape of the logits.

Soft labels come from label smoothing, distillation, several annotators or resized masks; one-hot
maps are the hard case. What holds for labels holds here: a share outside [0, 1] raises where it can
be read, and makes its group `invalid` elsewhere.
"""

from typing import Literal, NamedTuple, NoReturn

import torch
from torch import Tensor

from evalgrad._errors import describe, fail
from evalgrad._inputs import (
    WORKING,
    Weight,
    check_classes,
    class_weight,
    floating,
    like,
    plain,
)
from evalgrad._labels import binary_labels, different, readable
from evalgrad._options import Classes, one_of
from evalgrad._repairs import share_repair
from evalgrad._softmax import below_infinity

Mode = Literal["multiclass", "binary", "multilabel"]
MODES = one_of("multiclass", "binary", "multilabel")


class SoftMaps(NamedTuple):
    """Logits of C classes with the share that each class has in each pixel, in groups."""

    x: Tensor  # (G, M, C, S): G groups of M images with S pixels; the working dtype
    target: Tensor  # (G, M, C, S) in [0, 1], the working dtype; 0 where it does not count
    counts: Tensor  # (G, C): the pixels of each class, shares added up
    mask: Tensor | None  # (G, M, C or 1, S) bool, True = counts; None: everything does
    weight: Tensor | None  # (C,)
    invalid: Tensor | None  # (G,) bool: groups with a wrong share; None: they were read

    def anything(self) -> Tensor:
        """Whether anything of a class counts in a group, ``(G, C or 1)``."""
        if self.mask is None:
            pixels = self.x.shape[1] * self.x.shape[3]
            return torch.full_like(self.counts, pixels > 0, dtype=torch.bool)
        return self.mask.any(3).any(1)


def soft_maps(
    function: str,
    logits: object,
    target: object,
    mask: object,
    *,
    mode: Mode,
    classes: Classes,
    per_image: bool,
    ignore_index: int | None,
    weight: Weight,
) -> SoftMaps:
    """Logits and target ``(N, C, *)``, or in binary mode ``(N, *)``, which is one class."""
    binary = mode == "binary"
    logits = floating(function, "logits", logits, at_least=1 if binary else 2)
    target = like(function, "target", target, logits, "logits")
    if target.is_complex():
        must, repair = "soft labels in [0, 1]", "Pass the real part, `target.real`."
        fail(TypeError, function, "target", must, describe(target), repair)
    channels = 1 if binary else logits.shape[1]
    check_classes(function, classes, channels)
    shape = (logits.shape[0], channels, logits.shape[1 if binary else 2 :].numel())
    valid, invalid = (None, None) if mask is None else _mask(function, mask, logits, shape)
    y, valid, wrong = _shares(target.reshape(shape), valid, ignore_index)
    if wrong is not None and not readable(y):
        images = wrong.flatten(1).any(1)
        invalid = images if invalid is None else images | invalid
    elif wrong is not None and bool(wrong.any()):
        _fail_share(function, y if valid is None else y[valid.expand(shape)])
    if weight is not None:
        weight = class_weight(function, weight, channels, logits)
    return _grouped(logits.reshape(shape), y, valid, weight, invalid, per_image)


def _grouped(
    x: Tensor,
    y: Tensor,
    valid: Tensor | None,
    weight: Tensor | None,
    invalid: Tensor | None,
    per_image: bool,
) -> SoftMaps:
    """Maps ``(N, C, S)`` of images in groups: each by itself, or all together."""
    dtype, group = WORKING[x.dtype], 1 if per_image else 0
    # what does not count may hold anything
    x, y = below_infinity(x.to(dtype)), y.to(dtype)
    if valid is not None:
        x, y = torch.where(valid, x, 0.0), torch.where(valid, y, 0.0)
        valid = valid.unsqueeze(group)
    x, y = x.unsqueeze(group), y.unsqueeze(group)
    if invalid is not None and not per_image:
        invalid = invalid.any().unsqueeze(0)
    return SoftMaps(x, y, y.sum((1, 3)), valid, weight, invalid)


def _shares(
    target: Tensor, valid: Tensor | None, ignore_index: int | None
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The target, which of it counts, and which of that is no share; None: all are."""
    if not target.is_floating_point():
        target = target.long()  # before it is compared: a uint8 would wrap ignore_index=-100
    elif target.dtype not in WORKING:
        target = target.float()  # a float8, which torch does not compare
    if ignore_index is not None:
        declared = target != ignore_index
        valid = declared if valid is None else declared & valid
    if readable(target) and target.numel():
        least, most = target.aminmax()  # one pass instead of five
        if least >= 0 and most <= 1:
            return target, valid, None
    wrong = ~((target >= 0) & (target <= 1))  # NaN is wrong
    return target, valid, wrong if valid is None else wrong & valid


def _mask(
    function: str, mask: object, logits: Tensor, shape: tuple[int, int, int]
) -> tuple[Tensor, Tensor | None]:
    """A mask of the shape of the logits, or of pixels ``(N, *)``: ``(N, C or 1, S)``; and which
    images it is wrong in, where it is not read.
    """
    mask = plain(function, "mask", mask)
    if mask.ndim == logits.ndim - 1 and mask.shape == (logits.shape[0], *logits.shape[2:]):
        shape = (shape[0], 1, shape[2])
    else:
        mask = like(function, "mask", mask, logits, "logits")
    rows = mask.reshape(shape[0], shape[1] * shape[2])
    positive, _, invalid = binary_labels(function, rows, "mask")
    return positive.reshape(shape), invalid


def _fail_share(function: str, counted: Tensor) -> NoReturn:
    wrong, repair = share_repair(different(counted), "pass ignore_index={value}")
    fail(ValueError, function, "target", "soft labels in [0, 1]", f"the label {wrong}", repair)
