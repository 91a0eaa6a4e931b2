"""What counts and what does not: ignored labels, void groups, and the reductions over what is left."""

import torch
from torch import Tensor


def valid_mask(target: Tensor, ignore_index: int | None) -> Tensor | None:
    """True where `target` counts; None if everything does."""
    if ignore_index is None or target.dtype == torch.bool:
        return None
    return target != ignore_index


def working_dtype(x: Tensor) -> torch.dtype:
    """Half precision is computed in float32."""
    return x.dtype if x.dtype in (torch.float32, torch.float64) else torch.float32


def reduction_factor(counted: Tensor, reduction: str) -> Tensor:
    """What each group is multiplied with before the sum that makes the mean or the sum over what is `counted`; 0 for the rest."""
    factor = counted.double()
    return factor / factor.sum().clamp(min=1) if reduction == "mean" else factor


def reduce(values: Tensor, counted: Tensor, reduction: str) -> Tensor:
    """Reduce `values` over what is `counted`; the mean of nothing is 0. What does not count holds 0 under "none"."""
    values = torch.where(counted, values, values.new_zeros(()))
    if reduction == "none":
        return values
    total = values.sum()
    return total if reduction == "sum" else total / counted.sum().clamp(min=1)
