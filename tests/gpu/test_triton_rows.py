"""The gradient times what arrives from above, by a Triton kernel in place: on the interpreter."""

import pytest
import torch
from broken import with_fault
from sanitizer import Trace

import evalgrad as eg
from evalgrad import _labels, _rows
from evalgrad._triton import rows as kernels

LENGTH = 5000  # two tiles


def draw(*upstream):
    gradient = torch.randn(len(upstream), LENGTH, generator=torch.Generator().manual_seed(0))
    return gradient, torch.tensor(upstream)


def differs(module):
    gradient, upstream = draw(0.5, 1.0, float("nan"), -2.0)
    expected = gradient * upstream[:, None]
    with Trace() as trace:
        found = module.scale_rows(gradient, upstream)
    return not torch.allclose(found, expected, equal_nan=True), trace


def test_multiplies_every_row_by_its_number():
    wrong, trace = differs(kernels)
    assert not wrong
    assert trace.clean, trace


def test_where_that_is_1_the_gradient_is_not_touched():
    gradient, upstream = draw(1.0, 1.0)
    with Trace() as trace:
        found = kernels.scale_rows(gradient, upstream)
    assert found is gradient
    assert (trace.read, trace.written) == (2 * 2 * 4, 0)  # a number for each of two tiles


def step(factor, monkeypatch, **options):
    """The gradient of a loss times a factor, which nothing looks at, as on a GPU."""
    x = torch.randn(1, 3, 400, generator=torch.Generator().manual_seed(0), requires_grad=True)
    target = torch.arange(400).view(1, 400) % 3
    loss = eg.lovasz_softmax_loss(x, target, bins=8) * factor
    monkeypatch.setattr(_rows, "readable", lambda _: False)
    with Trace() as trace:
        loss.backward(**options)
    monkeypatch.setattr(_rows, "readable", _labels.readable)
    return x.grad, trace


@pytest.mark.parametrize("factor", [1.0, 0.25])
def test_the_backward_pass_of_a_loss(monkeypatch, factor):
    step(factor, monkeypatch)  # the first use compares
    found, trace = step(factor, monkeypatch)
    assert dict(trace.launches) == {"_scale": 1}
    kept, trace = step(factor, monkeypatch, retain_graph=True)
    assert not trace.launches  # the gradient is needed again
    torch.testing.assert_close(found, kept)


def test_what_is_left_to_torch():
    assert kernels.scale_rows(torch.ones(3, 10), torch.ones(3)) is None
    assert kernels.scale_rows(torch.ones(0, 10), torch.ones(0)) is None
    assert kernels.scale_rows(torch.ones(1, 300), torch.ones(1).double()) is None


FAULTS = {
    "a number too many": ("tl.load(place, mask=i < n, other=0.0) * factor, mask=i < n)",
                          "tl.load(place, mask=i <= n, other=0.0) * factor, mask=i <= n)"),
    "the factor of the first row": ("tl.load(upstream + row)", "tl.load(upstream)"),
    "NaN is 1": ("if factor != 1:", "if (factor < 1) | (factor > 1):"),
    "the first tile alone": ("(tl.program_id(0) % tiles).to(tl.int64)", "0"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault, tmp_path):
    wrong, trace = differs(with_fault(tmp_path, "rows", *FAULTS[fault]))
    assert wrong or not trace.clean
