"""Foreground from labels 0 and 1. The usual 64-bit ones are looked at and narrowed in one pass."""

import torch
from torch import Tensor

from evalgrad import _checks, _native


def foreground_of(function: str, target: Tensor, mask: Tensor | None) -> Tensor:
    """Where the target is 1, as bool; any other label that counts raises, where looking costs no sync."""
    if mask is None and target.dtype == torch.int64 and target.numel() and _checks.readable(target):
        foreground, binary = _narrow(target)
        if binary:
            return foreground
    _checks.check_labels(function, target, 2, mask)
    return target.bool()


def _pure(target: Tensor) -> tuple[Tensor, Tensor]:
    low, high = target.aminmax()
    return target.bool(), (low >= 0) & (high <= 1)


def _native_labels(target: Tensor) -> tuple[Tensor, Tensor]:
    foreground, binary = _fake(target)
    _native.call("binary_labels", target, target.numel(), foreground, binary)
    return foreground, binary


def _fake(target: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty(target.shape, dtype=torch.bool), torch.empty((), dtype=torch.bool)


_narrow = _native.operator(
    "binary_labels(Tensor target) -> (Tensor, Tensor)",
    pure=_pure,
    native=_native_labels,
    fake=_fake,
    dtypes=(torch.int64,),
    by_rows=False,
)
