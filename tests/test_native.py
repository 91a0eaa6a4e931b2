"""The bridge to the kernels: what may cross it, and what happens without them."""

import ctypes
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

import evalgrad as eg
from evalgrad import _native
from evalgrad.lovasz.extension import extend_rows
from evalgrad.s_measures.surrogate_errors import SURROGATES, error_totals

CSRC = Path(__file__).parents[1] / "csrc"
native_only = pytest.mark.skipif(_native.library is None, reason="built without kernels")


def rows_arguments(rows=1, n=4):
    """What `lovasz_rows` takes: errors, foreground, mask, factor, sizes, hinge, bins, the weights
    of misses and false alarms, results.
    """
    x = torch.rand(rows, n)
    results = x.new_empty(rows), torch.empty_like(x)
    return [x, x > 0.5, None, torch.ones(rows), rows, n, 0, 0, 1.0, 1.0, *results]


def declared(kernel, text):
    """The letters of csrc/common/kernel.h for the declaration of a C++ function."""
    own = {"F": "float", "D": "double"}.get(kernel.types[0], "")
    letters = []
    for argument in text.split(","):
        optional, kind, star = re.fullmatch(
            r"\s*(Optional<)?(?:const )?(\w+)>?(\*)? ?\w*\s*", argument
        ).groups()
        kind = own if kind == "T" else kind
        tensor = {"float": "F", "double": "D", "int64_t": "L", "uint8_t": "B"}
        number = {"double": "r", "int64_t": "i"}
        letter = tensor[kind] if star or optional else number[kind]
        letters.append(letter.lower() if optional else letter)
    return "".join(letters)


@native_only
def test_the_table_is_what_the_headers_declare():
    table = (CSRC / "kernels.cpp").read_text()
    pairs = re.findall(r'kernel<(\w+)::(\w+)>\("(\w+)"\)', table)
    pairs += [(n, f, k) for k, n, f in re.findall(r'BOTH\("(\w+)", (\w+)::(\w+)\)', table)]
    functions = {name: (folder, function) for folder, function, name in pairs}
    assert functions.keys() == {name for name, _ in _native.kernels}
    for (name, _), kernel in _native.kernels.items():
        folder, function = functions[name]
        header = (CSRC / folder / "kernels.h").read_text()
        (arguments,) = re.findall(rf"void {function}\(([^)]*)\);", header)
        assert kernel.types + "i" == declared(kernel, arguments), name


@native_only
def test_kernels_of_both_widths_differ_in_the_width_alone():
    names = [name for name, _ in _native.kernels]
    for name in {name for name in names if names.count(name) == 2}:
        single, double = (_native.kernels[name, dtype] for dtype in _native.FLOATS)
        assert single.types.replace("F", "D").replace("f", "d") == double.types


@native_only
@pytest.mark.parametrize(
    ("place", "given", "message"),
    [
        (
            1,
            torch.zeros(1, 4, dtype=torch.uint8),
            "argument 1 must be .* torch.bool, got torch.uint8",
        ),
        (1, None, "argument 1 must be .* got None"),
        (1, 3, "argument 1 must be .* got 3"),
        (3, torch.ones(1).double(), "argument 3 must be .* torch.float32"),
        (11, torch.zeros(4, 8)[:, ::2], "contiguous CPU tensor"),
        (11, torch.zeros(1, 4, device="meta"), "contiguous CPU tensor"),
    ],
)
def test_raw_pointers_only_from_the_tensors_a_kernel_takes(place, given, message):
    arguments = rows_arguments()
    arguments[place] = given
    with pytest.raises(TypeError, match=message):
        _native.call("lovasz_rows", *arguments)


@native_only
@pytest.mark.parametrize("change", [lambda a: a[:-1], lambda a: [*a, 1]])
def test_number_of_arguments(change):
    with pytest.raises(TypeError, match="takes 12 arguments"):
        _native.call("lovasz_rows", *change(rows_arguments()))


@native_only
def test_numbers_are_of_the_kind_a_kernel_takes():
    arguments = rows_arguments()
    arguments[5] = 4.0
    with pytest.raises(ctypes.ArgumentError):
        _native.call("lovasz_rows", *arguments)


