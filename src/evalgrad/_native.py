"""The C++ kernels: loading them, calling them, and defining an operator that PyTorch can compile,
vmap and export.

The library carries a table of its kernels (csrc/kernels.cpp) with the type of every argument,
written down by the compiler. `call` checks what it is given against that table, because a raw
pointer checks nothing later.

An operator here is a function of canonical tensors. Every tensor it takes or returns has
*rows* as its first axis and treats each row by itself; that is why one vmap rule, folding the new
axis into the rows, serves all of them. The few that are not so, `by_rows=False`, have none.
"""

import ctypes
import struct
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from evalgrad import _triton
from evalgrad._triton import Result

FLOATS = (torch.float32, torch.float64)

# The letters of csrc/common/kernel.h. A small one stands for a tensor that may be left out.
_DTYPES = {"F": torch.float32, "D": torch.float64, "L": torch.int64, "B": torch.bool}
_NUMBERS: dict[str, Any] = {"i": ctypes.c_int64, "r": ctypes.c_double}
_NO_MEMORY = 1  # kNoMemory there


class _Entry(ctypes.Structure):
    """A line of the library's table."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("types", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
    )


class Kernel:
    """A C function and what it takes: `types`, a letter per argument, the threads left out."""

    def __init__(self, name: str, types: str, address: int) -> None:
        self.name, self.types, self.arity = name, types[:-1], len(types) - 1
        kinds = [_NUMBERS.get(letter, ctypes.c_void_p) for letter in types]
        self.function = ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(address)
        self.tensors = [
            (place, _DTYPES[letter.upper()], letter.islower())
            for place, letter in enumerate(self.types)
            if letter not in _NUMBERS
        ]

    def refuse(self, place: int, given: object) -> NoReturn:
        """Say what is wrong with an argument; a mistake of this house, not of its user."""
        expected = _DTYPES[self.types[place].upper()]
        found = repr(given)
        if isinstance(given, Tensor):
            found = f"{given.dtype} with strides {given.stride()} on {given.device}"
        raise TypeError(
            f"kernel {self.name}: argument {place} must be a contiguous CPU tensor of {expected},"
            f" got {found}"
        )


Table = dict[tuple[str, torch.dtype], Kernel]
# Check sum of the names and types of all kernels: a library that has others is of another build.
TABLE = 0x747DF1C8
_SLOW = "On the CPU the losses run in plain torch, several times slower."


def _load() -> tuple[ctypes.CDLL, Table] | tuple[None, Table]:
    """The library and its table. Without a library that fits, none and a warning: the pure-torch
    cores then do all the work.
    """
    # not __file__: an editable install keeps the library elsewhere
    for entry in files("evalgrad").iterdir():
        if entry.name in ("_kernels.so", "_kernels.dylib", "_kernels.dll"):
            try:
                _check_whole(entry.read_bytes())
                library = ctypes.CDLL(str(entry))
                return library, _read_table(library)
            except (OSError, AttributeError, ValueError) as error:
                said = f"{entry} is broken or of another version ({error}). {_SLOW}"
                warnings.warn(f"evalgrad: {said} Reinstall evalgrad.", RuntimeWarning, stacklevel=2)
                return None, {}
    said = f"there are no compiled kernels. {_SLOW} Reinstall evalgrad with a C++ compiler."
    warnings.warn(f"evalgrad: {said}", RuntimeWarning, stacklevel=2)
    return None, {}


def _check_whole(content: bytes) -> None:
    """A library of Linux that was cut off would kill the process when it is loaded."""
    if content[:6] == b"\x7fELF\x02\x01":  # 64 bits, little-endian
        header = content[:64].ljust(64, b"\xff")  # of a shorter file, sections beyond its end
        (sections,) = struct.unpack_from("<Q", header, 40)
        size, count = struct.unpack_from("<HH", header, 58)
        if sections + size * count > len(content):
            raise ValueError("it is cut off")


def _read_table(library: ctypes.CDLL) -> Table:
    """The kernels by name and dtype of their first tensor."""
    library.evalgrad_kernels.restype = ctypes.POINTER(_Entry)
    library.evalgrad_error.restype = ctypes.c_char_p
    lines = []
    for entry in library.evalgrad_kernels():
        if not entry.name:
            break
        lines.append((entry.name.decode(), entry.types.decode(), entry.function))
    crc = zlib.crc32("".join(f"{name} {types};" for name, types, _ in lines).encode())
    if crc != TABLE:  # before the letters are read: another build may have others
        raise ValueError(f"its table is {crc:#010x}, not {TABLE:#010x}")
    return {(name, _DTYPES[types[0]]): Kernel(name, types, at) for name, types, at in lines}


library, kernels = _load()

_operators = torch.library.Library("evalgrad", "DEF")
_open = False  # see `open_operators`


class Bodies(NamedTuple):
    """Who does the work of an operator: on CPU `native`, on GPUs the kernels in the file `triton`
    of `_triton` if they are switched on, everywhere else and as the peer of both `pure`.
    """

    pure: Callable[..., Result]
    native: Callable[..., Result]
    triton: str | None


operators: dict[str, Bodies] = {}


def call(name: str, first: Tensor, *rest: Tensor | int | float | None) -> None:
    """Call the kernel of that name for the dtype of its first tensor.

    Args:
        name: as in csrc/kernels.cpp.
        first: the tensor that chooses between float and double.
        rest: what the C++ function takes, but for the number of threads, which goes last: tensors,
            None for one that may be left out, and numbers.
    """
    kernel = kernels[name, first.dtype]
    values: list[Any] = [first, *rest]
    if len(values) != kernel.arity:
        raise TypeError(f"kernel {name}: takes {kernel.arity} arguments, got {len(values)}")
    for place, dtype, optional in kernel.tensors:
        given = values[place]
        if given is None and optional:
            continue
        if not (
            isinstance(given, Tensor)
            and given.dtype is dtype
            and given.is_cpu
            and given.is_contiguous()
        ):
            kernel.refuse(place, given)
        values[place] = given.data_ptr()
    status = kernel.function(*values, torch.get_num_threads())
    if status:
        _raise(name, status)


def _raise(name: str, status: int) -> NoReturn:
    assert library is not None
    text = f"kernel {name}: {library.evalgrad_error().decode()}"
    raise MemoryError(text) if status == _NO_MEMORY else RuntimeError(text)


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
    traceable: bool = True,
    triton: str | None = None,
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
        traceable: False for a core that looks at values or loops over items, which a compiler
            cannot follow or would unroll.
        triton: file of `evalgrad._triton` with a function of the operator's name, for GPUs.
    """
    name = schema.partition("(")[0]
    operators[name] = Bodies(pure, native, triton)
    elsewhere = _triton.serve(triton, name, pure) if triton and _triton.ENABLED else pure

    def cpu(*args: Any) -> Result:
        if library is None or args[0].dtype not in dtypes:
            return pure(*args)
        given = list(args)
        for place, arg in enumerate(args):
            # asked first: `contiguous` goes through the dispatcher even where it has nothing to do
            if isinstance(arg, Tensor) and not arg.is_contiguous():
                given[place] = arg.contiguous()
        return native(*given)

    _operators.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    interpreted = elsewhere is not pure and _triton.INTERPRETED
    _operators.impl(name, elsewhere if interpreted else cpu, "CPU")
    _operators.impl(name, elsewhere, "CompositeExplicitAutograd")
    torch.library.register_fake(f"evalgrad::{name}", fake, lib=_operators)
    defined: Callable[..., Any] = getattr(torch.ops.evalgrad, name).default
    if by_rows:
        torch.library.register_vmap(f"evalgrad::{name}", _fold_into_rows(defined), lib=_operators)
    # Where Triton kernels are switched on, a compiler calls them too.
    return _seen_through(defined, pure, traceable and elsewhere is pure)


def _seen_through(
    defined: Callable[..., Any], pure: Callable[..., Result], traceable: bool
) -> Callable[..., Any]:
    """The operator, but off the CPU a compiler sees the core, which it can fuse with all around."""

    def called(*args: Any) -> Any:
        if args[0].is_cpu or not (_open or (traceable and torch.compiler.is_compiling())):
            return defined(*args)
        # Under vmap the operator has its rule. torch has no public name for this question.
        return (defined if torch._C._are_functorch_transforms_active() else pure)(*args)

    return called


@contextmanager
def open_operators() -> Iterator[None]:
    """Within, calls off the CPU are the operations of the cores, and on meta tensors too, where an
    operator would give empty results: so that what an accelerator would do can be counted.
    """
    global _open
    before, _open = _open, True
    try:
        yield
    finally:
        _open = before


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
