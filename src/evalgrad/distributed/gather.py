"""The union of the ranks' batches, as a tensor that autograd sees through.

Every rank then computes the same loss on the union. In the backward pass a rank keeps its own slice
of the gradient, times the number of ranks: DDP and FSDP average the gradients of the ranks, and
that average is then the gradient of one process with the whole batch. No collective runs in the
backward pass, so its order cannot differ between ranks. An ordinary mean over the local batch may
be added beside such a loss, unscaled.
"""

from __future__ import annotations  # a torch built without `distributed` has no ProcessGroup

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from evalgrad._errors import describe, fail
from evalgrad._inputs import plain

# numbered alike on all ranks
DTYPES = sorted({x for x in vars(torch).values() if isinstance(x, torch.dtype)}, key=str)
MAX_AXES = 8

P = ParamSpec("P")
R = TypeVar("R")


def _outside_of_compile(function: Callable[P, R]) -> Callable[P, R]:
    """`torch.compiler.disable`, put off until something is compiled: it imports the compiler, which
    takes as long as torch itself.
    """

    @functools.wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        if torch.compiler.is_compiling():
            return torch.compiler.disable(function)(*args, **options)
        return function(*args, **options)

    return call


def gather_batch(x: Tensor, group: dist.ProcessGroup | None = None, *, dim: int = 0) -> Tensor:
    """Concatenate `x` of all ranks, in the order of the ranks; differentiable.

    Every rank of the group must call it, in the same order as the others. Without an initialised
    process group it returns `x`.

    Args:
        x: any dtype, including bool and integers. Ranks may have different numbers of items, or
            none; an empty tensor needs neither the shape nor the dtype of the others.
        group: the ranks among which the gradients are averaged; None: all.
        dim: the dimension of the items.

    Returns:
        The concatenation. In the backward pass each rank gets its own slice of the gradient times
        the number of ranks, because DDP and FSDP average gradients over ranks by default.

    Example:
        >>> gather_batch(torch.tensor([0.3, 0.1]))  # one process: the tensor itself
        tensor([0.3000, 0.1000])
    """
    _check_items(x)
    if type(dim) is not int or not -x.ndim <= dim < x.ndim:  # one process must not hide it
        must = f"an axis of `x`, from {-x.ndim} to {x.ndim - 1}"
        fail(ValueError, "gather_batch", "dim", must, describe(dim), "It is the axis of the items.")
    check_group("gather_batch", group)
    if number_of_ranks(group) == 1:
        return x
    return _gather(x, group, dim)


def _check_items(x: object) -> None:
    function, repair = "gather_batch", "Add an axis for the items, e.g. `x.unsqueeze(0)`."
    if not isinstance(x, Tensor) or not 1 <= x.ndim <= MAX_AXES:
        must = f"a tensor with 1 to {MAX_AXES} dimensions"
        fail(TypeError, function, "x", must, describe(x), repair)
    if x.is_nested or x.layout is not torch.strided or x.is_quantized:
        plain(function, "x", x)  # which says how to convert it


def check_group(function: str, group: object) -> None:
    """A process group or None, for all ranks."""
    kind = getattr(dist, "ProcessGroup", ())  # a torch without `distributed` has none
    # traced, a group need not be of that class
    if group is None or torch.compiler.is_compiling() or isinstance(group, kind):
        return
    repair = "Pass what `torch.distributed.new_group` returned on a rank of the group."
    fail(TypeError, function, "group", "a process group or None", describe(group), repair)


def number_of_ranks(group: dist.ProcessGroup | None) -> int:
    """1 where nothing is distributed."""
    return dist.get_world_size(group) if dist.is_available() and dist.is_initialized() else 1


@_outside_of_compile
@torch.no_grad()
def add_over_ranks(x: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """The sum of `x` over the ranks, without a graph."""
    total = x.clone(memory_format=torch.contiguous_format)
    _together("global_batch", lambda: dist.all_reduce(total, group=group))
    return total


def _together(function: str, collective: Callable[[], Any]) -> None:
    """Run a collective; if another rank is gone, the error says so."""
    try:
        collective()
    except RuntimeError as error:
        raise RuntimeError(
            f"{function}: rank {dist.get_rank()} got no answer from the other ranks: one of them"
            " was killed, failed, or did not call this function within the timeout of the process"
            " group. Look for the first error in the logs of the ranks; every rank must call it"
            f" equally often, with an empty batch if it has none. The backend says: {error}"
        ) from error


@_outside_of_compile  # the sizes of the other ranks are known at run time only
def _gather(x: Tensor, group: dist.ProcessGroup | None, dim: int) -> Tensor:
    union: Tensor = _Gather.apply(x.movedim(dim, 0), group)  # type: ignore[no-untyped-call]
    return union.movedim(0, dim)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup | None) -> Tensor:
        kinds = _exchange(_kind(x), group).tolist()
        sizes = [kind[0] for kind in kinds]
        rank, like = dist.get_rank(group), _agreed(kinds)
        ctx.place = sum(sizes[:rank]), sizes[rank], len(sizes), x.shape
        if like is None:  # nobody has anything
            return x.clone()
        dtype, shape = like
        # gloo aborts on an empty tensor
        padded = torch.zeros(max(sizes), *shape, dtype=dtype, device=x.device)
        if x.shape[0]:
            padded[: x.shape[0]] = x
        if not padded.numel():  # items without a pixel
            return padded.new_zeros(sum(sizes), *shape)
        # As bytes: not every backend sends every dtype.
        parts = (
            _exchange(padded.flatten().view(torch.uint8), group)
            .view(dtype)
            .view(len(sizes), *padded.shape)
        )
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        start, size, ranks, shape = ctx.place
        return (
            gradient.narrow(0, start, size).mul(ranks) if size else gradient.new_zeros(shape)
        ), None


def _kind(x: Tensor) -> Tensor:
    """Number of items, dtype and shape, as a row of integers."""
    entries = [x.shape[0], DTYPES.index(x.dtype), x.ndim, *x.shape[1:]]
    return torch.tensor(entries + [0] * (MAX_AXES + 2 - len(entries)), device=x.device)


def _agreed(kinds: list[list[int]]) -> tuple[torch.dtype, list[int]] | None:
    """Dtype and shape of one item, of the ranks that have items. All ranks see the same rows, so
    all raise or none does.
    """
    held = {
        rank: (DTYPES[dtype], shape[: axes - 1])
        for rank, (size, dtype, axes, *shape) in enumerate(kinds)
        if size
    }
    (first, like), *others = held.items() or [(0, None)]
    for rank, other in others:
        if other != like:
            raise ValueError(
                "gather_batch: `x` must have one dtype and one shape per item on all ranks; got"
                f" {_words(like)} on rank {first} and {_words(other)} on rank {rank}. Crop or pad"
                " to one size, and cast to one dtype."
            )
    return like


def _words(like: Any) -> str:
    return f"{str(like[0]).removeprefix('torch.')} items of shape {tuple(like[1])}"


def _exchange(row: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """The equally long rows of all ranks, stacked."""
    rows = torch.empty(dist.get_world_size(group), *row.shape, dtype=row.dtype, device=row.device)
    _together(
        "gather_batch", lambda: dist.all_gather(list(rows.unbind()), row.contiguous(), group=group)
    )
    return rows
