"""Items with equal scores: what one of them counts on average over the orders of its group."""

import torch
from torch import Tensor


def group_mean(x: Tensor, start: Tensor, there: Tensor) -> Tensor:
    """The mean of `x (R, n)`, a value of each place, over the places of every item's tied group.

    An item stands at each of them equally often. `start (R, n)` is the place ahead of the group,
    and `there` says which items count: the others come last, and may tie with a score of -inf.
    """
    zeros, there = torch.zeros_like(x), there.to(x.dtype)
    total, size = (zeros.scatter_add(-1, start, y) for y in (x * there, there))
    return total.gather(-1, start) / size.gather(-1, start).clamp(min=1)
