"""Foreground and mask from labels 0 and 1. The usual 64-bit ones are looked at and narrowed in one
pass.
"""

import torch
from torch import Tensor

from evalgrad import _checks, _native
from evalgrad._masking import valid_mask


def foreground_and_mask(
    function: str, target: Tensor, ignore_index: int | None
) -> tuple[Tensor, Tensor | None]:
    """Where the target is not 0, and where it counts, None for everywhere.

    A label that counts and is not 0 or 1 raises, where looking costs no sync.
    """
    if target.dtype == torch.int64 and target.numel() and _checks.readable(target):
        foreground, mask, flags = _narrow(target, ignore_index)
        binary, ignored = flags.tolist()
        if binary:
            return foreground, mask if ignored else None
    valid = valid_mask(target, ignore_index)
    _checks.check_labels(function, target, 2, valid)
    return target.bool(), valid


def _pure(target: Tensor, ignore: int | None) -> tuple[Tensor, Tensor, Tensor]:
    mask = target.new_empty(0, dtype=torch.bool) if ignore is None else target != ignore
    low, high = (target if ignore is None else torch.where(mask, target, 0)).aminmax()
    return target.bool(), mask, torch.stack([(low >= 0) & (high <= 1), ~mask.all()])


def _native_labels(target: Tensor, ignore: int | None) -> tuple[Tensor, Tensor, Tensor]:
    foreground, mask, flags = _fake(target, ignore)
    given, written = (0, None) if ignore is None else (ignore, mask)
    _native.call("binary_labels", target, target.numel(), given, foreground, written, flags)
    return foreground, mask, flags


def _fake(target: Tensor, ignore: int | None) -> tuple[Tensor, Tensor, Tensor]:
    foreground = torch.empty(target.shape, dtype=torch.bool)
    return (
        foreground,
        foreground.new_empty(0 if ignore is None else target.shape),
        foreground.new_empty(2),
    )


_narrow = _native.operator(
    "binary_labels(Tensor target, int? ignore) -> (Tensor, Tensor, Tensor)",
    pure=_pure,
    native=_native_labels,
    fake=_fake,
    dtypes=(torch.int64,),
    by_rows=False,
)
