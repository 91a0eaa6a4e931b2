"""What the two top-k losses share: the options, the lead of the label, and rows without a value.

An operator takes rows ``(R, C)`` of scores, their labels and the factor of each row in the result
(`_rows`): 0 for a row that does not count, whatever it holds.
"""

import torch
from torch import Tensor

from evalgrad._options import integer


def check_guesses(function: str, k: int, classes: int) -> None:
    """k within the classes."""
    repair = f"With {classes} classes on axis 1, {classes} guesses are always right: lower k."
    integer(1, classes - 1, repair=repair)(function, "k", k)


def lead_of(kth: Tensor, own: Tensor) -> Tensor:
    """s_[k] - s_y. Both at +inf count as tied; both at -inf, where nothing is left to compare, give
    NaN as cross-entropy does.
    """
    return torch.where((kth == own) & (kth > 0), 0, kth - own)


def mark_rows(
    x: Tensor, label: Tensor, factor: Tensor, value: Tensor, gradient: Tensor
) -> tuple[Tensor, Tensor]:
    """Rows that do not count hold 0. NaN marks rows with a NaN, and rows with an undeclared label
    where labels are not read: only eager mode on a CPU raises an error for them.
    """
    broken = x.isnan().any(-1) | (label < 0) | (label >= x.shape[1])
    absent = factor == 0
    value = value.masked_fill(broken, torch.nan).masked_fill(absent, 0.0)
    return value, gradient.masked_fill(broken.unsqueeze(-1), torch.nan).masked_fill(
        absent.unsqueeze(-1), 0.0
    )
