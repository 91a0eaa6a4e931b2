"""The operator of the Lovász hinge without a sort: losses counted in K equal bins between 0 and the
largest loss of their row.

Items without a loss have no gradient and come last in any order, so that they need no bin; those of
the foreground still count as such. An infinite loss leaves all finite ones in the lowest bin.
"""

import torch
from torch import Tensor

from evalgrad import _native
from evalgrad.lovasz.bins import bin_weights, check_bins, columns_of, count, look_up
from evalgrad.lovasz.extension import hinge_losses, parts, weighted_sum


def _pure(
    x: Tensor,
    foreground: Tensor,
    mask: Tensor | None,
    factor: Tensor,
    bins: int,
    misses: float,
    false_alarms: float,
) -> tuple[Tensor, Tensor]:
    value, gradient = _native.empty_results(x)
    for part in parts(x.shape[0], 4):
        front, losses = hinge_losses(
            x[part], foreground[part], None if mask is None else mask[part]
        )
        check_bins("lovasz_hinge_loss", losses, len(losses), bins)
        columns = _columns(losses, front, bins)
        table = bin_weights(count(columns, bins), misses, false_alarms, front.sum(-1))
        of_back, of_front = (table * factor[part, None, None]).unbind(-2)
        # on the foreground the loss falls as x grows
        slopes = torch.stack([of_back, -of_front], -2).to(x.dtype)
        gradient[part] = look_up(slopes, columns)
        value[part] = weighted_sum(losses, gradient[part])
    return value, gradient


def _columns(losses: Tensor, front: Tensor, bins: int) -> Tensor:
    if not losses.shape[-1]:  # and no largest
        return losses.long()
    columns = columns_of(losses, front, bins, losses.amax(-1, keepdim=True))
    return columns.masked_fill_(losses <= 0, 2 * bins)  # NaN counts


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
