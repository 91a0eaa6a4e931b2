"""Elementary symmetric polynomials of exp(x) and their derivatives in plain torch: any device,
vectorised over the classes; nothing is approximated. docs/maths.md, "Smooth top-k", has the proofs.

sigma_j is the sum over all j-subsets of the product of exp(x). It is kept as S_j, with

    log sigma_j = x_[1] + .. + x_[j] + log S_j,     x_[j] the j-th largest,

so that every exponent below is <= 0 and no sum overflows.

- The *head*, the 3k largest x in descending order, goes one by one through S_j <- S_j + exp(x_i -
  x_[j]) S_{j-1}, in double. Its derivative is the same loop run backwards.
- The *bulk*, all the others, enters as one polynomial V_a = sigma_a(u), u_i = exp(x_i - x_[k]) <=
  1, a tree of truncated products. Its derivative is a recursion over the degrees, for all classes
  at once: p_j = u_i q_j (1 - p_{j-1}), with p_j(i) = d log sigma_j / d x_i and q_j = exp(x_[k])
  sigma_{j-1}/sigma_j. As p_j <= k/(3k+1) in the bulk, each step at most halves the error that it
  inherits; in the head it would not, hence the division.
- `_join` makes one polynomial of the two.
"""

import math
import sys
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from evalgrad._rows import exact_dtype

_WIDEST_BULK = 256  # larger k: all classes in the head, one by one
_NARROW_BULK = 128  # up to this k the bulk fits float32: its coefficients stay below exp(k/e)
# S_j <= binomial(head, j) < 2^head: longer heads are rescaled, degree by degree. They never meet a
# bulk, beside which a head has at most 3 * 256 items.
_PLAIN_HEAD = 900
_BLOCK = 32  # head items between two rescalings


class Expansion(NamedTuple):
    """sigma_0 .. sigma_k of one batch of rows and what their derivatives need; R rows, H items in
    the head, K = k + 1 degrees.

    `gain` and `units` are the factors exp(x_[k] - x_[t])/mu by which a bulk item stands in for the
    t-th largest one, split in two: what is at most 1, and what is above and taken out of S_j.
    """

    top: Tensor  # (R, H) head scores, descending
    places: Tensor  # (R, H) their classes
    states: list[Tensor]  # S before each head item and after the last, (R, K)
    factors: list[Tensor]  # exp(x_i - x_[j]) of each head item, (R, K)
    scales: dict[int, Tensor]  # head item -> powers of two applied before it, (R, K)
    u: Tensor | None  # (R, n) exp(x_i - x_[k]) of the bulk, 0 in the head
    bulk: Tensor  # (R, K) mu^a V_a
    gain: Tensor  # (R, K) min(1, exp(x_[k] - x_[j])/mu), index 0 unused
    units: Tensor  # (R, K) Gamma_j = prod of max(1, exp(x_[k] - x_[t])/mu), t <= j
    full: Tensor  # (R, K) S_j of all classes / Gamma_j, in units of the scales
    mu: Tensor  # (R, 1)
    log_s: Tensor  # (R, K) log S_j: log sigma_j = x_[1] + .. + x_[j] + log S_j


def expand(x: Tensor, k: int, inverse: float) -> Expansion:
    """Expand rows ``(R, n)`` of x * inverse, 1 <= k <= n; equal infinities count as tied.

    `inverse` is one over the temperature: scores are subtracted first and scaled then.
    """
    n, wide, inverse = x.shape[-1], exact_dtype(x), min(inverse, sys.float_info.max)
    # A bulk of less than half of the classes is not worth its tree.
    size = n if k > _WIDEST_BULK or n <= 6 * k else 3 * k
    top, places = x.topk(size, dim=-1)
    states, factors, scales, exponent = _head_recursion(_ratios(top.to(wide), inverse), k)
    one = torch.ones_like(states[-1][:, :1])
    u, mu, bulk = None, one, F.pad(one, (0, k))
    if size < n:
        u, mu, bulk = _bulk(x, top[:, k - 1 : k], places, k, inverse)
    below = _distance(top[:, k - 1 : k].to(wide), top[:, :k].to(wide))  # x_[k] - x_[t] <= 0
    gain = F.pad(torch.exp(below * inverse) / mu, (1, 0), value=1.0)
    unit = gain.detach().clamp_min(1)  # above 1 only where mu < 1
    units, gain = unit.cumprod(-1), gain / unit
    full = _join(states[-1] / units, bulk, gain) if size < n else states[-1]
    log_s = full.log() + unit.log().cumsum(-1) + exponent * math.log(2)
    return Expansion(top, places, states, factors, scales, u, bulk, gain, units, full, mu, log_s)


