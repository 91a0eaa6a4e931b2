"""The sanitizer itself: broken kernels, most of which give the right result on the interpreter."""

import pytest
import torch
import triton
import triton.language as tl
from sanitizer import Trace


@triton.jit
def _sum(x, out, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x + i, mask=i < n + (KIND == "off by one"), other=0.0))
    if KIND == "race":
        tl.store(out, tl.load(out) + part)
    else:
        tl.atomic_add(out, part)


@triton.jit
def _reverse(x, out, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0) * n
    tl.store(out + row + i, tl.load(x + row + i, mask=i < n), mask=(i < n) | (KIND == "wrong mask"))
    if KIND != "missing barrier":
        tl.debug_barrier()
    reversed = tl.load(out + row + n - 1 - i, mask=i < n)
    tl.debug_barrier()
    tl.store(out + row + i, reversed, mask=i < n)


@triton.jit
def _share(x, out, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    place = i // 2 if KIND == "two lanes" else i
    tl.store(out + place, tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def _mix(x, out, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.atomic_add(out + i, tl.load(x + i, mask=i < n), mask=i < n)
    if KIND == "atomics and loads":
        tl.store(out + n + tl.program_id(0), tl.sum(tl.load(out + i, mask=i < n)))


def run(kernel, kind, programs, n=5):
    x, out = torch.arange(programs * n, dtype=torch.float32), torch.zeros(programs * n + programs)
    out = out[: n + programs] if kernel is _mix else out[: programs * n]
    with Trace() as trace:
        size = programs * n if kernel is _sum else n
        kernel[(programs,)](x, out, size, KIND=kind, BLOCK=8)
    return trace, x, out


@pytest.mark.parametrize(
    ("kernel", "kind", "finding"),
    [
        (_sum, "race", "races"),
        (_sum, "off by one", "out_of_bounds"),
        (_reverse, "wrong mask", "out_of_bounds"),
        (_reverse, "wrong mask", "races"),
        (_reverse, "missing barrier", "unbarriered"),
        (_share, "two lanes", "races"),
        (_mix, "atomics and loads", "races"),
    ],
)
def test_finds_what_is_broken(kernel, kind, finding):
    trace, _, _ = run(kernel, kind, 2)
    assert getattr(trace, finding) > 0, trace
    assert not trace.clean


@pytest.mark.parametrize("kernel", [_sum, _reverse, _mix])
def test_finds_nothing_else(kernel):
    trace, _, _ = run(kernel, "right", 2)
    assert trace.clean, trace


def test_broken_kernels_are_right_on_the_interpreter():
    """Which is why results alone prove nothing."""
    _, x, out = run(_sum, "race", 2)
    assert out[0] == x.sum()
    _, x, out = run(_reverse, "missing barrier", 2)
    assert torch.equal(out.view(2, 5), x.view(2, 5).flip(1))


def test_counts_bytes_launches_and_atomics():
    trace, _, _ = run(_sum, "right", 3)
    assert dict(trace.launches) == {"_sum": 3 // 3}
    # 15 numbers, and an atomic, read and written, per program
    assert (trace.read, trace.written, trace.atomics) == (4 * (15 + 3), 4 * 3, 3)
