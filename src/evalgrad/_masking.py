"""What counts and what does not: ignored labels, void groups, and the reductions over what
is left.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

Classes = str | Sequence[int]


def valid_mask(target: Tensor, ignore_index: int | None) -> Tensor | None:
    """True where `target` counts; None if everything does."""
    if ignore_index is None or target.dtype == torch.bool:
        return None
    return target != ignore_index


def any_item(flags: Tensor) -> Tensor:
    """Whether any of the last axis is True. Of bytes, torch finds out in a thirtieth of the time
    that it takes for bools.
    """
    return flags.view(torch.uint8).any(-1).bool()


def working_dtype(x: Tensor) -> torch.dtype:
    """Half precision is computed in float32."""
    return x.dtype if x.dtype in (torch.float32, torch.float64) else torch.float32


def reduction_factor(counted: Tensor, reduction: str) -> Tensor:
    """What each group is multiplied with before the sum that makes the mean or the sum over what is
    `counted`; 0 for the rest.
    """
    factor = counted.double()
    return factor / factor.sum().clamp(min=1) if reduction == "mean" else factor


def reduce(values: Tensor, counted: Tensor, reduction: str) -> Tensor:
    """Reduce `values` over what is `counted`; the mean of nothing is 0. What does not count holds 0
    under "none".
    """
    values = torch.where(counted, values, values.new_zeros(()))
    if reduction == "none":
        return values
    total = values.sum()
    return total if reduction == "sum" else total / counted.sum().clamp(min=1)


def group_pixels(
    logits: Tensor, target: Tensor, per_image: bool, ignore_index: int | None
) -> tuple[Tensor, Tensor]:
    """Canonical form: logits ``(groups, images, C, pixels)`` and int64 labels ``(groups, images,
    pixels)``, -1 where ignored.
    """
    mask = valid_mask(target, ignore_index)
    label = target.long() if mask is None else target.long().masked_fill(~mask, -1)
    axis = 1 if per_image else 0
    n, c = logits.shape[:2]
    return logits.reshape(n, c, -1 if n else 0).unsqueeze(axis), label.reshape(
        n, -1 if n else 0
    ).unsqueeze(axis)


def class_factor(counts: Tensor, classes: Classes, weight: Tensor | None, reduction: str) -> Tensor:
    """Factor ``(groups, C)`` of each class loss in the result: 0 for what is not averaged."""
    if classes == "present":
        counted = counts > 0
    else:
        chosen = torch.ones_like(counts[:1], dtype=torch.bool)
        if classes != "all":
            chosen = torch.zeros_like(chosen).index_fill(
                1, torch.tensor(list(classes), dtype=torch.int64, device=counts.device), True
            )
        counted = chosen & (counts.sum(1, keepdim=True) > 0)  # a void group has no largest error
    factor = counted.double() if weight is None else torch.where(counted, weight.double(), 0.0)
    if reduction != "mean":
        return factor
    total = factor.sum(1, keepdim=True)
    groups = (total > 0).sum().clamp(min=1)
    return torch.where(total > 0, factor / total, 0.0) / groups


def class_counts(label: Tensor, num_classes: int) -> Tensor:
    """Pixels of each class per group, ``(G, C)``."""
    slot = torch.where(label >= 0, label, num_classes).flatten(1)
    counts = torch.zeros(label.shape[0], num_classes + 1, dtype=torch.int64, device=label.device)
    return counts.scatter_add(1, slot, torch.ones_like(slot))[:, :-1]


def finite_where_ignored(x: Tensor, label: Tensor) -> Tensor:
    """Grouped scores with 0 at ignored pixels, whose NaN would reach the gradient, and +inf as its
    limit.
    """
    return torch.where(label.unsqueeze(2) >= 0, x.clamp(max=torch.finfo(x.dtype).max), 0.0)
