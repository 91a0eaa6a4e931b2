"""Rows: how much each counts in the result, and the result with its gradient attached.

An operator returns a value per row and its gradient in the scores. The *factor* of a row is what
its loss is multiplied with in the result: its weight, over the total under "mean"; 0 for a row
that does not count; NaN for one with an undeclared label that could not be read. Operators whose
kernels take the factor return finished gradients; `attach` multiplies the others. `marked` makes
the NaN sure where an operator took the factor in: it may have met no item to multiply it with.

`with_gradient` makes of a value and its gradient a tensor that autograd, `torch.func`, vmap,
forward-mode AD and compile can work with; a second derivative raises.
"""

import inspect
from typing import Any

import torch
from torch import Tensor

from evalgrad import _triton
from evalgrad._inputs import WORKING, ClassMaps
from evalgrad._labels import readable, transformed
from evalgrad._options import Classes, Reduction
from evalgrad._soft_targets import SoftMaps


def working(x: Tensor) -> Tensor:
    """`x` without its graph, in the dtype that it is computed in."""
    return x.detach().to(WORKING[x.dtype])


def exact_dtype(x: Tensor) -> torch.dtype:
    """Counts and long sums are taken in float64, where the device has it."""
    return torch.float32 if x.device.type == "mps" else torch.float64


def any_item(flags: Tensor) -> Tensor:
    """Whether any of the last axis is True."""
    # On a CPU as bytes, which torch reduces 30 times as fast; torch 2.6 cannot vmap that view.
    return flags.view(torch.uint8).any(-1).bool() if readable(flags) else flags.any(-1)


def row_factor(
    rows: Tensor, weight: Tensor | None, reduction: Reduction, invalid: Tensor | None = None
) -> Tensor:
    """Factor of each of the ``rows (R, *)``, from its weight: a number >= 0, or whether it counts.

    None: all rows count alike.
    """
    if weight is None:
        share = 1 / max(rows.shape[0], 1) if reduction == "mean" else 1.0
        factor = torch.full(rows.shape[:1], share, dtype=WORKING[rows.dtype], device=rows.device)
    else:
        factor = weight.double()
        if reduction == "mean":
            total = factor.sum()
            factor = factor / torch.where(total > 0, total, 1.0)
    if invalid is not None:
        factor = factor.masked_fill(invalid, torch.nan)
    return factor.to(WORKING[rows.dtype])


def class_factor(maps: ClassMaps | SoftMaps, classes: Classes, reduction: Reduction) -> Tensor:
    """Factor ``(G, C)`` of each class in each group.

    "mean" is the weighted mean over the classes of a group, then over the groups that count.
    """
    counts, weight, invalid = maps.counts, maps.weight, maps.invalid
    if classes == "present":
        counted = counts > 0
    else:
        # A void group has no largest error.
        counted = chosen_classes(counts, classes) & maps.anything()
    factor = counted.double() if weight is None else torch.where(counted, weight.double(), 0.0)
    if reduction == "mean":
        total = factor.sum(1, keepdim=True)
        groups = (total > 0).sum().clamp(min=1)
        factor = factor / torch.where(total > 0, total, 1.0) / groups
    if invalid is not None:
        factor = factor.masked_fill(invalid.unsqueeze(1), torch.nan)
    return factor.to(WORKING[maps.x.dtype])


def chosen_classes(like: Tensor, classes: Classes) -> Tensor:
    """Which classes of ``like (G, C)`` a choice names, ``(1, C)`` bool."""
    if classes == "all":
        return torch.ones_like(like[:1], dtype=torch.bool)
    chosen = torch.zeros_like(like[:1], dtype=torch.bool)
    for c in map(int, classes):  # one by one: a GPU would wait for a tensor of them
        chosen[:, c].fill_(True)
    return chosen


def attach(
    x: Tensor,
    value: Tensor,
    gradient: Tensor,
    reduction: Reduction,
    *,
    factor: Tensor | None = None,
    invalid: Tensor | None = None,
    shape: tuple[int, ...] | None = None,
) -> Tensor:
    """The loss as a function of `x`: reduced, or under "none" of the given shape.

    Without `factor` value and gradient have taken it in, and nothing is left to scale in the
    backward pass but the rows that are `invalid`.
    """
    if factor is None and invalid is None:
        summed = value if reduction == "none" else value.sum()
        loss = with_gradient(x, summed, gradient)
    elif factor is None:
        rows = marked(with_gradient(x, value, gradient), invalid)
        loss = rows if reduction == "none" else rows.sum()
    else:
        loss = reduce(with_gradient(x, value, gradient), factor, reduction)
    return loss if shape is None or reduction != "none" else loss.reshape(shape)


def marked(rows: Tensor, invalid: Tensor | None) -> Tensor:
    """The rows, NaN where they are `invalid`, and so their gradient: every item of such a row may
    have been left out, or have no loss.
    """
    return rows if invalid is None else rows * torch.where(invalid, torch.nan, 1.0).to(rows.dtype)


def reduce(values: Tensor, factor: Tensor, reduction: Reduction) -> Tensor:
    """Row values times their factors, added up; where the factor is 0, the row is too."""
    rows = torch.where(factor == 0, 0.0, values) * factor
    return rows if reduction == "none" else rows.sum()


