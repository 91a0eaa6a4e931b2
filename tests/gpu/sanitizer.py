"""Memory and races of Triton kernels, and the bytes that they touch, on Triton's interpreter.

The interpreter runs programs one after the other, and a program's lanes at once: a race, a load of
what was stored without a barrier between, and a mask that lets one element too many through still
give the right result there. So this looks at every address:

    with Trace() as trace:
        kernel[grid](...)
    assert trace.clean, trace

An access outside the tensors of a launch is counted and not carried out. TRITON_INTERPRET must be
set before triton is imported. The interpreter's classes are private; as of triton 3.9.
"""

import collections
from contextlib import ExitStack, contextmanager
from unittest import mock

import numpy as np
import torch
from triton.runtime import interpreter

Builder, Grid = interpreter.InterpreterBuilder, interpreter.GridExecutor


def _addresses(pointers, mask):
    pointers, mask = np.broadcast_arrays(pointers, mask)
    return pointers[mask].ravel()


def _size(pointers):
    return np.dtype(interpreter._get_np_dtype(pointers.get_element_ty())).itemsize


def _as_method(hook, original):
    return lambda own, *args, **options: hook(original, own, *args, **options)


def scan_by_doubling(scan, given):
    """In the place of the interpreter's scan with a function, which goes from element to element
    and takes minutes: the same by doubling, as a GPU does it.
    """
    data, shift = [tensor.handle.data for tensor in given], 1
    place = np.arange(data[0].shape[scan.axis])
    while shift < place.size:
        early = [np.roll(d, shift, scan.axis) for d in data]
        parts = [scan.to_tensor(d, t.dtype) for d, t in zip(early + data, [*given, *given])]
        found = scan.combine_fn.fn(*parts)
        found = found if isinstance(found, tuple) else (found,)
        begun = np.expand_dims(place >= shift, [a for a in range(data[0].ndim) if a != scan.axis])
        data = [np.where(begun, new.handle.data, old) for new, old in zip(found, data)]
        shift *= 2
    return [scan.to_tensor(d, t.dtype) for d, t in zip(data, given)]


@contextmanager
def quick_interpreter():
    """Triton's interpreter in a fraction of its time: it makes the language its own again at every
    call of a function, where once a launch will do.
    """
    original, launch, known = interpreter._patch_lang, Grid.__call__, set()

    def patch_lang(function):
        if id(function.__globals__) in known:
            return None
        known.add(id(function.__globals__))
        return original(function)

    def begin(grid, *args, **options):
        known.clear()
        return launch(grid, *args, **options)

    with (
        mock.patch.object(interpreter, "_patch_lang", patch_lang),
        mock.patch.object(Grid, "__call__", begin),
        mock.patch.object(interpreter.ScanOps, "generic_scan", scan_by_doubling),
    ):
        yield


