"""The Lovász-Softmax loss with its errors counted in bins, here or over ranks.

As exact, with the errors of a bin taken as tied. Shapes as in `class_maps`; each operator returns
the value ``(G,)`` of the sum over classes of factor x loss, and its gradient in x.
"""

import torch
from torch import Tensor

from evalgrad import _native
from evalgrad.lovasz.bins import bin_weights, bins_of, check_bins, count, look_up
from evalgrad.lovasz.class_maps import errors_of, probabilities, value_and_gradient
from evalgrad.lovasz.extension import parts


def _columns(p: Tensor, label: Tensor, bins: int) -> Tensor:
    """`columns_of` the errors of all classes, ``(G, C, M*S)``."""
    shape = (p.shape[0], p.shape[2], label.shape[1:].numel())
    columns = torch.empty(shape, dtype=torch.int64, device=p.device)
    for part in parts(p.shape[2], 4):
        errors, front = errors_of(p, label, part)
        columns[:, part].copy_(bins_of(errors, bins)).add_(front, alpha=bins)
    return columns


def _count(columns: Tensor, label: Tensor, bins: int) -> Tensor:
    """Errors per kind and bin, ``(G, C, 2, K)``."""
    check_bins("lovasz_softmax_loss", columns, columns.shape[:2].numel(), bins)
    counts = count(columns, bins)
    # Ignored pixels, where p = 0, were counted as background without an error.
    counts[..., 0, -1] -= (label < 0).flatten(1).sum(1, keepdim=True)
    return counts


def _binned_pure(
    x: Tensor, label: Tensor, factor: Tensor, bins: int, misses: float, false_alarms: float
) -> tuple[Tensor, Tensor]:
    p = probabilities(x, label)
    columns = _columns(p, label, bins)
    counts = _count(columns, label, bins)
    slopes = bin_slopes(counts, factor, misses, false_alarms)
    return value_and_gradient(p, look_up(slopes, columns), label)


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
    weights = bin_weights(counts, misses, false_alarms)
    of_back, of_front = (weights * factor[..., None, None]).unbind(-2)
    # on the foreground the error falls as p grows
    return torch.stack([of_back, -of_front], dim=-2).to(factor.dtype)


def _counts_pure(x: Tensor, label: Tensor, bins: int) -> Tensor:
    return _count(_columns(probabilities(x, label), label, bins), label, bins)


def _counts_empty(x: Tensor, label: Tensor, bins: int) -> Tensor:
    return label.new_empty(x.shape[0], x.shape[2], 2, bins)


def _counts_native(x: Tensor, label: Tensor, bins: int) -> Tensor:
    check_bins("lovasz_softmax_loss", x, x.shape[0] * x.shape[2], bins)
    counts = _counts_empty(x, label, bins)
    _native.call("lovasz_bin_counts", x, label, *x.shape, bins, counts)
    return counts


def _gradient_pure(x: Tensor, label: Tensor, slopes: Tensor) -> tuple[Tensor, Tensor]:
    p = probabilities(x, label)
    columns = _columns(p, label, slopes.shape[-1])
    return value_and_gradient(p, look_up(slopes, columns), label)


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
