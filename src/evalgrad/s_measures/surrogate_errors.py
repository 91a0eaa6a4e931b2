"""The surrogate errors of scored items: weighted by class with their gradient, and their totals by
class.

One kernel pass on CPU, pure torch elsewhere. An item violates its side of the threshold by u = -f
(positives) or u = f (negatives); its error is the surrogate at z = 1 + u. Totals are (rows, 2, 3):
for positives | negatives the surrogate sum, the hard errors and the number of items. A violation of
zero is a hard error: ties count against the model.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from evalgrad import _native, _triton
from evalgrad._labels import readable
from evalgrad._rows import with_gradient
from evalgrad.s_measures.surrogates import SURROGATES, Surrogate

_BY_CODE = {surrogate.code: surrogate for surrogate in SURROGATES.values()}


class Ratio(NamedTuple):
    """V = (beta^2 + F) / T of totals (..., 2, 3), 0 where a class is missing.

    Hard counts find one positive at least where T > 0: a T below one of n positives stands for one
    of n, and V stays finite.
    """

    square: float  # beta^2; 0 in the operator, where nothing asks for V
    prior: float  # negatives per positive; 0: those of the totals themselves

    def __call__(self, totals: Tensor) -> Tensor:
        (missed, _, n), (alarms, _, m) = (side.unbind(-1) for side in totals.unbind(-2))
        both, hits, others = n.minimum(m) > 0, n.clamp_min(1), m.clamp_min(1)
        alarm = self.prior * alarms / others if self.prior else alarms / hits
        value = (self.square + alarm) / torch.maximum(1 - missed / hits, 1 / hits)
        return torch.where(both, value, 0 * missed * alarms)


_NO_RATIO = Ratio(0.0, 0.0)


def weighted_errors(
    offset: Tensor,
    positive: Tensor,
    weight: Tensor,
    surrogate: Surrogate,
    *,
    mask: Tensor | None = None,
    running: Tensor | None = None,
    momentum: float = 0.0,
    ratio: Ratio | None = None,
) -> tuple[Tensor, Tensor]:
    """The class means of the errors times `weight`, and the totals: a differentiable number, and
    (K, 2, 3).

    Args:
        offset: (B,) or (K, B), scores minus thresholds.
        positive: (B,), the same for all rows.
        weight: (K, 2), for the mean over positives | negatives; both are left out of a batch that
            lacks one of them.
        surrogate: the bound on the 0-1 error.
        mask: (B,), True where an item counts; only where items cannot be left out beforehand.
        running: (K, 2, 3), totals that become `momentum` times themselves plus those of the batch.
        momentum: what earlier batches keep of their weight.
        ratio: for F-beta; the value is then V, the gradient that of the weighted means.
    """
    if weight.dtype != offset.dtype:
        weight = weight.to(offset.dtype)
    if mask is None and offset.ndim == 1 and _kernel_serves(offset):
        within = running if running is not None and running.dtype == offset.dtype else None
        result, totals = _one_row(offset, positive, weight, surrogate, within, momentum, ratio)
    else:
        within = None
        if mask is None:
            result, totals = _rows(offset, positive, weight, surrogate, ratio)
        else:  # a copy of the weights: they may move before the backward pass
            result, totals = _masked(offset, positive, mask, weight.clone(), surrogate, ratio)
    if running is not None and within is None:
        _take_in(running, totals, momentum)
    return result, totals


def _kernel_serves(offset: Tensor) -> bool:
    return _native.library is not None and readable(offset) and not _triton.INTERPRETED


def _one_row(
    offset: Tensor,
    positive: Tensor,
    weight: Tensor,
    surrogate: Surrogate,
    running: Tensor | None,
    momentum: float,
    ratio: Ratio | None,
) -> tuple[Tensor, Tensor]:
    """The kernel for scores (B,), past torch's dispatcher, which a small batch would pay more for
    than for the kernel.
    """
    # asked first: `contiguous` goes through the dispatcher even where it has nothing to do
    x = offset.detach() if offset.is_contiguous() else offset.detach().contiguous()
    positive = positive if positive.is_contiguous() else positive.contiguous()
    results = x.new_empty(()), torch.empty_like(x), x.new_empty(1, 2, 3)
    given = (x, positive, weight, 1, x.shape[0], surrogate.code, *(ratio or _NO_RATIO))
    _native.call("weighted_errors", *given, *results, running, float(momentum))
    value, gradient, totals = results
    attach = _linear if surrogate.piecewise_linear else with_gradient
    return attach(offset, value, gradient), totals


def _linear(offset: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
    """A piecewise linear loss is locally the product of scores and gradient plus a constant: so
    torch's own product has its derivatives, at half the cost of `with_gradient`.
    """
    attached = torch.dot(offset, gradient)
    # with the constant; the product is NaN where a score is infinite
    attached.detach().copy_(value)
    return attached


def _rows(
    offset: Tensor, positive: Tensor, weight: Tensor, surrogate: Surrogate, ratio: Ratio | None
) -> tuple[Tensor, Tensor]:
    """By the operator, on every device and in every graph."""
    rows = offset.detach() if offset.ndim == 2 else offset.detach().unsqueeze(0)
    given = (rows, positive.expand_as(rows), weight, surrogate.code, *(ratio or _NO_RATIO))
    value, gradient, totals = _operator(*given)
    return with_gradient(offset, value.sum(), gradient.view_as(offset)), totals


def _masked(
    offset: Tensor,
    positive: Tensor,
    mask: Tensor,
    weight: Tensor,
    surrogate: Surrogate,
    ratio: Ratio | None,
) -> tuple[Tensor, Tensor]:
    """By plain torch and its autograd, without a look at the mask."""
    offset = offset if offset.ndim == 2 else offset.unsqueeze(0)
    sides = torch.stack([positive & mask, ~positive & mask])
    violation = torch.where(mask, torch.where(positive, -offset, offset), 0)
    counted = torch.stack(
        [surrogate(1 + violation), (violation >= 0).to(offset), torch.ones_like(offset)], -1
    )
    totals = torch.where(sides[:, None, :, None], counted, 0).sum(2).movedim(0, 1)
    size = totals[..., 2]
    both = size.amin(1, keepdim=True) > 0
    means = torch.where(both, weight / size.clamp_min(1), 0)
    nothing = (means == 0) & ~totals[..., 0].isnan()
    value, totals = torch.where(nothing, 0, means * totals[..., 0]).sum(), totals.detach()
    # another value with the same gradient
    return value if ratio is None else value + (ratio(totals[0]) - value).detach(), totals


def _take_in(running: Tensor, totals: Tensor, momentum: float) -> None:
    """What the kernel does with the running totals.

    An overflowed batch stays out: a gradient scaler skips its step, and an infinite sum would never
    recover.
    """
    new = torch.add(totals.to(running), running, alpha=momentum)
    running.copy_(torch.where(totals.isfinite().all(), new, running))


def _pure(
    offset: Tensor, positive: Tensor, weight: Tensor, surrogate: int, square: float, prior: float
) -> tuple[Tensor, Tensor, Tensor]:
    chosen, (rows, items) = _BY_CODE[surrogate], offset.shape
    violation = torch.where(positive, -offset, offset)
    error = chosen.value(1 + violation)
    sides = torch.stack([positive, ~positive], dim=1)
    counted = torch.stack([error, (violation >= 0).to(error), torch.ones_like(error)], dim=-1)
    totals = torch.where(sides.unsqueeze(-1), counted.unsqueeze(1), 0).sum(2, dtype=torch.float64)
    size = totals[..., 2]
    # nothing where a class is missing
    mean_weight = torch.where(size.amin(1, keepdim=True) > 0, weight / size.clamp_min(1), 0)
    # A class without weight adds nothing, not even where its error is infinite; NaN shows.
    value = torch.where(
        (mean_weight == 0) & ~totals[..., 0].isnan(), 0, mean_weight * totals[..., 0]
    ).sum(1)
    value = Ratio(square, prior)(totals) if square else value
    each = torch.where(positive, -mean_weight[:, :1], mean_weight[:, 1:]).to(offset.dtype)
    gradient = torch.where(each == 0, 0, chosen.slope(1 + violation) * each)
    return value.to(offset.dtype), gradient.view(rows, items), totals.to(offset.dtype)


def _native_rows(
    offset: Tensor, positive: Tensor, weight: Tensor, surrogate: int, square: float, prior: float
) -> tuple[Tensor, Tensor, Tensor]:
    results = _fake(offset, positive, weight, surrogate, square, prior)
    given = (offset, positive, weight, *offset.shape, surrogate, square, prior)
    _native.call("weighted_errors", *given, *results, None, 0.0)
    return results


def _fake(
    offset: Tensor, positive: Tensor, weight: Tensor, surrogate: int, square: float, prior: float
) -> tuple[Tensor, Tensor, Tensor]:
    rows, items = offset.shape
    return offset.new_empty(rows), offset.new_empty(rows, items), offset.new_empty(rows, 2, 3)


_operator = _native.operator(
    "s_measure_errors(Tensor offset, Tensor positive, Tensor weight, int surrogate, float square,"
    " float prior) -> (Tensor, Tensor, Tensor)",
    pure=_pure,
    native=_native_rows,
    fake=_fake,
    dtypes=_native.FLOATS,
    triton="s_measures",
)


def error_totals(
    scores: Tensor,
    positive: Tensor,
    threshold: Tensor,
    surrogate: Surrogate,
    *,
    scale: Tensor | None = None,
    due: Tensor | bool = True,
) -> Tensor:
    """(K, 2, 3): totals of scores (N,), NaN = not seen yet, at K thresholds, the offsets rescaled
    by K factors.

    `due`: True, or a flag on the CPU: a graph calls this at every batch, but only the calls that
    are due do the work; the others give zeros.
    """
    factor = torch.ones_like(threshold) if scale is None else scale
    flag = torch.tensor(True) if isinstance(due, bool) else due
    return _totals_operator(
        scores, positive, factor.to(scores), threshold.to(scores), flag, surrogate.code
    )


def _pure_totals(
    scores: Tensor, positive: Tensor, scale: Tensor, threshold: Tensor, due: Tensor, surrogate: int
) -> Tensor:
    if not due:
        return scores.new_zeros(len(threshold), 2, 3)
    offset = scale.unsqueeze(-1) * (scores - threshold.unsqueeze(-1))
    known, rows = ~scores.isnan(), []  # also at a threshold that is NaN
    for side, u in ((positive, -offset), (~positive, offset)):
        seen = side & known
        counted = [
            torch.where(seen, x, 0).sum(-1)
            for x in (_BY_CODE[surrogate](1 + u), (u >= 0).to(u), torch.ones_like(u))
        ]
        rows.append(torch.stack(counted, dim=-1))
    return torch.stack(rows, dim=1)


def _native_totals(
    scores: Tensor, positive: Tensor, scale: Tensor, threshold: Tensor, due: Tensor, surrogate: int
) -> Tensor:
    totals = scores.new_zeros(len(threshold), 2, 3)
    if due:
        sizes = (len(threshold), len(scores))
        given = (scores, positive, scale, threshold, *sizes, surrogate)
        _native.call("error_totals", *given, totals)
    return totals


def _fake_totals(
    scores: Tensor, positive: Tensor, scale: Tensor, threshold: Tensor, due: Tensor, surrogate: int
) -> Tensor:
    return scores.new_empty(len(threshold), 2, 3)


_totals_operator = _native.operator(
    "s_measure_totals(Tensor scores, Tensor positive, Tensor scale, Tensor threshold, Tensor due,"
    " int surrogate) -> Tensor",
    pure=_pure_totals,
    native=_native_totals,
    fake=_fake_totals,
    dtypes=_native.FLOATS,
    by_rows=False,
    triton="s_measures",
)
