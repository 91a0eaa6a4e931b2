"""The Lovász-Softmax loss on class maps with its errors counted in bins, here or over ranks.

Canonical shapes: x ``(G, M, C, S)`` logits of G groups of M images with S pixels; label ``(G, M,
S)`` int64, -1 where ignored. Each operator returns the value ``(G,)`` of the sum over classes of
factor x loss, and its gradient in x.
"""

import torch
from torch import Tensor

from evalgrad import _native
from evalgrad._softmax import through_softmax
from evalgrad.lovasz import bins as _bins


def by_class(x: Tensor, label: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Probabilities, errors, foreground and mask, each ``(G, C, M*S)``."""
    item_label = label.flatten(1).unsqueeze(1)
    mask = (item_label >= 0).expand(-1, x.shape[2], -1)
    # +inf acts as its limit
    logits = x.clamp(max=torch.finfo(x.dtype).max).movedim(2, 1).flatten(2)
    p = torch.where(mask, logits, 0.0).softmax(1)
    foreground = item_label == torch.arange(x.shape[2], device=x.device).unsqueeze(-1)
    return p, torch.where(foreground, 1 - p, p), foreground, mask


def in_the_shape_of(x: Tensor, gradient: Tensor) -> Tensor:
    """A gradient ``(G, C, M*S)`` in the shape of x."""
    return gradient.unflatten(2, (x.shape[1], x.shape[3])).movedim(1, 2).contiguous()


# ---- binned: as exact, with the errors of a bin taken as tied ------------------------------------


def _binned_pure(
    x: Tensor, label: Tensor, factor: Tensor, bins: int, misses: float, false_alarms: float
) -> tuple[Tensor, Tensor]:
    counts = _counts_pure(x, label, bins)
    return _gradient_pure(x, label, bin_slopes(counts, factor, misses, false_alarms))


def _binned_native(
    x: Tensor, label: Tensor, factor: Tensor, bins: int, misses: float, false_alarms: float
) -> tuple[Tensor, Tensor]:
    metric = (misses, false_alarms)
    if x[:1].numel() >= 2**31:  # the kernel counts in 32 bits
        return _binned_pure(x, label, factor, bins, *metric)
    value, gradient = _native.empty_results(x)
    _native.call("lovasz_softmax", x, label, factor, *x.shape, bins, *metric, value, gradient)
    return value, gradient


binned = _native.operator(
    "lovasz_softmax_bins(Tensor x, Tensor label, Tensor factor, SymInt bins, float misses, float"
    " false_alarms) -> (Tensor, Tensor)",
    pure=_binned_pure,
    native=_binned_native,
    triton="lovasz",
)


# ---- the same over ranks, which add up their counts: counts, then a table (G, C, 2, K) of slopes,
# background and foreground, then the gradient -----------------------------------------------------


def bin_slopes(counts: Tensor, factor: Tensor, misses: float, false_alarms: float) -> Tensor:
    """The table of slopes from the counts, which may be those of several ranks, and the factor
    ``(G, C)`` per class.
    """
    weights = _bins.bin_weights(counts, misses, false_alarms)
    of_back, of_front = (weights * factor[..., None, None]).unbind(-2)
    # on the foreground the error falls as p grows
    return torch.stack([of_back, -of_front], dim=-2).to(factor.dtype)


def _counts_pure(x: Tensor, label: Tensor, bins: int) -> Tensor:
    _, errors, foreground, mask = by_class(x, label)
    return _bins.count(_bins.bin_of(errors, bins), foreground, mask, bins)


def _counts_empty(x: Tensor, label: Tensor, bins: int) -> Tensor:
    return label.new_empty(x.shape[0], x.shape[2], 2, bins)


def _counts_native(x: Tensor, label: Tensor, bins: int) -> Tensor:
    counts = _counts_empty(x, label, bins)
    _native.call("lovasz_bin_counts", x, label, *x.shape, bins, counts)
    return counts


def _gradient_pure(x: Tensor, label: Tensor, slopes: Tensor) -> tuple[Tensor, Tensor]:
    p, errors, foreground, mask = by_class(x, label)
    slope = _bins.look_up(slopes, _bins.bin_of(errors, slopes.shape[-1]), foreground, mask)
    value = (errors * slope.abs()).sum((1, 2), dtype=torch.float64).to(x.dtype)
    return value, in_the_shape_of(x, through_softmax(p, slope))


def _gradient_native(x: Tensor, label: Tensor, slopes: Tensor) -> tuple[Tensor, Tensor]:
    value, gradient = _native.empty_results(x)
    _native.call(
        "lovasz_bin_gradient", x, label, slopes, *x.shape, slopes.shape[-1], value, gradient
    )
    return value, gradient


bin_counts = _native.operator(
    "lovasz_bin_counts(Tensor x, Tensor label, SymInt bins) -> Tensor",
    pure=_counts_pure,
    native=_counts_native,
    fake=_counts_empty,
    triton="lovasz",
)
bin_gradient = _native.operator(
    "lovasz_bin_gradient(Tensor x, Tensor label, Tensor slopes) -> (Tensor, Tensor)",
    pure=_gradient_pure,
    native=_gradient_native,
    triton="lovasz",
)
