"""Seeded faults in the Triton kernels of the Lovász losses and of loss max-pooling, which the
comparison with the torch core or the sanitizer must find.
"""

import pytest
import torch
from broken import with_fault
from sanitizer import Trace

from evalgrad import _native
from evalgrad._triton.lovasz_errors import class_maps, hinge_rows

METRIC = (0.7, 0.4)


def _generator():
    return torch.Generator().manual_seed(0)


def softmax_bins(module):
    x = torch.randn(1, 2, 3, 300, generator=_generator())
    label = torch.randint(-1, 3, (1, 2, 300), generator=_generator())
    factor = torch.tensor([[0.5, 1.0, 1.5]])
    expected = _native.operators["lovasz_softmax_bins"].pure(x, label, factor, 20, *METRIC)
    return lambda: module.in_bins(class_maps(x, label), factor, 20, *METRIC), expected


def hinge_bins(module):
    x = torch.randn(2, 300, generator=_generator())
    foreground = torch.rand(2, 300, generator=_generator()) < 0.3
    x[foreground] += 1.0
    factor = torch.tensor([0.5, 1.0])
    expected = _native.operators["lovasz_hinge_bins"].pure(x, foreground, None, factor, 20, *METRIC)
    return lambda: module.in_bins(hinge_rows(x, foreground, None), factor, 20, *METRIC), expected


def pooling(module):
    losses = torch.rand(3, 300, generator=_generator()).square()
    mask = torch.rand(3, 300, generator=_generator()) < 0.8
    losses[2, 7], mask[2, 7] = torch.nan, True
    arguments = (losses, mask, 1.3, 0.25)
    expected = _native.operators["loss_max_pooling"].pure(*arguments)
    return lambda: module.loss_max_pooling(*arguments), expected


def findings(run, expected):
    with Trace() as trace:
        found = run()
    wrong = not all(
        torch.allclose(mine, theirs, rtol=1e-5, atol=1e-6, equal_nan=True)
        for mine, theirs in zip(found, expected, strict=True)
    )
    return wrong, trace


# the file, what is run, what is right, what is wrong
FAULTS = {
    "a bin too many": (
        "lovasz_bins", softmax_bins, "-scale * of_front, mask=i < bins)",
        "-scale * of_front, mask=i <= bins)",
    ),
    "ahead of itself": (
        "lovasz_bins", softmax_bins, "a + tl.cumsum(f) - f", "a + tl.cumsum(f)"
    ),
    "a gradient beyond the image": (
        "lovasz_bins", softmax_bins, "HINGE, CLASSES), mask=inside)",
        "HINGE, CLASSES), mask=place >= 0)",
    ),
    "bins from below": (
        "lovasz_bins", softmax_bins, "return bins - 1 - tl.where(", "return tl.where("
    ),
    "foreground without a loss is forgotten": (
        "lovasz_bins", hinge_bins, "P += tl.load(without + row)", "P += 0"
    ),
    "the losses of all rows are counted in one": (
        "loss_max_pooling", pooling, "slot = row * SLOTS + (", "slot = ("
    ),
    "a loss too many": ("loss_max_pooling", pooling, "inside = i < n", "inside = i <= n"),
    "masked losses count": (
        "loss_max_pooling", pooling, "mask=inside, other=0) != 0", "mask=inside, other=0) >= 0"
    ),
    "two digits are missing": (
        "loss_max_pooling", pooling, "((20, 2048), (10, 1024), (0, 1024))", "((20, 2048),)"
    ),
    "NaN is overlooked": (
        "loss_max_pooling", pooling, "tl.where(nan > 0, -1,", "tl.where(nan > 9, -1,"
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault, tmp_path):
    file, prepare, right, wrong = FAULTS[fault]
    differs, trace = findings(*prepare(with_fault(tmp_path, file, right, wrong)))
    assert differs or not trace.clean


@pytest.mark.parametrize("prepare", [softmax_bins, hinge_bins, pooling])
def test_without_a_fault_nothing_is_found(prepare, tmp_path):
    file = "loss_max_pooling" if prepare is pooling else "lovasz_bins"
    differs, trace = findings(
        *prepare(with_fault(tmp_path, file, "import torch\n", "import torch\n"))
    )
    assert not differs
    assert trace.clean, trace
