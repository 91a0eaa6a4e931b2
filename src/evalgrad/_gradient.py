"""Attaching a gradient that was computed together with the value.

Every operator of the library returns a value per row and its gradient in one go. `with_gradient`
makes of the two a tensor that autograd, `torch.func`, vmap, forward-mode AD and compile can work
with. A second derivative is refused in words.
"""

import inspect
from typing import Any

import torch
from torch import Tensor

from evalgrad._labels import readable


def with_gradient(x: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
    """Return `value` as a function of `x` whose derivative is `gradient`.

    `value` has the leading axes of `x`, and an entry of it depends only on the part of `x` under
    the same leading indices. `gradient` has the shape of `x` and may be of a wider dtype: it is
    scaled by what arrives from above before it is narrowed, so that a loss scale saves small
    half-precision gradients from underflow.
    """
    if torch.compiler.is_compiling():
        function: type[torch.autograd.Function] = _Attach
    else:
        function = (
            _AttachInTransform if torch._C._are_functorch_transforms_active() else _AttachEager
        )
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
        if upstream is None or torch.is_grad_enabled() or not readable(upstream):
            return _Attach.backward(ctx, upstream)
        # The gradient itself is handed out when there is nothing to scale: for large maps a copy
        # would double the cost of the backward pass. Who receives it may write into it, so a second
        # call (retain_graph) first takes a copy to keep.
        if hasattr(ctx, "kept"):
            x, gradient = ctx.kept
        else:
            x, gradient = ctx.saved_tensors
            if getattr(ctx, "handed_out", False):
                gradient = gradient.clone()
                ctx.kept = (x, gradient)
            elif gradient.dtype == x.dtype and _is_one(upstream):
                ctx.handed_out = True
                return gradient, None, None
        return _Scale.apply(upstream, gradient, x), None, None  # type: ignore[no-untyped-call]


class _AttachEager(torch.autograd.Function):
    """The same in one function, which no transform takes: for the others torch binds arguments at
    every call, half of the cost.
    """

    jvp, backward = _AttachInTransform.jvp, _AttachInTransform.backward

    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
        output = _Attach.forward(x, value, gradient)
        _Attach.setup_context(ctx, (x, value, gradient), output)
        return output


class _Scale(torch.autograd.Function):
    """upstream x gradient, as a function of x too: so that a second derivative meets the refusal,
    not a silent zero.
    """

    @staticmethod
    def forward(upstream: Tensor, gradient: Tensor, x: Tensor) -> Tensor:
        spread = upstream.reshape(upstream.shape + (1,) * (gradient.ndim - upstream.ndim))
        return (gradient * spread).to(x.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        raise RuntimeError(
            "evalgrad: this loss has no second derivative; use the first gradient without"
            " create_graph=True."
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Tensor) -> tuple[Tensor, int]:
        return _Scale.apply(*_move_to_front(info, in_dims, args)), 0  # type: ignore[no-untyped-call]
