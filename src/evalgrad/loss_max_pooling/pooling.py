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
from typing import Any

import torch
from torch import Tensor, nn

from evalgrad import _checks
from evalgrad._gradient import with_gradient
from evalgrad._masking import any_item, reduce, working_dtype
from evalgrad.loss_max_pooling.rows import pool_rows

Axes = int | Sequence[int] | None


def loss_max_pooling(
    losses: Tensor,
    *,
    p: float = 1.3,
    support: float = 0.25,
    mask: Tensor | None = None,
    per_image: bool = True,
    dim: Axes = None,
    reduction: str = "mean",
) -> Tensor:
    """Pool element-wise losses >= 0 by their worst admissible weighting.

    Args:
        losses: ``(N, *)``, one loss per pixel, any number of spatial axes.
        p: norm of the constraint, from 1 (the largest losses only) to ``math.inf`` (the plain
            mean).
        support: fraction of the valid pixels that share at least the weight, in (0, 1]: no pixel
            weighs more than tau = n^(-1/q) m^(-1/p) with m = max(support n, 1).
        mask: bool, the shape of `losses`, True = counts; pixels left out are as if absent.
        per_image: True: every image is pooled by itself, as the paper does. False: the batch is one
            group.
        dim: the axis or axes to pool over instead, for any other layout; overrides `per_image`.
        reduction: over groups ``"mean"`` | ``"sum"`` | ``"none"``: ``(groups,)``, or with `dim` the
            shape of the axes that remain.

    Example:
        >>> loss_max_pooling(torch.tensor([[0.0, 0.0, 0.0, 4.0]]), p=1, support=0.5)
        tensor(2.)
    """
    function = "loss_max_pooling"
    _check_options(function, p, support, per_image, dim, reduction)
    _check_tensors(function, losses, mask, dim)
    rows, counts = (
        _group(losses, per_image, dim),
        (None if mask is None else _group(mask, per_image, dim)),
    )
    value, weights = pool_rows(
        rows.detach().to(working_dtype(losses)), counts, float(p), float(support)
    )
    pooled = with_gradient(rows, value, weights)
    counted = (
        torch.full_like(value, rows.shape[1] > 0, dtype=torch.bool)
        if counts is None
        else any_item(counts)
    )
    return (
        reduce(pooled, counted, reduction)
        .reshape(_group_shape(losses, dim, reduction))
        .to(losses.dtype)
    )


def loss_max_pooling_weights(
    losses: Tensor,
    *,
    p: float = 1.3,
    support: float = 0.25,
    mask: Tensor | None = None,
    per_image: bool = True,
    dim: Axes = None,
) -> Tensor:
    """The maximiser w* of `loss_max_pooling`, of the shape of `losses` and without a graph; the
    arguments are the same.

    Example:
        >>> loss_max_pooling_weights(torch.tensor([[1.0, 3.0, 2.0, 0.0]]), p=1, support=0.5)
        tensor([[0.0000, 0.5000, 0.5000, 0.0000]])
    """
    function = "loss_max_pooling_weights"
    _check_options(function, p, support, per_image, dim, "none")
    _check_tensors(function, losses, mask, dim)
    rows, counts = (
        _group(losses, per_image, dim),
        (None if mask is None else _group(mask, per_image, dim)),
    )
    _, weights = pool_rows(
        rows.detach().to(working_dtype(losses)), counts, float(p), float(support)
    )
    return _ungroup(weights.to(losses.dtype), losses, per_image, dim)


class LossMaxPooling(nn.Module):
    """`loss_max_pooling` of the losses of an element-wise criterion.

    Where the criterion has an `ignore_index`, pixels with that label are left out. `mask` says what
    else does not count.

    Args:
        criterion: a module or function that returns one loss >= 0 per pixel, e.g.
            ``nn.CrossEntropyLoss(reduction="none")``.
        p: as for `loss_max_pooling`, like all that follow.

    Example:
        >>> criterion = LossMaxPooling(nn.CrossEntropyLoss(reduction="none", ignore_index=255))
        >>> logits = torch.randn(2, 21, 8, 8, requires_grad=True)
        >>> criterion(logits, torch.randint(21, (2, 8, 8))).backward()
    """

    def __init__(
        self,
        criterion: Callable[..., Tensor],
        *,
        p: float = 1.3,
        support: float = 0.25,
        per_image: bool = True,
        dim: Axes = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        _check_options("LossMaxPooling", p, support, per_image, dim, reduction)
        _check_criterion(criterion)
        self.criterion = criterion
        self.options: dict[str, Any] = {
            "p": p,
            "support": support,
            "per_image": per_image,
            "dim": dim,
            "reduction": reduction,
        }

    def forward(self, *inputs: Any, mask: Tensor | None = None) -> Tensor:
        losses = self.criterion(*inputs)
        if not isinstance(losses, Tensor) or losses.ndim == 0:
            _fail_criterion(_checks.describe(losses))
        return loss_max_pooling(losses, mask=self._mask(losses, inputs, mask), **self.options)

    def _mask(self, losses: Tensor, inputs: Sequence[Any], mask: Tensor | None) -> Tensor | None:
        """What counts: the caller's mask, without the labels that the criterion ignores."""
        ignore_index, target = (
            getattr(self.criterion, "ignore_index", None),
            (inputs[1] if len(inputs) > 1 else None),
        )
        if ignore_index is None or not isinstance(target, Tensor) or target.shape != losses.shape:
            return mask
        valid = target != ignore_index
        return valid if mask is None else valid & mask

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())