# ---- a value with its gradient -------------------------------------------------------------------


def with_gradient(x: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
    """Return `value` as a function of `x` whose derivative is `gradient`.

    `value` has the leading axes of `x`, and an entry of it depends only on the part of `x` under
    the same leading indices. `gradient` has the shape of `x` and may be of a wider dtype: it is
    scaled by what arrives from above before it is narrowed, so that a loss scale saves small
    half-precision gradients from underflow.
    """
    if torch.compiler.is_compiling():
        function: type[torch.autograd.Function] = _Attach
    elif torch._C._are_functorch_transforms_active():  # torch has no public name for this question
        function = _AttachInTransform
    else:
        function = _AttachEager
    attached: Tensor = function.apply(x, value, gradient)
    return attached


def _move_to_front(
    info: Any, in_dims: tuple[int | None, ...], args: tuple[Tensor, ...]
) -> list[Tensor]:
    """The vmapped axis first in every tensor: the functions below take any number of
    leading axes.
    """
    return [
        arg.expand(info.batch_size, *arg.shape) if dim is None else arg.movedim(dim, 0)
        for arg, dim in zip(args, in_dims, strict=True)
    ]


def _is_one(upstream: Tensor) -> bool:
    # one number spread over all axes, as a sum does it
    if upstream.numel() and not any(upstream.stride()):
        return upstream.as_strided((), ()).item() == 1
    return bool((upstream == 1).all())


class _Attach(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        x, _, gradient = inputs
        ctx.save_for_backward(x, gradient)
        ctx.save_for_forward(gradient)
        ctx.set_materialize_grads(False)
        ctx.leading_axes = output.ndim

    @staticmethod
    def backward(ctx: Any, upstream: Tensor | None) -> Any:
        if upstream is None:
            return None, None, None
        x, gradient = ctx.saved_tensors
        return _Scale.apply(upstream, gradient, x), None, None  # type: ignore[no-untyped-call]

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Tensor) -> tuple[Tensor, int]:
        return with_gradient(*_move_to_front(info, in_dims, args)), 0


# torch inspects the signature at every call unless it finds it here: most of what attaching would
# cost otherwise.
_Attach.forward.__signature__ = inspect.signature(_Attach.forward)  # type: ignore[attr-defined]


class _AttachInTransform(_Attach):
    """Adds what compile cannot trace: forward-mode AD, and a backward without a copy."""

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:
        (gradient,) = ctx.saved_tensors
        return (
            (tangent * gradient).flatten(ctx.leading_axes).sum(-1)
            if gradient.ndim > ctx.leading_axes
            else tangent * gradient
        )

    @staticmethod
    def backward(ctx: Any, upstream: Tensor | None) -> Any:
        # The gradient itself is handed out when there is nothing to scale: for large maps a copy
        # would double the cost of the backward pass. Who receives it may write into it, so not
        # where the graph is kept for a second call (retain_graph).
        if upstream is None or torch.is_grad_enabled() or graph_is_kept():
            return _Attach.backward(ctx, upstream)
        x, gradient = ctx.saved_tensors
        if gradient.dtype == x.dtype and readable(upstream) and _is_one(upstream):
            return gradient, None, None
        if gradient.dtype == x.dtype and _by_a_kernel(gradient, upstream):
            return _scale_rows(gradient, upstream), None, None
        return _Scale.apply(upstream, gradient, x), None, None  # type: ignore[no-untyped-call]


# Torch's own; where it is missing, every backward pass takes the copy.
graph_is_kept = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)


def _by_a_kernel(gradient: Tensor, upstream: Tensor) -> bool:
    """Whether a Triton kernel may scale the gradient in place, which finds out by itself where
    there is nothing to scale.
    """
    plain = all(type(t) is Tensor and not transformed(t) for t in (gradient, upstream))
    return (
        _triton.ENABLED and plain and gradient.is_contiguous() and not torch.compiler.is_compiling()
    )


class _AttachEager(torch.autograd.Function):
    """The same in one function, which no transform takes: for the others torch binds arguments at
    every call, half of the cost.
    """

    jvp, backward = _AttachInTransform.jvp, _AttachInTransform.backward

    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(x, gradient)
        ctx.save_for_forward(gradient)
        ctx.set_materialize_grads(False)
        ctx.leading_axes = value.ndim
        return value.clone()


def _scaled(gradient: Tensor, upstream: Tensor) -> Tensor:
    spread = upstream.reshape(upstream.shape + (1,) * (gradient.ndim - upstream.ndim))
    return gradient * spread


_scale_rows = _triton.serve("rows", "scale_rows", _scaled)


class _Scale(torch.autograd.Function):
    """upstream x gradient, as a function of x too: so that a second derivative meets the refusal,
    not a silent zero.
    """

    @staticmethod
    def forward(upstream: Tensor, gradient: Tensor, x: Tensor) -> Tensor:
        return _scaled(gradient, upstream).to(x.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        raise RuntimeError(
            "evalgrad: this loss has no second derivative; compute its gradient without"
            " create_graph=True."
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Tensor) -> tuple[Tensor, int]:
        moved = _move_to_front(info, in_dims, args)
        return _Scale.apply(*moved), 0  # type: ignore[no-untyped-call]
