"""Pixels or samples of each class: predicted, true, and both. IoU and F-beta are ratios of them."""

import torch
from torch import Tensor


def class_counts(predicted: Tensor, true: Tensor, num_classes: int) -> Tensor:
    """Items right, predicted and true of every class in every row: ``(R, C, 3)`` int64.

    Args:
        predicted: ``(R, n)`` classes.
        true: ``(R, n)`` classes; where it is negative an item does not count.
        num_classes: C.
    """
    behind = torch.full_like(true, num_classes)  # a class behind the last: what does not count
    predicted, true = (torch.where(true >= 0, x, behind) for x in (predicted, true))
    right = torch.where(predicted == true, true, behind)
    counts = true.new_zeros(3, true.shape[0], num_classes + 1)
    counts = counts.scatter_add(
        2, torch.stack([right, predicted, true]), torch.ones_like(true).expand(3, -1, -1)
    )
    return counts[:, :, :-1].permute(1, 2, 0)
