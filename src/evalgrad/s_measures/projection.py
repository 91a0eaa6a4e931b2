"""Exact projection onto the ceiling set {(tau, epsilon): tau_i <= epsilon, epsilon >= 0}.

The only constraint of the S-measures' Lagrangian that is kept as a set (lemma 5 of the paper). One
sort, one running mean; the algorithms printed in the paper miss the projection and are kept in the
tests as broken versions.
"""

import torch
from torch import Tensor

from evalgrad._errors import describe, fail
from evalgrad._inputs import fail_device, floating
from evalgrad._options import number


def project_onto_ceiling(
    tau: Tensor, epsilon: Tensor, *, rho: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Project each row of `tau` together with its `epsilon` onto {tau_i <= epsilon, epsilon >= 0}.

    Minimises (epsilon' - epsilon)^2 + rho * sum_i (tau'_i - tau_i)^2. `rho = 1` is the Euclidean
    projection; after plain gradient steps `rho` must be (step of epsilon) / (step of tau),
    otherwise projected descent stops at a wrong point.

    Args:
        tau: (*, n) points; the last dimension has the n values under one ceiling, n = 0 is allowed.
        epsilon: (*) the ceilings, the leading shape of `tau`.
        rho: weight of `tau` in the distance, > 0 and finite.

    Returns:
        The projected (tau, epsilon), differentiable in both, of the dtype of the inputs.

    Example:
        >>> project_onto_ceiling(torch.tensor([3.0, 0.5]), torch.tensor(1.0))
        (tensor([2.0000, 0.5000]), tensor(2.))
    """
    tau, epsilon = _checked(tau, epsilon, rho)
    half = tau.dtype in (torch.float16, torch.bfloat16)
    level = _ceiling(tau.float(), epsilon.float(), rho) if half else _ceiling(tau, epsilon, rho)
    level = level.to(tau.dtype)
    return torch.minimum(tau, level.unsqueeze(-1)), level


def _ceiling(tau: Tensor, epsilon: Tensor, rho: float) -> Tensor:
    """epsilon* = max(0, max_k (epsilon + rho * sum of the k largest tau) / (1 + rho k)), k = 0..n.

    Merging the k largest tau with epsilon gives their weighted mean; the right k is where that mean
    is largest, because adding an item raises the mean exactly while the item lies above it.
    """
    falling = tau.sort(dim=-1, descending=True).values
    count = torch.arange(tau.shape[-1] + 1, device=tau.device, dtype=tau.dtype)
    merged = torch.cat([epsilon.unsqueeze(-1), rho * falling], dim=-1).cumsum(dim=-1)
    return (merged / (1 + rho * count)).amax(dim=-1).clamp_min(0)


def _checked(tau: object, epsilon: object, rho: float) -> tuple[Tensor, Tensor]:
    name = "project_onto_ceiling"
    tau, epsilon = floating(name, "tau", tau), floating(name, "epsilon", epsilon, at_least=0)
    if epsilon.device != tau.device:
        fail_device(name, "epsilon", epsilon, tau)
    if epsilon.dtype != tau.dtype:
        must, repair = f"of the dtype of `tau`, {tau.dtype}", "Convert one with `.to(dtype)`."
        fail(TypeError, name, "epsilon", must, describe(epsilon), repair)
    if epsilon.shape != tau.shape[:-1]:
        must = f"of shape {tuple(tau.shape[:-1])}, one ceiling per row of `tau`"
        repair = "For one row pass a 0-d `epsilon`."
        fail(ValueError, name, "epsilon", must, describe(epsilon), repair)
    number(above=0, repair="Use 1.0 for the Euclidean projection.")(name, "rho", rho)
    return tau, epsilon
