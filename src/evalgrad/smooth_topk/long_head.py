"""A head of more items than double holds the sums of: item by item, rescaled on the way. It is the
whole row; a head beside a bulk is never that long.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

LONG = 900  # S_j < 2^items
_BLOCK = 32  # items between two rescalings


def run_long_head(top: Tensor, k: int, inverse: float, marginals: int) -> tuple[Tensor, Tensor]:
    """log S_j, (R, K), and p_j for the last degrees, (R, marginals, H), of finite scores
    ``top (R, H)``, descending.

    `factor` holds exp(x_i - x_[j]) for all j. From item to item it is multiplied by exp(x_i -
    x_{i-1}); item i itself enters as x_[i], with the factor 1 at degree i. Degrees above i meet an
    S of 0 and keep the factor 0.
    """
    ratios = torch.exp(F.pad((top[:, 1:] - top[:, :-1]) * inverse, (1, 0)))
    entry = torch.eye(k, dtype=top.dtype, device=top.device)
    state = F.pad(torch.ones_like(top[:, :1]), (0, k))
    factor, exponent = torch.zeros_like(state[:, 1:]), torch.zeros_like(state)
    added, factors, scales = [], [], {}
    for i, ratio in enumerate(ratios.split(1, dim=-1)):
        if i and i % _BLOCK == 0:
            # S_j times scale_j: the factor, which leads from S_{j-1} to S_j, follows.
            scale = scales[i] = _power_of_two(state, min(i, k))
            state, factor = state * scale, factor * scale[:, 1:] / scale[:, :-1]
            exponent = exponent - scale.log2()
        factor = factor * ratio + entry[i] if i < k else factor * ratio
        factors.append(factor)
        added.append(factor * state[:, :-1])
        state = state + F.pad(added[-1], (1, 0))
    last = torch.eye(k + 1, dtype=top.dtype, device=top.device)[k + 1 - marginals :]
    adjoint = last / state.unsqueeze(1)
    p = torch.stack(_way_back(adjoint, added, factors, scales), -1)
    return state.log() + exponent * math.log(2), p


def _power_of_two(state: Tensor, reached: int) -> Tensor:
    """Powers of two that bring S_j to about 1; degrees not yet reached share the scale of the last
    one.
    """
    scale = torch.exp2(-state.detach()[:, : reached + 1].log2().floor())
    return torch.cat([scale, scale[:, -1:].expand(-1, state.shape[-1] - reached - 1)], dim=-1)


def _way_back(
    adjoint: Tensor, added: list[Tensor], factors: list[Tensor], scales: dict[int, Tensor]
) -> list[Tensor]:
    """p_j of each item, (R, marginals): `adjoint` is the derivative of log S_j by S behind it,
    (R, marginals, K), from the last item to the first.
    """
    columns = []
    for i in reversed(range(len(factors))):
        columns.append((adjoint[..., 1:] * added[i].unsqueeze(1)).sum(-1))
        adjoint = adjoint + F.pad(adjoint[..., 1:] * factors[i].unsqueeze(1), (0, 1))
        if i in scales:
            adjoint = adjoint * scales[i].unsqueeze(1)
    return columns[::-1]
