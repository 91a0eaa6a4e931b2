"""The operator of loss max-pooling: rows ``(R, n)`` of losses -> values ``(R,)`` and weights w*
``(R, n)``.

w* = tau min(1, l/alpha)^(q-1), where alpha is the largest root of sum min(l, alpha)^q = m alpha^q
(docs/maths.md, "Loss max-pooling"). All powers are of l/rho, rho = the ceil(m)-th largest loss:
the paper's division by the maximum underflows from q = 100 on in float32.
"""

import math

import torch
from torch import Tensor, nn

from evalgrad import _native
from evalgrad._rows import exact_dtype


def _pure(losses: Tensor, mask: Tensor | None, p: float, support: float) -> tuple[Tensor, Tensor]:
    """Any device, sorted, no sync. Inside everything is float64 (float32 on MPS): sums over
    millions of powers need it.

    Infinite losses act as one loss growing without bound: they saturate (w = tau) if fewer than m,
    else they share, w = tau (m / #inf)^(1/p), and the finite ones get 0.
    """
    wide = exact_dtype(losses)
    valid = torch.ones_like(losses, dtype=torch.bool) if mask is None else mask
    counted = torch.where(valid, losses, 0).to(wide)
    n = valid.sum(-1, keepdim=True).to(wide).clamp(min=1)  # a void row: any n, its weights are 0
    if p == math.inf:
        weights = valid / n
    else:
        tiny = torch.finfo(losses.dtype).tiny  # subnormal losses count as 0, as in the kernel
        weights = _maximiser(
            torch.where(counted < tiny, 0, counted), n, (support * n).clamp(min=1), p
        )
    value = (weights * counted).sum(-1)
    weights = torch.where(value.isnan()[:, None], torch.nan, weights)
    return value.to(losses.dtype), torch.where(valid, weights, 0).to(losses.dtype)


def _maximiser(losses: Tensor, n: Tensor, m: Tensor, p: float) -> Tensor:
    """w* = tau min(1, l/alpha)^(q-1) per row of an array where absent items are 0; 1 <= p < inf."""
    if losses.shape[-1] == 0:
        return losses
    # 1e20 is as good as infinite: two float64 with ratio 1 + 2^-53 differ by e^11102 in that power.
    q = min(p / (p - 1) if p > 1 else math.inf, 1e20)
    log_tau = -n.log() / q - m.log() * (1 - 1 / q)
    ordered, order = losses.sort(dim=-1, descending=True)
    rho = ordered.gather(-1, m.ceil().long() - 1)
    log_power = q * _log_ratio(losses, rho)  # log x^q, x = l/rho
    log_s = _log_root(log_power.gather(-1, order), m)
    return (log_tau + (log_power - log_s).clamp(max=0) * (1 - 1 / q)).exp()


def _log_ratio(losses: Tensor, rho: Tensor) -> Tensor:
    """log(l/rho), where q * its error must stay small: log1p near 1; 0/0 is -inf (no weight),
    inf/inf is 0 (a tie).
    """
    excess = (losses - rho) / rho
    log_ratio = torch.where(excess.abs() < 0.5, excess.log1p(), (losses / rho).log())
    log_ratio = torch.where(losses == rho, 0.0, log_ratio)
    return torch.where(losses == 0, -torch.inf, log_ratio)


def _log_root(log_power: Tensor, m: Tensor) -> Tensor:
    """log s, where s >= 1 is the largest root of sum min(z, s) = m s for z = exp(log_power) in
    descending rows.

    Item i (i items ahead) is saturated, z_i > s, iff sum_j min(z_j, z_i) = i z_i + sum_{j>=i} z_j <
    m z_i. No cancellation: tails are summed from the smallest item on. Since s <= n / (m - #{z >
    1}) < 1e36, a z above e^85 needs no test (and no float).
    """
    beyond = log_power > 85
    z = torch.where(beyond, 0.0, log_power.clamp(max=85).exp())
    tails = z.flip(-1).cumsum(-1).flip(-1)
    ahead = torch.arange(z.shape[-1], device=z.device, dtype=z.dtype)
    saturated = (beyond | ((m - ahead) * z > tails)).sum(-1, keepdim=True)
    tail = nn.functional.pad(tails, (0, 1)).gather(-1, saturated)
    return (tail / (m - saturated)).clamp(min=1).log()


def _native_rows(
    losses: Tensor, mask: Tensor | None, p: float, support: float
) -> tuple[Tensor, Tensor]:
    if losses.shape[1] >= 2**31:  # the kernel counts in 32 bits
        return _pure(losses, mask, p, support)
    value, weights = _native.empty_results(losses)
    _native.call("loss_max_pooling", losses, mask, *losses.shape, p, support, value, weights)
    return value, weights


pool_rows = _native.operator(
    "loss_max_pooling(Tensor losses, Tensor? mask, float p, float support) -> (Tensor, Tensor)",
    pure=_pure,
    native=_native_rows,
    triton="loss_max_pooling",
)
