"""What the two top-k losses share: the lead of the label, and rows without a value.

An operator takes rows ``(R, C)`` of scores, their labels and the factor of each row in the result
(`_rows`): 0 for a row that does not count, whatever it holds.
"""

import math

import torch
from torch import Tensor


def lead_of(kth: Tensor, own: Tensor) -> Tensor:
    """s_[k] - s_y. Both at +inf count as tied; both at -inf, where nothing is left to compare, give
    NaN as cross-entropy does.
    """
    return (kth - own).masked_fill(torch.minimum(kth, own) == math.inf, 0)


def row_scale(label: Tensor, place: Tensor, factor: Tensor) -> Tensor:
    """The factor of each row, ``(R, 1)``; NaN where the label is not the class `place` taken for
    it, an undeclared one: only eager mode on a CPU raises an error for them.
    """
    return factor.masked_fill(label != place, torch.nan).unsqueeze(-1)


def without_absent(factor: Tensor, value: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Rows that do not count hold 0, whatever was in them."""
    absent = factor == 0
    return value.masked_fill(absent, 0.0), gradient.masked_fill(absent.unsqueeze(-1), 0.0)