LIMITED_MEMORY = """
import os, resource, torch
from evalgrad import _native
torch.set_num_threads({threads})

def call(n):
    x = torch.rand(2, n)
    arguments = x, x > 0.5, None, None, 2, n, 0, 0, 1.0, 1.0, torch.zeros(2), torch.zeros(2, n)
    return lambda: _native.call("lovasz_rows", *arguments)

call(2**16)()  # threads take memory, too
large = call(2**23)
if {fork} and os.fork():
    os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + 2**24
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    large()
except MemoryError as error:
    print(error, flush=True)
"""


@native_only
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("threads", "fork"), [(1, False), (2, False), (2, True)])
def test_out_of_memory_is_an_exception(threads, fork):
    """With little more memory than the process has, a kernel finds none for itself.

    Two threads are torch's or, after a fork, the kernel's own.
    """
    code = LIMITED_MEMORY.format(threads=threads, fork=fork)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "kernel lovasz_rows: out of memory", result.stderr
    assert result.returncode == 0


@native_only
def test_other_exceptions_keep_their_text():
    """A vector longer than any memory is no matter of memory: std::length_error."""
    x = torch.zeros(1, 1)
    target = torch.zeros(1, dtype=torch.int64)
    sizes = (1, 2**62, 2**61)
    with pytest.raises(RuntimeError, match=r"kernel topk_hinge: .*vector"):
        _native.call("topk_hinge", x, target, torch.ones(1), *sizes, 1.0, torch.zeros(1), x.clone())


@native_only
@pytest.mark.parametrize("dtype", _native.FLOATS)
def test_smooth_topk_at_any_address(dtype):
    """The vectors of a clang build once asked for addresses of whole vectors, and crashed."""
    rows, classes, k = 5, 300, 4
    scores, target = torch.randn(rows, classes, dtype=dtype), torch.arange(rows)
    results = []
    for shift in range(9):
        x, gradient = (torch.zeros(rows * classes + shift, dtype=dtype)[shift:] for _ in "ab")
        x.copy_(scores.flatten())
        value, ones = torch.zeros(rows, dtype=dtype), torch.ones(rows, dtype=dtype)
        _native.call("smooth_topk", x, target, ones, rows, classes, k, 1.0, 1.0, value, gradient)
        results.append((value, gradient))
    for value, gradient in results[1:]:
        assert torch.equal(value, results[0][0])
        assert torch.equal(gradient, results[0][1])


def _totals(x, positive):
    return error_totals(x[0], positive[0], x.new_tensor([-0.5, 0.5]), SURROGATES["hinge"])


@pytest.mark.parametrize(
    "loss",
    [
        *(eg.lovasz_hinge_loss, partial(eg.lovasz_hinge_loss, bins=64)),
        *(eg.jaccard_lovasz_extension, eg.direct_average_precision_loss, eg.direct_jaccard_loss),
        *(lambda x, positive: eg.FBeta()(x[0], positive[0]), _totals),
    ],
)
@pytest.mark.parametrize("items", [100, 70_000])
def test_a_bool_is_true_by_any_byte_but_0(loss, items):
    """`mask.view(torch.bool)` of an image with 0 and 255 is a bool tensor that torch reads so."""
    x = torch.randn(1, items)
    positive = x + torch.randn(1, items) > 0
    mark = 1 + torch.arange(items, dtype=torch.uint8) % 255
    other = (positive * mark).view(torch.bool)
    assert torch.equal(other, positive)
    assert torch.equal(loss(x, other), loss(x, positive))


def test_operator_takes_strided_tensors():
    x, front = torch.randn(6, 5), torch.rand(6, 5) > 0.5
    value, gradient = extend_rows(x.T, front.T, None, None, False, 1.0, 1.0)
    rows = x.T.contiguous(), front.T.contiguous()
    expected = extend_rows(*rows, None, None, False, 1.0, 1.0)
    assert torch.equal(value, expected[0])
    assert torch.equal(gradient, expected[1])


@pytest.mark.usefixtures("pure")
def test_everything_works_without_kernels():
    logits = torch.randn(2, 5, 8, requires_grad=True)
    eg.lovasz_softmax_loss(logits, torch.randint(5, (2, 8))).backward()
    assert logits.grad.isfinite().all()


def test_import_pulls_in_torch_alone():
    """The library's runtime dependency is torch; the lab's are extra."""
    extras = {"sklearn", "scipy", "matplotlib", "lightning", "torchmetrics"}
    code = f"import sys, evalgrad; print({extras} & set(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "set()"
