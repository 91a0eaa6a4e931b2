"""Elementary symmetric polynomials of exp(x) and their derivatives in plain torch: any device,
vectorised over the classes; nothing is approximated. docs/maths.md, "Smooth top-k", has the proofs.

sigma_j is the sum over all j-subsets of the product of exp(x). It is kept as S_j, with

    log sigma_j = x_[1] + .. + x_[j] + log S_j,     x_[j] the j-th largest,

so that every exponent below is <= 0 and no sum overflows. p_j(i) = d log sigma_j / d x_i.

- The *head*, the 3k largest x in descending order, goes item by item: `head`.
- The *bulk*, all the others, enters as one polynomial V_a = sigma_a(u), u_i = exp(x_i - x_[k]) <=
  1. There p_j is a polynomial in u_i, from p_j = u_i q_j (1 - p_{j-1}), q_j = exp(x_[k])
  sigma_{j-1}/sigma_j. As p_j <= k/(3k+1) in the bulk, u_i q_j < 1/2, and its terms fall; in the
  head they would not, hence the division.
- `_pairs` says how the S_b of the head and V_a make up S_j.
"""

import math
import sys
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from evalgrad._rows import exact_dtype
from evalgrad.smooth_topk.head import falls, run_head
from evalgrad.smooth_topk.long_head import LONG, run_long_head

_LARGEST = sys.float_info.max  # read here: torch 2.6 cannot trace it
_WIDEST_BULK = 256  # larger k: all classes in the head
_NARROW_BULK = 100  # up to this k the bulk fits float32: its coefficients stay below 2^k


class Bulk(NamedTuple):
    """What p_j of the bulk is made of; all u are divided, and all q multiplied, by a number that
    keeps the polynomial in range.
    """

    u: Tensor  # (R, n) exp(x_i - x_[k]), 0 in the head
    q: Tensor  # (R, k) q_k .. q_1


class Expansion(NamedTuple):
    """sigma_0 .. sigma_k of one batch of rows and their derivatives; R rows of n classes, H of
    them in the head, K = k + 1 degrees.
    """

    top: Tensor  # (R, H) head scores, descending
    places: Tensor  # (R, H) their classes
    log_s: Tensor  # (R, K) log S_j: log sigma_j = x_[1] + .. + x_[j] + log S_j
    rises: Tensor  # (R, k) log S_j - log S_{j-1}
    marginals: Tensor  # (R, m, H) p_j of the head for the m largest j
    bulk: Bulk | None  # None: all classes are in the head


def expand(x: Tensor, k: int, inverse: float, marginals: int) -> Expansion:
    """Expand rows ``(R, n)`` of x * inverse, 1 <= k <= n; equal infinities count as tied.

    `inverse` is one over the temperature: scores are subtracted first and scaled then.
    `marginals`: for how many of the largest j the p_j of the head are wanted.
    """
    n, inverse = x.shape[-1], min(inverse, _LARGEST)
    # A bulk of less than half of the classes is not worth its sums.
    size = n if k > _WIDEST_BULK or n <= 6 * k else 3 * k
    top, places = x.topk(size, dim=-1)
    finite = top.nan_to_num(math.nan)  # equal infinities are at distance 0, others far away
    head, u = finite.to(exact_dtype(x)), None
    if size > LONG:  # never beside a bulk
        log_s, p = run_long_head(head, k, inverse, marginals)
    else:
        falling = falls(head, k, inverse)
        log_gain, log_v = falling[..., k - 1], None
        if size < n:
            u, log_v, log_crowd = _polynomial(x, finite[:, k - 1 : k], places, k, inverse)
            log_gain = log_gain + log_crowd
        log_s, p = run_head(falling, _pairs(log_v, log_gain), marginals)
    rises = log_s[:, 1:] - log_s[:, :-1]
    bulk = None if u is None else Bulk(u, torch.exp(log_gain - rises).flip(-1))
    return Expansion(top, places, log_s, rises, p, bulk)


