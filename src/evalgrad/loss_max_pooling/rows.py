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
    """Any device, sorted, no sync. Powers and their sums are float64 (float32 on MPS): sums over
    millions of them need it.

    Infinite losses act as one loss growing without bound: they saturate (w = tau) if fewer than m,
    else they share, w = tau (m / #inf)^(1/p), and the finite ones get 0.
    """
    wide = exact_dtype(losses)
    counted = losses if mask is None else torch.where(mask, losses, 0)
    n = losses.new_full((losses.shape[0], 1), losses.shape[1], dtype=wide)
    if mask is not None:
        n = mask.sum(-1, keepdim=True).to(wide)
    n = n.clamp(min=1)  # a void row: any n, its weights are 0
    if p == math.inf:
        nan = counted.sum(-1, keepdim=True, dtype=wide).isnan()
        weights = torch.where(nan, torch.nan, 1 / n).to(losses.dtype).repeat(1, losses.shape[1])
    else:
        weights = _maximiser(counted, n, support, p)
    value = (weights * counted).sum(-1, dtype=wide).to(losses.dtype)
    return value, weights if mask is None else torch.where(mask, weights, 0)


def _maximiser(losses: Tensor, n: Tensor, support: float, p: float) -> Tensor:
    """w* = tau min(1, z/s)^(1/p) with z = (l/rho)^q and s = (alpha/rho)^q, per row of an array
    where absent items are 0; 1 <= p < inf. NaN all over a row with a NaN.
    """
    if losses.shape[-1] == 0:
        return losses.clone()
    # 1e20 is as good as infinite: two float64 with ratio 1 + 2^-53 differ by e^11102 in that power.
    q = min(p / (p - 1) if p > 1 else math.inf, 1e20)
    m = (support * n).clamp(min=1)
    tau = (-n.log() / q - m.log() * (1 - 1 / q)).exp()
    tiny = torch.finfo(losses.dtype).tiny
    # subnormal losses count as 0, as in the kernel
    losses = nn.functional.threshold(losses, tiny * (1 - torch.finfo(losses.dtype).eps), 0.0)
    ordered = losses.sort(dim=-1).values
    rho = ordered.gather(-1, losses.shape[1] - m.ceil().long()).to(n.dtype)
    # With rho = 0 all losses above 0 saturate; so they do relative to the smallest of them.
    rho = rho.clamp(min=tiny)
    z = (losses / rho).pow_(q)  # NaN where inf/inf: a tie, z = 1, of which fmin makes the second
    most = math.ceil(support * losses.shape[1]) + 1  # fewer than m are saturated
    head = (ordered[:, -most:] / rho).pow_(q).nan_to_num_(nan=1.0, posinf=torch.inf)
    behind = torch.fmin(z, torch.ones_like(m)).sum(-1) - head.clamp(max=1).sum(-1)
    s = _root(head, behind.clamp(min=0).unsqueeze(-1), m)
    weights = torch.empty_like(losses)
    torch.pow(torch.fmin(z, torch.where(rho == torch.inf, 1.0, s)), 1 - 1 / q, out=weights)
    return weights.mul_(torch.where(ordered[:, -1:].isnan(), torch.nan, tau * s ** (1 / q - 1)))


def _root(z: Tensor, behind: Tensor, m: Tensor) -> Tensor:
    """s >= 1, the largest root of sum min(z, s) = m s, for the largest items of ascending rows and
    the sum of all `behind` them, which are at most 1.

    Item i (i items ahead) is saturated, z_i > s, iff sum_j min(z_j, z_i) = i z_i + sum_{j>=i} z_j <
    m z_i. No cancellation: tails are summed from the smallest item on. Since s <= n / (m - #{z >
    1}), a z above 1e36 needs no test.
    """
    beyond = z > 1e36
    z = torch.where(beyond, 0.0, z)
    tails = z.cumsum(-1).add_(behind)
    ahead = torch.arange(z.shape[-1] - 1, -1, -1, device=z.device, dtype=z.dtype)
    saturated = (beyond | ((m - ahead) * z > tails)).sum(-1, keepdim=True)
    tail = tails.gather(-1, z.shape[-1] - 1 - saturated)
    return (tail / (m - saturated)).clamp(min=1)


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
