"""Kernels for GPUs in Triton: which operators they serve, and whether they can be trusted.

One file per system, which imports triton and is imported at its first use. Its functions have the
names of the operators and of the C++ kernels. Decorated with `implements`, they take what the
operator takes and return what it returns, or None for an input that they leave to the torch core.

They are off unless the environment says EVALGRAD_TRITON=1 when evalgrad is imported: they have run
on Triton's interpreter and were compiled for GPUs, but no run on a GPU is on record. And even then
the first use of a kernel on a device compares it with the torch core on a small example; where
the two differ, a warning says so and the core does the work.

With TRITON_INTERPRET=1 besides, Triton's own switch, they serve CPU tensors too: the tests do that.
"""

import importlib
import os
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

Result = tuple[Tensor, ...] | Tensor

ENABLED = os.environ.get("EVALGRAD_TRITON") == "1"
INTERPRETED = ENABLED and os.environ.get("TRITON_INTERPRET") == "1"

# For every launch: a product is rounded before it is added to, as in the torch cores, so that two
# kernels that compute the same number agree on it.
ROUNDED = {"enable_fp_fusion": False}


class Implementation(NamedTuple):
    """An operator by Triton kernels."""

    run: Callable[..., Result | None]
    example: Callable[[torch.dtype], tuple[Any, ...]]
    dtypes: tuple[torch.dtype, ...]


_implementations: dict[str, Implementation] = {}


def implements(
    example: Callable[[torch.dtype], tuple[Any, ...]],
    dtypes: tuple[torch.dtype, ...] = (torch.float32,),
) -> Callable[[Callable[..., Result | None]], Callable[..., Result | None]]:
    """Make a function the implementation of the operator of its name.

    Args:
        example: small arguments on the CPU for the first comparison, the first tensor of the dtype
            given: without ties, and far from where rounding decides.
        dtypes: of the first tensor; others are left to the torch core.
    """

    def register(run: Callable[..., Result | None]) -> Callable[..., Result | None]:
        _implementations[run.__name__] = Implementation(run, example, dtypes)
        return run

    return register


def implementation(system: str, name: str) -> Implementation:
    """The one of that operator, from the file of its system, which needs triton."""
    importlib.import_module(f"evalgrad._triton.{system}")
    return _implementations[name]


def serve(system: str, name: str, pure: Callable[..., Result]) -> Callable[..., Result]:
    """The operator by Triton kernels where they are trusted, and by its torch core elsewhere."""
    verdicts: dict[tuple[torch.device, torch.dtype], bool] = {}

    def run(*args: Any) -> Result:
        device, dtype = args[0].device, args[0].dtype
        if not (INTERPRETED or device.type == "cuda"):  # as torch calls AMD's devices too
            return pure(*args)
        if (device, dtype) not in verdicts:
            if _capturing(device):  # a CUDA graph, which must not hold the comparison
                return pure(*args)
            verdicts[device, dtype] = _trusted(system, name, pure, device, dtype)
        result = None
        if verdicts[device, dtype]:
            with torch.cuda.device_of(args[0]):  # where Triton launches
                result = _implementations[name].run(*map(_contiguous, args))
        return pure(*args) if result is None else result

    return run


def _contiguous(arg: Any) -> Any:
    return arg.contiguous() if isinstance(arg, Tensor) else arg


def _capturing(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _trusted(
    system: str,
    name: str,
    pure: Callable[..., Result],
    device: torch.device,
    dtype: torch.dtype,
) -> bool:
    """Whether the kernels do as the core does on a small example; warns if they do not."""
    try:
        found = implementation(system, name)
        if dtype not in found.dtypes:
            return False
        args = [a.to(device) if isinstance(a, Tensor) else a for a in found.example(dtype)]
        expected = pure(*args)  # first: a kernel may work in place
        with torch.cuda.device_of(args[0]):
            result = found.run(*args)
        problem = _difference(result, expected)
    except ImportError as error:
        problem = f"{error}; install it with `pip install '.[gpu]'` in a clone"
    except Exception as error:  # whatever a compiler or a driver has to say
        problem = f"it failed: {type(error).__name__}: {error}"
    if problem:
        warnings.warn(
            f"evalgrad: the Triton kernel {name} is not used on {device} for {dtype}: {problem}."
            " The torch core does the work; unset EVALGRAD_TRITON to silence this.",
            RuntimeWarning,
            stacklevel=3,
        )
    return not problem


def _difference(result: Result | None, expected: Result) -> str:
    """What is wrong with a result, "" if nothing: within 1e-4 of the largest, as sums are taken in
    another order.
    """
    if result is None:
        return "it leaves its own example to the core"
    one = isinstance(result, Tensor)
    pairs = [(result, expected)] if one else zip(result, expected, strict=True)
    for place, (mine, theirs) in enumerate(pairs):
        if (mine.shape, mine.dtype) != (theirs.shape, theirs.dtype):
            return f"result {place} is {mine.dtype} {tuple(mine.shape)}"
        off = (mine.double() - theirs.double()).abs()
        if not bool((off <= 1e-4 * theirs.double().abs().amax()).all()):
            return f"result {place} is off by {off.amax().item():.3g} on a small example"
    return ""
