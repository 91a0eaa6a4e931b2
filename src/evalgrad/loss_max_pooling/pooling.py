"""Loss max-pooling: the mean loss of the pixels under the worst weighting that is still spread out
enough.

Of all weightings w of the n valid pixels of an image with ||w||_p <= n^(-1/q) and ||w||_inf <= tau,
q = p/(p-1), the one with the largest weighted loss is taken. Uniform weights are one of them, so
that the result is an upper bound of the mean loss: pixels that do badly count more, whatever their
class. Rota Bulò, Neuhold, Kontschieder: Loss Max-Pooling for Semantic Image Segmentation, CVPR
2017. The gradient in the losses is the maximiser w* itself.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from evalgrad._errors import describe, fail
from evalgrad._inputs import floating, like, plain
from evalgrad._labels import binary_labels, readable
from evalgrad._module import LossModule
from evalgrad._options import Axes, Reduction, axes, checked, each_axis, number
from evalgrad._rows import any_item, attach, row_factor, working
from evalgrad.loss_max_pooling.rows import pool_rows


def _norm(function: str, argument: str, value: object) -> None:
    if value != math.inf:
        repair = "The paper uses 1.3; math.inf is the plain mean."
        number(at_least=1, repair=repair)(function, argument, value)


OPTIONS = {
    "p": _norm,
    "support": number(
        above=0,
        at_most=1,
        repair="It is the fraction of the valid pixels that share the weight; 0.25 is the paper's"
        " choice.",
    ),
    "dim": axes,
}


@checked(**OPTIONS)
def loss_max_pooling(
    losses: Tensor,
    *,
    p: float = 1.3,
    support: float = 0.25,
    mask: Tensor | None = None,
    per_image: bool = True,
    dim: Axes = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Pool element-wise losses >= 0: their largest weighted mean over the admissible weights.

    Args:
        losses: ``(N, *)``, one loss per pixel, any number of spatial dimensions.
        p: norm of the constraint, from 1 (the largest losses only) to ``math.inf`` (the plain
            mean).
        support: minimum fraction of the valid pixels that share the weight, in (0, 1]: the weight
            of a pixel is at most tau = n^(-1/q) m^(-1/p) with m = max(support n, 1).
        mask: bool, the shape of `losses`, True = keep; the other pixels are ignored.
        per_image: if True, every image is pooled separately, as in the paper; if False, the batch
            is one group.
        dim: the dimension or dimensions to pool over instead, for any other layout; overrides
            `per_image`.
        reduction: over groups ``"mean"`` | ``"sum"`` | ``"none"``: ``(groups,)``, or with `dim` the
            shape of the remaining dimensions.

    Example:
        >>> loss_max_pooling(torch.tensor([[0.0, 0.0, 0.0, 4.0]]), p=1, support=0.5)
        tensor(2.)
    """
    groups = _group("loss_max_pooling", losses, mask, per_image, dim)
    value, weights = pool_rows(working(groups.rows), groups.mask, float(p), float(support))
    counted = None if groups.mask is None else any_item(groups.mask)
    factor = row_factor(groups.rows, counted, reduction, groups.invalid)
    return attach(groups.rows, value, weights, reduction, factor=factor, shape=groups.shape)


@checked(**OPTIONS)
def loss_max_pooling_weights(
    losses: Tensor,
    *,
    p: float = 1.3,
    support: float = 0.25,
    mask: Tensor | None = None,
    per_image: bool = True,
    dim: Axes = None,
) -> Tensor:
    """The weights that `loss_max_pooling` gives to the losses: the same shape, detached.

    Args:
        losses: ``(N, *)``, one loss per pixel, any number of spatial dimensions.
        p: norm of the constraint, from 1 (the largest losses only) to ``math.inf`` (the plain
            mean).
        support: minimum fraction of the valid pixels that share the weight, in (0, 1]: the weight
            of a pixel is at most tau = n^(-1/q) m^(-1/p) with m = max(support n, 1).
        mask: bool, the shape of `losses`, True = keep; the other pixels are ignored.
        per_image: if True, every image is pooled separately, as in the paper; if False, the batch
            is one group.
        dim: the dimension or dimensions to pool over instead, for any other layout; overrides
            `per_image`.

    Example:
        >>> loss_max_pooling_weights(torch.tensor([[1.0, 3.0, 2.0, 0.0]]), p=1, support=0.5)
        tensor([[0.0000, 0.5000, 0.5000, 0.0000]])
    """
    groups = _group("loss_max_pooling_weights", losses, mask, per_image, dim)
    _, weights = pool_rows(working(groups.rows), groups.mask, float(p), float(support))
    if groups.invalid is not None:
        weights = weights.masked_fill(groups.invalid.unsqueeze(1), torch.nan)
    # back to the order and the shape of the losses
    shape = [losses.shape[axis] for axis in groups.order]
    weights = weights.to(groups.rows.dtype).reshape(shape)
    return weights.movedim(list(range(len(shape))), groups.order)