class Trace:
    """What went wrong in all launches inside the `with`, counted, and what they cost.

    `read` and `written` are bytes; an atomic is a read and a write. Lanes of one instruction share
    what they read, as they share a transaction; otherwise nothing is taken to be cached.
    """

    def __init__(self):
        self.launches = collections.Counter()  # by the kernel's name
        self.read = self.written = self.atomics = 0
        self.out_of_bounds = self.races = self.unbarriered = 0

    @property
    def clean(self):
        return not (self.out_of_bounds or self.races or self.unbarriered)

    @property
    def bytes(self):
        return self.read + self.written

    def __str__(self):
        return (
            f"{dict(self.launches)}: {self.read} bytes read, {self.written} written,"
            f" {self.atomics} atomics; out of bounds {self.out_of_bounds}, races {self.races},"
            f" loads of what was stored without a barrier {self.unbarriered}"
        )

    def __enter__(self):
        self._stack = ExitStack()
        hooks = [
            (Builder, "create_masked_load", self._load),
            (Builder, "create_masked_store", self._store),
            (Builder, "create_atomic_rmw", self._atomic),
            (Builder, "create_atomic_cas", self._exchange),
            (Builder, "create_barrier", self._barrier),
            (Builder, "set_grid_idx", self._program),
            (Grid, "_init_args_hst", self._begin),
            (Grid, "__call__", self._launch),
        ]
        self._stack.enter_context(quick_interpreter())
        for owner, name, hook in hooks:
            patched = _as_method(hook, getattr(owner, name))
            self._stack.enter_context(mock.patch.object(owner, name, patched))
        return self

    def __exit__(self, *error):
        self._stack.close()

    # ---- a launch, and its programs

    def _launch(self, original, grid, *args, **options):
        self.launches[grid.fn.__name__] += 1
        result = original(grid, *args, **options)
        self._between_programs()
        return result

    def _begin(self, original, grid, args, options):
        tensors = [t for t in [*args, *options.values()] if isinstance(t, torch.Tensor)]
        self._ranges = [(t.data_ptr(), t.data_ptr() + t.nbytes) for t in tensors]
        self._reads, self._writes, self._added = [], [], []
        return original(grid, args, options)

    def _program(self, original, builder, x, y, z):
        self._current, self._unseen = (x, y, z), []
        return original(builder, x, y, z)

    def _barrier(self, original, builder):
        self._unseen.clear()
        return original(builder)

    # ---- its accesses

    def _load(self, original, builder, pointers, mask, *rest):
        mask = self._inside(pointers, mask)
        places = np.unique(_addresses(pointers.data, mask.data))
        self.read += places.size * _size(pointers)
        self._reads.append((self._current, places))
        self.unbarriered += any(_meet(places, stored) for stored in self._unseen)
        return original(builder, pointers, mask, *rest)

    def _store(self, original, builder, pointers, value, mask, *rest):
        mask = self._inside(pointers, mask)
        every = _addresses(pointers.data, mask.data)
        places = np.unique(every)
        self.races += places.size < every.size  # two lanes store to one place
        self.written += places.size * _size(pointers)
        self._writes.append((self._current, places))
        self._unseen.append(places)
        return original(builder, pointers, value, mask, *rest)

    def _atomic(self, original, builder, operation, pointers, value, mask, *rest):
        mask = self._inside(pointers, mask)
        self._charge_atomic(pointers, mask.data)
        return original(builder, operation, pointers, value, mask, *rest)

    def _exchange(self, original, builder, pointers, *rest):
        self._charge_atomic(pointers, np.ones_like(pointers.data, bool))
        return original(builder, pointers, *rest)

    def _charge_atomic(self, pointers, mask):
        every = _addresses(pointers.data, mask)
        self.atomics += every.size
        self.read += every.size * _size(pointers)
        self.written += every.size * _size(pointers)
        self._added.append(np.unique(every))

    def _inside(self, pointers, mask):
        """The mask without what is outside the tensors of the launch."""
        places, wanted = np.broadcast_arrays(pointers.data, mask.data)
        inside = np.zeros(places.shape, bool)
        for low, high in self._ranges:
            inside |= (places >= low) & (places + _size(pointers) <= high)
        self.out_of_bounds += int((wanted & ~inside).sum())
        return interpreter.TensorHandle(wanted & inside, mask.dtype)

    def _between_programs(self):
        """Places that one program writes and another reads or writes in the same launch; atomics
        mixed with plain accesses.
        """
        written, writer = _joined(self._writes)
        read, reader = _joined(self._reads)
        order = np.lexsort((writer, written))
        written, writer = written[order], writer[order]
        self.races += int(((np.diff(written) == 0) & (np.diff(writer) != 0)).sum())
        if written.size:
            found = np.minimum(np.searchsorted(written, read), written.size - 1)
            self.races += int(((written[found] == read) & (writer[found] != reader)).sum())
        added = np.unique(np.concatenate(self._added)) if self._added else written[:0]
        self.races += int(np.isin(added, read).sum() + np.isin(added, written).sum())


def _meet(places, others):
    """Whether two sorted arrays share a place; mostly their ranges already do not meet."""
    if not (places.size and others.size) or places[-1] < others[0] or others[-1] < places[0]:
        return False
    return bool(np.isin(places, others).any())


def _number(program):
    x, y, z = program
    return (x << 32) + (y << 16) + z


def _joined(accesses):
    """Places, and the program of each."""
    if not accesses:
        return np.zeros(0, np.uint64), np.zeros(0, np.int64)
    numbers = [np.full(places.size, _number(program)) for program, places in accesses]
    return np.concatenate([places for _, places in accesses]), np.concatenate(numbers)
