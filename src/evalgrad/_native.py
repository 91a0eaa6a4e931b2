"""The C++ kernels: loading them, calling them, and defining an operator that PyTorch can compile,
vmap and export.

An operator of this house is a function of canonical tensors. Every tensor it takes or returns has
*rows* as its first axis and treats each row by itself; that is why one vmap rule, folding the new
axis into the rows, serves all of them. The few that are not so, `by_rows=False`, have none.
"""

import ctypes
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import torch
from torch import Tensor

Result = tuple[Tensor, ...] | Tensor


def _load() -> ctypes.CDLL | None:
    # not __file__: an editable install keeps the library elsewhere
    for entry in files("evalgrad").iterdir():
        if entry.name.startswith("_kernels."):
            return ctypes.CDLL(str(entry))
    return None


# None: built without a compiler; the pure-torch cores then do all the work
library: ctypes.CDLL | None = _load()

_operators = torch.library.Library("evalgrad", "DEF")


def call(name: str, *args: Tensor | int | float | None) -> None:
    """Call the C function `evalgrad_<name>` with pointers to the tensors; the number of threads
    goes last.
    """
    assert library is not None
    function = getattr(library, f"evalgrad_{name}")
    values = [_pointer(name, arg) if isinstance(arg, Tensor) else arg for arg in args]
    # its first call: known types spare the wrapping of every argument, half of a small call
    if function.argtypes is None:
        function.restype, function.argtypes = None, [*map(_kind, args), ctypes.c_int64]
    function(*values, torch.get_num_threads())


def _kind(arg: Tensor | int | float | None) -> Any:
    return (
        ctypes.c_double
        if isinstance(arg, float)
        else ctypes.c_int64
        if isinstance(arg, int)
        else ctypes.c_void_p
    )


def _pointer(name: str, arg: Tensor) -> int:
    if not (arg.is_cpu and arg.is_contiguous()):  # a raw pointer checks nothing later
        raise RuntimeError(
            f"{name}: a kernel takes contiguous CPU tensors; got strides {arg.stride()} on"
            f" {arg.device}"
        )
    return arg.data_ptr()


def empty_results(x: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    """What most operators fill in: a value per row of x, and the gradient in x."""
    return x.new_empty(x.shape[0]), torch.empty_like(x, memory_format=torch.contiguous_format)


def operator(
    schema: str,
    *,
    pure: Callable[..., Result],
    native: Callable[..., Result],
    fake: Callable[..., Result] = empty_results,
    dtypes: tuple[torch.dtype, ...] = (torch.float32,),
    by_rows: bool = True,
) -> Callable[..., Any]:
    """Define `evalgrad::<schema>` and return it.

    Args:
        schema: name and types in torch's notation, e.g. ``"extend(Tensor errors, bool hinge) ->
            (Tensor, Tensor)"``.
        pure: the pure-torch core: every device, every dtype, and the peer that the kernel is tested
            against.
        native: the kernel's caller, given contiguous CPU tensors the first of which has one of
            `dtypes`.
        fake: empty results of the right shapes, for tracing; without it a value per row and a
            gradient.
        dtypes: what the kernel was compiled for.
        by_rows: False for an operator whose tensors share no rows, which vmap then refuses.
    """
    name = schema.partition("(")[0]

    def cpu(*args: Any) -> Result:
        if library is None or args[0].dtype not in dtypes:
            return pure(*args)
        return native(*(arg.contiguous() if isinstance(arg, Tensor) else arg for arg in args))

    _operators.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    _operators.impl(name, cpu, "CPU")
    _operators.impl(name, pure, "CompositeExplicitAutograd")
    torch.library.register_fake(f"evalgrad::{name}", fake, lib=_operators)
    defined: Callable[..., Any] = getattr(torch.ops.evalgrad, name).default
    if by_rows:
        torch.library.register_vmap(f"evalgrad::{name}", _fold_into_rows(defined), lib=_operators)
    return defined


def _fold_into_rows(defined: Callable[..., Any]) -> Callable[..., Any]:
    def rule(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Any, Any]:
        def fold(arg: Any, dim: int | None) -> Any:
            if not isinstance(arg, Tensor):
                return arg
            batched = (
                arg.expand(info.batch_size, *arg.shape) if dim is None else arg.movedim(dim, 0)
            )
            return batched.flatten(0, 1)

        def unfold(result: Tensor) -> Tensor:
            return (
                result.unflatten(0, (info.batch_size, -1))
                if result.shape[0]
                else result.new_empty((info.batch_size, 0, *result.shape[1:]))
            )

        results = defined(*map(fold, args, in_dims))
        if isinstance(results, Tensor):
            return unfold(results), 0
        return tuple(map(unfold, results)), (0,) * len(results)

    return rule
