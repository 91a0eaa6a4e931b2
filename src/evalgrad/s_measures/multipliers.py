"""From the totals of the data to the multipliers of a measure and the weights of its classes, for
the ratio solver.

F-beta is a ratio V = (beta^2 + F) / T. Dinkelbach: minimise beta^2 + F - v T, then set v to the
current ratio; v falls to the optimum V*. The constrained measures use a multiplier instead, moved
by the residual of the whole data (its integral and, against oscillation, its present value).
"""

import torch
from torch import Tensor

from evalgrad.s_measures.counts import rates

DAMPING = 5.0  # weight of the present residual against one step of its integral


def renewed_multipliers(
    totals: Tensor,
    mu: Tensor,
    weight: Tensor,
    objective: Tensor,
    constraints: Tensor,
    share: Tensor,
    *,
    prior: Tensor | float,
    highest: Tensor | float | None,
    step: float,
    ceiling: float,
    hard: bool,
    joint: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """New multipliers (K, J) and weights (K, 2), the old ones while a class was never seen, and
    after an overflow, from which they would never recover; and the residuals (K, J).

    Args:
        totals: (K, 2, 3), of the data; see `surrogate_errors`.
        mu: (K, J), the multipliers now.
        weight: (K, 2), the weights now.
        objective: (K, 4), of the program, as are the constraints (K, J, 4) and the share (K,).
        prior: negatives per positive.
        highest: for F-beta the largest ratio that makes sense, else None.
        step: of the multipliers, which stay within [0, `ceiling`].
        hard: whether the hard counts move them, not the surrogates.
        joint: whether the last constraint of the rows is one of all; see `residuals`.
    """
    found = rates(totals, prior, hard=hard)
    residual = mu
    if highest is not None:
        moved = pressed = -_ratio(found, objective, highest)
    else:
        residual = residuals(found, constraints, share, joint)
        residual = residual / _largest_residual(constraints, prior)
        moved = (mu + step * residual).clamp(0, ceiling)
        pressed = (moved + DAMPING * step * residual).clamp(0, ceiling)
    weights = class_weights(pressed, prior, objective, constraints, share)
    known = ((totals[..., 2] > 0).all(-1) & found.isfinite().all(-1)).unsqueeze(-1)
    return torch.where(known, moved, mu), torch.where(known, weights, weight), residual


def residuals(found: Tensor, constraints: Tensor, share: Tensor, joint: bool) -> Tensor:
    """(K, J): how far the rates are from the constraints, <= 0 is met. The last one of a `joint`
    program is the mean over the rows: all rows then have one multiplier for it.
    """
    each = (constraints * found.unsqueeze(1)).sum(-1)
    if not joint:
        return each
    mean = (share * each[:, -1]).sum() / share.sum()
    return torch.cat([each[:, :-1], mean.expand(len(each), 1)], dim=1)


def _ratio(found: Tensor, objective: Tensor, highest: Tensor | float) -> Tensor:
    """(K, 1): V = (beta^2 + F) / T, at most `highest`, that of a constant scorer: T <= 0 has no
    ratio, and no larger v is optimal.
    """
    value = (objective * found).sum(-1, keepdim=True) / found[:, :1]
    return torch.where(found[:, :1] > 0, value.clamp(max=highest), highest)


def _largest_residual(constraints: Tensor, prior: Tensor | float) -> Tensor:
    """(K, J): the most that hard counts can violate a constraint by, at least 1. Residuals are
    taken relative to it.

    False positives per positive are many where positives are rare: the first batches of an
    untrained network would otherwise throw the multiplier to its ceiling, and all scores below the
    threshold for good.
    """
    worst = constraints.relu()  # all rates are at most 1 but the second, which is at most `prior`
    return (worst.sum(-1) + (prior - 1) * worst[..., 1]).clamp_min(1)


def class_weights(
    pressed: Tensor, prior: Tensor | float, objective: Tensor, constraints: Tensor, share: Tensor
) -> Tensor:
    """(K, 2): loss = sum_k share_k (objective_k + pressed_k @ constraints_k) . (1 - mean error, F,
    R, .), constants dropped.
    """
    row = objective + (pressed.unsqueeze(-1) * constraints).sum(1)
    return share.unsqueeze(-1) * torch.stack([-row[:, 0], prior * row[:, 1] + row[:, 2]], dim=-1)