def _fail_criterion(got: str) -> None:
    _checks.fail(
        ValueError,
        "LossMaxPooling",
        "criterion",
        "element-wise, with one loss per pixel",
        got,
        'Construct it with reduction="none".',
    )


def _check_criterion(criterion: object) -> None:
    if not callable(criterion):
        _checks.fail(
            TypeError,
            "LossMaxPooling",
            "criterion",
            "a module or a function",
            repr(criterion),
            "Pass the criterion itself.",
        )
    reduction = getattr(criterion, "reduction", "none")
    if reduction != "none":
        _fail_criterion(f"one with reduction={reduction!r}")


def _check_options(
    function: str, p: float, support: float, per_image: bool, dim: Axes, reduction: str
) -> None:
    if p != math.inf:
        _checks.check_number(
            function,
            "p",
            p,
            at_least=1,
            repair="1.3 is the paper's choice; math.inf is the plain mean.",
        )
    repair = (
        "It is the fraction of the valid pixels that share the weight; 0.25 is the paper's choice."
    )
    _checks.check_number(function, "support", support, above=0, repair=repair)
    if support > 1:
        _checks.fail(ValueError, function, "support", "at most 1", repr(support), repair)
    _checks.check_flag(function, "per_image", per_image)
    _checks.check_option(function, "reduction", reduction, _checks.REDUCTIONS)
    if dim is not None and not isinstance(dim, int | Sequence):
        _checks.fail(
            TypeError,
            function,
            "dim",
            "an axis, several axes or None",
            repr(dim),
            "Pass e.g. dim=-1 or dim=(1, 2).",
        )
    for axis in _axes(dim):
        _checks.check_integer(
            function, "dim", axis, low=-64, high=63, repair="Pass an axis, several axes, or None."
        )


def _check_tensors(function: str, losses: Tensor, mask: Tensor | None, dim: Axes) -> None:
    _checks.check_floating(function, "losses", losses)
    _checks.check_bool(function, "mask", mask, losses)
    axes = [axis % losses.ndim for axis in _axes(dim) if -losses.ndim <= axis < losses.ndim]
    if dim is not None and (len(axes) == 0 or len(set(axes)) < len(_axes(dim))):
        must = f"one or more different axes in [{-losses.ndim}, {losses.ndim - 1}]"
        _checks.fail(
            ValueError, function, "dim", must, repr(dim), "Name each axis to pool over once."
        )
    if _checks.readable(losses) and losses.numel():
        least = (
            losses.detach() if mask is None else torch.where(mask, losses.detach(), 0.0)
        ).amin()
        if bool(least < 0):
            repair = (
                "The maximiser is defined for losses >= 0: shift them, or leave those pixels out by"
                " `mask`."
            )
            _checks.fail(
                ValueError, function, "losses", "at least 0", f"a loss of {least.item():g}", repair
            )


def _axes(dim: Axes) -> tuple[int, ...]:
    return () if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)


def _pooled(x: Tensor, per_image: bool, dim: Axes) -> list[int]:
    """The axes that are pooled."""
    return (
        sorted(axis % x.ndim for axis in _axes(dim))
        if dim is not None
        else list(range(1 if per_image else 0, x.ndim))
    )


def _group(x: Tensor, per_image: bool, dim: Axes) -> Tensor:
    """Canonical form ``(groups, items)``."""
    axes = _pooled(x, per_image, dim)
    x = x.movedim(axes, list(range(-len(axes), 0))) if axes else x.unsqueeze(-1)
    lead = x.ndim - max(len(axes), 1)
    return x.reshape(x.shape[:lead].numel(), x.shape[lead:].numel())


def _ungroup(rows: Tensor, like: Tensor, per_image: bool, dim: Axes) -> Tensor:
    """The inverse of `_group`."""
    axes = _pooled(like, per_image, dim)
    kept = [axis for axis in range(like.ndim) if axis not in axes]
    return rows.reshape([like.shape[axis] for axis in kept + axes]).movedim(
        list(range(-len(axes), 0)), axes
    )


def _group_shape(losses: Tensor, dim: Axes, reduction: str) -> tuple[int, ...]:
    if reduction != "none":
        return ()
    axes = _pooled(losses, True, dim)
    return (
        (-1,)
        if dim is None
        else tuple(size for axis, size in enumerate(losses.shape) if axis not in axes)
    )