def probabilities(x: Tensor, k: int, inverse: float) -> Tensor:
    """p_k over all classes, in the dtype of x; itself differentiable by autograd."""
    rest = expand(x, k, inverse, marginals=1)
    # q_k u - q_k q_{k-1} u^2 + ..
    coefficients = None if rest.bulk is None else rest.bulk.q.cumprod(-1)
    return _over_classes(rest, rest.marginals[:, 0], coefficients, x)


def log_ratio_derivative(rest: Expansion, slope: Tensor, x: Tensor) -> Tensor:
    """-slope ``(R, 1)`` times p_k - p_{k-1}, over all classes, in the dtype of x."""
    head, coefficients = slope * (rest.marginals[:, 0] - rest.marginals[:, 1]), None
    if rest.bulk is not None:
        # (q_k - q_{k-1}) u - q_{k-1} (q_k - q_{k-2}) u^2 + .., q_0 = 0: the q rise, and no nearly
        # equal marginals are subtracted
        last, others = rest.bulk.q[:, :1], rest.bulk.q[:, 1:]
        products = torch.cat([slope, others], -1).cumprod(-1)
        coefficients = products * (F.pad(others, (0, 1)) - last)
    return _over_classes(rest, head, coefficients, x)


def _over_classes(rest: Expansion, head: Tensor, coefficients: Tensor | None, x: Tensor) -> Tensor:
    """What the head has, and in the bulk the polynomial with these coefficients of u, -u^2, .."""
    if rest.bulk is None or coefficients is None:
        return torch.zeros_like(x).scatter(-1, rest.places, head.to(x.dtype))
    u = rest.bulk.u
    *lower, total = coefficients.to(u.dtype).split(1, dim=-1)
    for coefficient in reversed(lower):
        total = torch.addcmul(coefficient, total, u, value=-1)
    return (total * u).to(x.dtype).scatter(-1, rest.places, head.to(x.dtype))


def _polynomial(
    x: Tensor, pivot: Tensor, places: Tensor, k: int, inverse: float
) -> tuple[Tensor, Tensor, Tensor]:
    """u over crowd, log sigma_a of it for a = 0 .. k, and log crowd, (R, 1); `pivot` is x_[k],
    finite, and `places` says who is in the head.
    """
    wide, limits = exact_dtype(x), torch.finfo(x.dtype)
    closed = torch.clamp(x, torch.full_like(pivot, limits.min), pivot) - pivot
    u = torch.exp(closed * min(inverse, limits.max)).scatter(-1, places, 0)
    # sum(u) / crowd <= k/e: then sigma_a <= (k/e)^a/a! does not overflow, nor vanish where it
    # matters.
    crowd = (u.detach().sum(-1, keepdim=True) * (math.e / k)).clamp_min(1)
    u = (u if k <= _NARROW_BULK else u.to(wide)) / crowd
    added, sums = u, [torch.ones_like(u[:, :1])]  # what the items a, a + 1, .. add to sigma_a
    for a in range(1, k):
        run = added.cumsum(-1)
        sums.append(run[:, -1:])
        added = u[:, a:] * run[:, :-1]
    positive = torch.cat([*sums, added.sum(-1, keepdim=True), crowd], -1)
    logs = positive.clamp_min(torch.finfo(u.dtype).tiny).to(wide).log()
    return u, logs[:, :-1], logs[:, -1:]


def _pairs(log_v: Tensor | None, log_gain: Tensor) -> Tensor:
    """Log of what S_b of the head is multiplied with in S_j, V_{j-b} prod_{t=b+1..j} gain_t:
    (R, K, K), row j, column b. None: V_0 = 1, and no other.
    """
    k = log_gain.shape[-1]
    if log_v is None:
        log_v = F.pad(torch.zeros_like(log_gain[:, :1]), (0, k), value=-math.inf)
    gains = F.pad(log_gain, (1, 0)).unsqueeze(-1).expand(-1, -1, k + 1).tril(-1).cumsum(1)
    # V_a for all a = j - b, 0 where b > j
    return F.pad(log_v, (k, 0), value=-math.inf).unfold(-1, k + 1, 1).flip(-1) + gains