class LossMaxPooling(LossModule):
    """`loss_max_pooling` of the losses of an element-wise criterion.

    A call takes the arguments of the criterion, and optionally the keyword `mask`, as in
    `loss_max_pooling`. If the criterion has an `ignore_index`, pixels with that label are left out
    too.

    Args:
        criterion: a module or function that returns one loss >= 0 per pixel, e.g.
            ``nn.CrossEntropyLoss(reduction="none")``.
        p: norm of the constraint, from 1 (the largest losses only) to ``math.inf`` (the plain
            mean).
        support: minimum fraction of the valid pixels that share the weight, in (0, 1]: the weight
            of a pixel is at most tau = n^(-1/q) m^(-1/p) with m = max(support n, 1).
        per_image: if True, every image is pooled separately, as in the paper; if False, the batch
            is one group.
        dim: the dimension or dimensions to pool over instead, for any other layout; overrides
            `per_image`.
        reduction: over groups ``"mean"`` | ``"sum"`` | ``"none"``: ``(groups,)``, or with `dim` the
            shape of the remaining dimensions.

    Example:
        >>> from torch import nn
        >>> criterion = LossMaxPooling(nn.CrossEntropyLoss(reduction="none", ignore_index=255))
        >>> logits = torch.randn(2, 21, 8, 8, requires_grad=True)
        >>> criterion(logits, torch.randint(21, (2, 8, 8))).backward()
    """

    function = staticmethod(loss_max_pooling)

    def __init__(
        self,
        criterion: Callable[..., Tensor],
        *,
        p: float = 1.3,
        support: float = 0.25,
        per_image: bool = True,
        dim: Axes = None,
        reduction: Reduction = "mean",
    ) -> None:
        options = locals()
        super().__init__({name: options[name] for name in options if name != "criterion"})
        _check_criterion(criterion)
        self.criterion = criterion

    def forward(self, *inputs: Any, mask: Tensor | None = None) -> Tensor:  # type: ignore[override]
        losses = self.criterion(*inputs)
        if not isinstance(losses, Tensor) or losses.ndim == 0:
            _fail_criterion(describe(losses))
        return super().forward(losses, mask=self._mask(losses, inputs, mask))

    def _mask(self, losses: Tensor, inputs: Sequence[Any], mask: Tensor | None) -> Tensor | None:
        """What counts: the caller's mask, without the labels that the criterion ignores."""
        ignore_index = getattr(self.criterion, "ignore_index", None)
        target = inputs[1] if len(inputs) > 1 else None
        if ignore_index is None or not isinstance(target, Tensor) or target.shape != losses.shape:
            return mask
        target = plain("loss_max_pooling", "target", target)
        # Cast before it is compared: a uint8 would wrap ignore_index=-100 to 156.
        valid = (target if target.is_floating_point() else target.long()) != ignore_index
        if mask is None:
            return valid
        mask = like("loss_max_pooling", "mask", mask, losses, "losses")
        return torch.where(valid, mask, torch.zeros_like(mask))


def _fail_criterion(got: str) -> None:
    must, repair = "element-wise, with one loss per pixel", 'Construct it with reduction="none".'
    fail(ValueError, "LossMaxPooling", "criterion", must, got, repair)


def _check_criterion(criterion: object) -> None:
    if not callable(criterion):
        must, repair = "a module or a function", "Pass the criterion itself."
        fail(TypeError, "LossMaxPooling", "criterion", must, describe(criterion), repair)
    reduction = getattr(criterion, "reduction", "none")
    if reduction != "none":
        _fail_criterion(f"one with reduction={reduction!r}")


class _Groups(NamedTuple):
    """Losses in rows ``(R, n)``: a row per group, a column per pixel that it pools."""

    rows: Tensor
    mask: Tensor | None
    invalid: Tensor | None
    order: list[int]  # the axes of the losses: those kept, then those pooled
    shape: tuple[int, ...]  # of the groups


def _group(
    function: str, losses: Tensor, mask: Tensor | None, per_image: bool, dim: Axes
) -> _Groups:
    losses = floating(function, "losses", losses, at_least=0)
    if losses.ndim == 0:
        repair = 'Compute them with reduction="none": a mean leaves nothing to weight.'
        fail(ValueError, function, "losses", "one loss per pixel", describe(losses), repair)
    pooled = _pooled_axes(function, losses, per_image, dim)
    order = [axis for axis in range(losses.ndim) if axis not in pooled] + pooled
    kept = losses.ndim - len(pooled)

    def rows_of(x: Tensor) -> Tensor:
        x = x.permute(order)
        return x.reshape(x.shape[:kept].numel(), x.shape[kept:].numel())

    counts, invalid = None, None
    if mask is not None:
        mask = like(function, "mask", mask, losses, "losses")
        counts, _, invalid = binary_labels(function, rows_of(mask), "mask")
    rows = rows_of(losses)
    _check_sign(function, rows, counts)
    shape = rows.shape[:1] if dim is None else [losses.shape[axis] for axis in order[:kept]]
    return _Groups(rows, counts, invalid, order, tuple(shape))


def _pooled_axes(function: str, losses: Tensor, per_image: bool, dim: Axes) -> list[int]:
    if dim is None:
        return list(range(1 if per_image else 0, losses.ndim))
    given = each_axis(dim)
    found = {axis % losses.ndim for axis in given if -losses.ndim <= axis < losses.ndim}
    if len(found) < len(given) or not given:
        must = f"one or more different dimensions in [{-losses.ndim}, {losses.ndim - 1}]"
        fail(ValueError, function, "dim", must, repr(dim), "Pass each dimension to pool over once.")
    return sorted(found)


def _check_sign(function: str, rows: Tensor, mask: Tensor | None) -> None:
    if not readable(rows) or not rows.numel():
        return
    losses = rows.detach()
    least = (losses if mask is None else torch.where(mask, losses, 0.0)).amin()
    if bool(least < 0):
        repair = "Pooling is defined for losses >= 0: shift them, or pass a `mask` without them."
        fail(ValueError, function, "losses", "at least 0", f"a loss of {least.item():g}", repair)