def derivative(rest: Expansion, upstream: Tensor, x: Tensor) -> Tensor:
    """sum_j upstream_j p_j(i) over all classes, in the dtype of x; itself differentiable by
    autograd.
    """
    head = _head_derivative(rest, upstream).to(x.dtype)
    if rest.u is None:
        return torch.zeros_like(x).scatter(-1, rest.places, head)
    p = total = torch.zeros_like(x)
    for j, q in enumerate(_bulk_steps(rest), start=1):
        odds = rest.u * q.to(x.dtype)
        p = odds - odds * p
        total = total + upstream[:, j : j + 1].to(x.dtype) * p
    return total.scatter(-1, rest.places, head)


def log_ratio_derivative(rest: Expansion, coefficient: Tensor, x: Tensor) -> Tensor:
    """coefficient ``(R, 1)`` times p_k - p_{k-1}, over all classes, in the dtype of x."""
    degree = torch.arange(rest.full.shape[-1], device=x.device)
    upstream = (degree == degree[-1]).to(rest.full.dtype) - (degree == degree[-2]).to(
        rest.full.dtype
    )
    head = _head_derivative(rest, upstream.expand_as(rest.full)) * coefficient
    bulk = (
        torch.zeros_like(x)
        if rest.u is None
        else _bulk_difference(rest.u, _bulk_steps(rest)) * coefficient
    )
    return bulk.to(x.dtype).scatter(-1, rest.places, head.to(x.dtype))


def _distance(a: Tensor, b: Tensor) -> Tensor:
    """a - b with equal infinities at distance 0, so that +-inf acts as a common limit."""
    return torch.where(a == b, 0, a - b)


# ---- head ----------------------------------------------------------------------------------------


def _ratios(top: Tensor, inverse: float) -> Tensor:
    """exp(x_i - x_{i-1}) of neighbours in the head; the first is not used."""
    return torch.exp(F.pad(_distance(top[:, 1:], top[:, :-1]) * inverse, (1, 0)))


def _up(row: Tensor) -> Tensor:
    """The value of the degree below, 0 for degree 0."""
    return F.pad(row[:, :-1], (1, 0))


def _head_recursion(
    ratios: Tensor, k: int
) -> tuple[list[Tensor], list[Tensor], dict[int, Tensor], Tensor]:
    """`states`, `factors` and `scales` of `Expansion`, and by which powers of two, as exponents,
    the last state is too small.

    `factor` holds exp(x_i - x_[j]) for all j. From item to item it is multiplied by exp(x_i -
    x_{i-1}); item i itself enters as x_[i], with the factor 1 at degree i. Degrees above i meet an
    S of 0 and keep the factor 0.
    """
    size, entry = ratios.shape[-1], torch.eye(k + 1, dtype=ratios.dtype, device=ratios.device)
    state = entry[:1].expand(ratios.shape[0], -1)  # S_0 = 1
    factor, exponent = torch.zeros_like(state), torch.zeros_like(state)
    states, factors, scales = [state], [], {}
    for i, ratio in enumerate(ratios.split(1, dim=-1)):
        if size > _PLAIN_HEAD and i and i % _BLOCK == 0:
            # S_j times scale_j: the factor, which leads from S_{j-1} to S_j, follows.
            scale = scales[i] = _power_of_two(state, min(i, k))
            state, factor = state * scale, factor * scale / F.pad(scale[:, :-1], (1, 0), value=1.0)
            exponent = exponent - scale.log2()
            states[-1] = state
        factor = factor * ratio + entry[i + 1] if i < k else factor * ratio
        state = state + factor * _up(state)
        states.append(state)
        factors.append(factor)
    return states, factors, scales, exponent


def _power_of_two(state: Tensor, reached: int) -> Tensor:
    """Powers of two that bring S_j to about 1; degrees not yet reached share the scale of the last
    one.
    """
    scale = torch.exp2(-state.detach()[:, : reached + 1].log2().floor())
    return torch.cat([scale, scale[:, -1:].expand(-1, state.shape[-1] - reached - 1)], dim=-1)


def _head_derivative(rest: Expansion, upstream: Tensor) -> Tensor:
    """(R, H): sum_j upstream_j p_j(i), reverse mode of the recursion; positive terms for each
    degree.

    `adjoint` is the derivative by S_j: first of the log at the end, then, from the last item to the
    first, of what stands before each item.
    """
    adjoint = (
        _join_adjoint(upstream / rest.full, rest.bulk, rest.gain) / rest.units
        if rest.u is not None
        else upstream / rest.full
    )
    columns = []
    for i in reversed(range(len(rest.factors))):
        flow = adjoint * rest.factors[i]
        columns.append((flow * _up(rest.states[i])).sum(-1))
        adjoint = adjoint + F.pad(flow[:, 1:], (0, 1))
        if i in rest.scales:
            adjoint = adjoint * rest.scales[i]
    return torch.stack(columns[::-1], dim=-1)


