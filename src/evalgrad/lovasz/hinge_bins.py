"""The operator of the Lovász hinge without a sort: losses counted in K equal bins between 0 and the
largest loss of their row.

Items without a loss have no gradient and come last in any order, so that they need no bin; those of
the foreground still count as such. An infinite loss leaves all finite ones in the lowest bin.
"""

import torch
from torch import Tensor

from evalgrad import _native
from evalgrad.lovasz.bins import bin_of, bin_weights, count, look_up


def _pure(
    x: Tensor,
    foreground: Tensor,
    mask: Tensor | None,
    factor: Tensor,
    bins: int,
    misses: float,
    false_alarms: float,
) -> tuple[Tensor, Tensor]:
    slope = torch.where(foreground, -torch.ones_like(x), 1.0)
    losses = (1 + slope * x).clamp(min=0)
    if mask is not None:
        losses, foreground = torch.where(mask, losses, 0.0), foreground & mask
    highest = losses.amax(-1, keepdim=True) if x.shape[-1] else losses.sum(-1, keepdim=True)
    number, counted = bin_of(losses, bins, highest), ~(losses <= 0)  # this way round, NaN counts
    counts = count(number, foreground, counted, bins)
    table = bin_weights(counts, misses, false_alarms, foreground.sum(-1))
    table = table * factor.double()[:, None, None]
    weights = look_up(table.to(x.dtype), number, foreground, counted)
    value = (
        torch.where(weights == 0, 0.0, losses * weights).sum(-1, dtype=torch.float64).to(x.dtype)
    )
    return value, weights * slope


def _native_rows(
    x: Tensor,
    foreground: Tensor,
    mask: Tensor | None,
    factor: Tensor,
    bins: int,
    misses: float,
    false_alarms: float,
) -> tuple[Tensor, Tensor]:
    rows, metric = (x, foreground, mask, factor), (misses, false_alarms)
    if x.shape[1] >= 2**31:  # the kernel counts in 32 bits
        return _pure(*rows, bins, *metric)
    value, gradient = _native.empty_results(x)
    _native.call("lovasz_rows", *rows, *x.shape, True, bins, *metric, value, gradient)
    return value, gradient


hinge_in_bins = _native.operator(
    "lovasz_hinge_bins(Tensor x, Tensor foreground, Tensor? mask, Tensor factor, SymInt bins, float"
    " misses, float false_alarms) -> (Tensor, Tensor)",
    pure=_pure,
    native=_native_rows,
    triton="lovasz",
)
