"""Orders: who stands ahead of whom, on any device, without a sync."""

import torch
from torch import Tensor


def descending(values: Tensor, mask: Tensor | None = None) -> Tensor:
    """Indices that sort the last axis in decreasing order, NaN first; what the mask leaves out counts as -inf."""
    keys = values if mask is None else values.masked_fill(~mask, -torch.inf)
    return keys.argsort(dim=-1, descending=True, stable=True)


def ahead(flags: Tensor) -> Tensor:
    """How many True stand before each position of the last axis, as exact integers."""
    return flags.cumsum(-1) - flags.to(torch.int64)