# ---- bulk ----------------------------------------------------------------------------------------


def _bulk(
    x: Tensor, pivot: Tensor, places: Tensor, k: int, inverse: float
) -> tuple[Tensor, Tensor, Tensor]:
    """u, mu and mu^a V_a; `pivot` is x_[k] and `places` says who is in the head."""
    u = torch.exp(torch.where(x >= pivot, 0, x - pivot) * min(inverse, torch.finfo(x.dtype).max))
    u = u.scatter(-1, places, 0)
    mu, wide = _bulk_scale(u, k), exact_dtype(x)
    polynomial = _bulk_polynomial((u * mu).to(u.dtype if k <= _NARROW_BULK else wide), k).to(wide)
    return u, mu.to(wide), F.pad(polynomial, (1, 0), value=1.0)


def _bulk_scale(u: Tensor, k: int) -> Tensor:
    """A power of two mu with mu sum(u) <= k/e: then mu^a V_a <= (k/e)^a/a! does not overflow, nor
    vanish where it matters.
    """
    excess = u.detach().sum(-1, keepdim=True) * (math.e / k)
    return torch.exp2(-excess.log2().ceil().clamp_min(0))


def _bulk_polynomial(u: Tensor, k: int) -> Tensor:
    """sigma_1 .. sigma_k of u along the last axis, (R, n) -> (R, k): a tree of products truncated
    at degree k.
    """
    depth = max(u.shape[-1] - 1, 1).bit_length()
    u = F.pad(u, (0, 2**depth - u.shape[-1]))
    # A node is the polynomial 1 + c_1 z + c_2 z^2 + .. of the items below it: (degrees 1.., R,
    # nodes). At first every item is a node, 1 + u_i z; then pairs are multiplied until one is left.
    nodes = u.unsqueeze(0)
    for _ in range(depth):
        left, right = nodes.chunk(2, dim=-1)
        degrees = min(2 * nodes.shape[0], k)
        nodes = F.pad(left + right, (0, 0, 0, 0, 0, degrees - left.shape[0]))
        for a in range(1, min(left.shape[0], degrees - 1) + 1):
            count = min(right.shape[0], degrees - a)
            nodes[a : a + count] += left[a - 1] * right[:count]
    return F.pad(nodes.squeeze(-1).T, (0, k - nodes.shape[0]))


def _bulk_steps(rest: Expansion) -> tuple[Tensor, ...]:
    """q_1 .. q_k, each (R, 1): q_j = exp(x_[k] - x_[j]) S_{j-1}/S_j."""
    return (rest.gain[:, 1:] * rest.full[:, :-1] / rest.full[:, 1:] * rest.mu).split(1, dim=-1)


def _bulk_difference(u: Tensor, steps: tuple[Tensor, ...]) -> Tensor:
    """p_k - p_{k-1}; the last step is taken on the difference, which does not cancel: u ((q_k -
    q_{k-1})(1 - p_{k-1}) - q_{k-1} (p_{k-1} - p_{k-2})).
    """
    if len(steps) == 1:
        return u * steps[0].to(u.dtype)
    p = before = torch.zeros_like(u)
    for q in steps[:-1]:
        odds = u * q.to(u.dtype)
        before, p = p, torch.addcmul(odds, odds, p, value=-1)
    rise, last = (steps[-1] - steps[-2]).to(u.dtype), steps[-2].to(u.dtype)
    return u * (rise * (1 - p) - last * (p - before))


# ---- sigma_j of all = sum_a sigma_{j-a}(head) sigma_a(bulk) --------------------------------------


def _join(head: Tensor, bulk: Tensor, gain: Tensor) -> Tensor:
    """full_j = sum_a head_{j-a} bulk_a prod_{t=j-a+1..j} gain_t: every gain <= 1."""
    degrees = head.shape[-1]
    full, weight = head, torch.ones_like(head)
    for a in range(1, degrees):
        weight = weight[:, 1:] * gain[:, 1 : degrees - a + 1]
        full = full + F.pad(head[:, :-a] * bulk[:, a : a + 1] * weight, (a, 0))
    return full


def _join_adjoint(upstream: Tensor, bulk: Tensor, gain: Tensor) -> Tensor:
    """The transpose of :func:`_join` in its first argument."""
    degrees = upstream.shape[-1]
    adjoint, weight = upstream, torch.ones_like(upstream)
    for a in range(1, degrees):
        weight = weight[:, 1:] * gain[:, 1 : degrees - a + 1]
        adjoint = adjoint + F.pad(upstream[:, a:] * bulk[:, a : a + 1] * weight, (0, a))
    return adjoint
