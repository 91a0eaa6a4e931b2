"""From the totals of the data to the multipliers of a measure and the weights of its classes, for
the ratio solver.

F-beta is a ratio V = (beta^2 + F) / T. Dinkelbach: minimise beta^2 + F - v T, then set v to the
current ratio; v falls to the optimum V*. The constrained measures use a multiplier instead, moved
by the residual of the whole data (its integral and, against oscillation, its present value). One
kernel call on CPU, pure torch elsewhere.
"""

from typing import Any

import torch
from torch import Tensor

from evalgrad import _native
from evalgrad.s_measures.counts import rates

DAMPING = 5.0  # weight of the present residual against one step of its integral


def class_weights(
    pressed: Tensor, prior: Tensor | float, objective: Tensor, constraints: Tensor, share: Tensor
) -> Tensor:
    """(K, 2): loss = sum_k share_k (objective_k + pressed_k @ constraints_k) . (1 - mean error, F,
    R, .), constants dropped.
    """
    row = objective + (pressed.unsqueeze(-1) * constraints).sum(1)
    return share.unsqueeze(-1) * torch.stack([-row[:, 0], prior * row[:, 1] + row[:, 2]], dim=-1)


def _largest_residual(constraints: Tensor, prior: Tensor) -> Tensor:
    """(K, J): the most that hard counts can violate a constraint by, at least 1. Residuals are
    taken relative to it.

    False positives per positive are many where positives are rare: the first batches of an
    untrained network would otherwise throw the multiplier to its ceiling, and all scores below the
    threshold for good.
    """
    highest = torch.stack(
        [torch.ones_like(prior), prior, torch.ones_like(prior), torch.ones_like(prior)], dim=-1
    )
    return (constraints.relu() * highest.unsqueeze(1)).sum(-1).clamp_min(1)


def _pure(
    totals: Tensor,
    mu: Tensor,
    weight: Tensor,
    objective: Tensor,
    constraints: Tensor,
    share: Tensor,
    due: Tensor,
    prior: float,
    worst: list[float],
    step: float,
    ceiling: float,
    hard: bool,
) -> tuple[Tensor, Tensor]:
    if not due:
        return mu.clone(), weight.clone()
    size = totals[..., 2]
    ratio = size[:, 1] / size[:, 0] if prior == 0 else torch.full_like(size[:, 0], prior)
    found = rates(totals, ratio, hard=hard)
    if worst:
        # V = (beta^2 + F) / T, at most that of a constant scorer: T <= 0 has no ratio, and no
        # larger v is optimal.
        highest = (worst[0] + worst[1] * ratio).unsqueeze(-1)
        value = (objective * found).sum(-1, keepdim=True) / found[:, :1]
        moved = pressed = -torch.where(found[:, :1] > 0, value.minimum(highest), highest)
    else:
        residual = (constraints * found.unsqueeze(1)).sum(-1) / _largest_residual(
            constraints, ratio
        )
        moved = (mu + step * residual).clamp(0, ceiling)
        pressed = (moved + DAMPING * step * residual).clamp(0, ceiling)
    known = ((size > 0).all(-1) & found.isfinite().all(-1)).unsqueeze(-1)
    weights = class_weights(pressed, ratio, objective, constraints, share)
    return torch.where(known, moved, mu), torch.where(known, weights, weight)


def _native_rows(totals: Tensor, mu: Tensor, weight: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    objective, constraints, share, due, prior, worst, step, ceiling, hard = rest
    mu, weight = mu.clone(), weight.clone()
    if due:
        program = (objective, constraints, share, *constraints.shape[:2])
        rule = (prior, *(worst or (0.0, 0.0)), step, ceiling, DAMPING * step, bool(worst), hard)
        _native.call("renewed_multipliers", totals, *program, *rule, mu, weight)
    return mu, weight


def _fake(totals: Tensor, mu: Tensor, weight: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(mu), torch.empty_like(weight)


renewed_multipliers = _native.operator(
    "s_measure_multipliers(Tensor totals, Tensor mu, Tensor weight, Tensor objective, Tensor"
    " constraints, Tensor share, Tensor due, float prior, float[] worst, float step, float ceiling,"
    " bool hard) -> (Tensor, Tensor)",
    pure=_pure,
    native=_native_rows,
    fake=_fake,
    dtypes=_native.FLOATS,
    by_rows=False,
)
