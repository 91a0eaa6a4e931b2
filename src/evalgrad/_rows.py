"""Rows: how much each counts in the result, and the result with its gradient attached.

An operator returns a value per row and its gradient in the scores. The *factor* of a row is what
its loss is multiplied with in the result: its weight, over the total under "mean"; 0 for a row
that does not count; NaN for one with an undeclared label that could not be read. Operators whose
kernels take the factor return finished gradients; `attach` multiplies the others.
"""

import torch
from torch import Tensor

from evalgrad._gradient import with_gradient
from evalgrad._inputs import ClassMaps
from evalgrad._options import Classes, Reduction

# Half precision is computed, and its losses are returned, in float32, as cross-entropy's under
# autocast.
WORKING = {torch.float64: torch.float64}


def working(x: Tensor) -> Tensor:
    """`x` without its graph, in the dtype that it is computed in."""
    return x.detach().to(working_dtype(x))


def working_dtype(x: Tensor) -> torch.dtype:
    """float64 for float64, else float32."""
    return WORKING.get(x.dtype, torch.float32)


def exact_dtype(x: Tensor) -> torch.dtype:
    """Counts and long sums are taken in float64, where the device has it."""
    return torch.float32 if x.device.type == "mps" else torch.float64


def any_item(flags: Tensor) -> Tensor:
    """Whether any of the last axis is True; as bytes, which torch reduces 30 times as fast."""
    return flags.view(torch.uint8).any(-1).bool()


def row_factor(
    rows: Tensor, weight: Tensor | None, reduction: Reduction, invalid: Tensor | None = None
) -> Tensor:
    """Factor of each of the ``rows (R, *)``, from its weight: a number >= 0, or whether it counts.

    None: all rows count alike.
    """
    if weight is None:
        share = 1 / max(rows.shape[0], 1) if reduction == "mean" else 1.0
        factor = torch.full(rows.shape[:1], share, dtype=working_dtype(rows), device=rows.device)
        return _marked(factor, invalid)
    factor = weight.double()
    if reduction == "mean":
        total = factor.sum()
        factor = factor / torch.where(total > 0, total, 1.0)
    return _marked(factor, invalid).to(working_dtype(rows))


def class_factor(maps: ClassMaps, classes: Classes, reduction: Reduction) -> Tensor:
    """Factor ``(G, C)`` of each class in each group.

    "mean" is the weighted mean over the classes of a group, then over the groups that count.
    """
    counts, weight, invalid = maps.counts, maps.weight, maps.invalid
    if classes == "present":
        counted = counts > 0
    else:
        # A void group has no largest error.
        counted = chosen_classes(counts, classes) & (counts.sum(1, keepdim=True) > 0)
    factor = counted.double() if weight is None else torch.where(counted, weight.double(), 0.0)
    if reduction == "mean":
        total = factor.sum(1, keepdim=True)
        groups = (total > 0).sum().clamp(min=1)
        factor = factor / torch.where(total > 0, total, 1.0) / groups
    marked = _marked(factor, None if invalid is None else invalid.unsqueeze(1))
    return marked.to(working_dtype(maps.x))


def chosen_classes(like: Tensor, classes: Classes) -> Tensor:
    """Which classes of ``like (G, C)`` a choice names, ``(1, C)`` bool."""
    if classes == "all":
        return torch.ones_like(like[:1], dtype=torch.bool)
    index = torch.tensor(list(classes), dtype=torch.int64, device=like.device)
    return torch.zeros_like(like[:1], dtype=torch.bool).index_fill(1, index, True)


def _marked(factor: Tensor, invalid: Tensor | None) -> Tensor:
    return factor if invalid is None else factor.masked_fill(invalid, torch.nan)


def attach(
    x: Tensor,
    value: Tensor,
    gradient: Tensor,
    reduction: Reduction,
    *,
    factor: Tensor | None = None,
    shape: tuple[int, ...] | None = None,
) -> Tensor:
    """The loss as a function of `x`: reduced, or under "none" of the given shape.

    Without `factor` value and gradient have taken it in, and nothing is left to scale in the
    backward pass.
    """
    if factor is None:
        summed = value if reduction == "none" else value.sum()
        loss = with_gradient(x, summed, gradient)
    else:
        loss = reduce(with_gradient(x, value, gradient), factor, reduction)
    return loss if shape is None or reduction != "none" else loss.reshape(shape)


def reduce(values: Tensor, factor: Tensor, reduction: Reduction) -> Tensor:
    """Row values times their factors, added up; where the factor is 0, the row is too."""
    rows = torch.where(factor == 0, 0.0, values) * factor
    return rows if reduction == "none" else rows.sum()
