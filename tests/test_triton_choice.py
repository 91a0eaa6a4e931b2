"""Which body serves an operator when the Triton kernels are switched on: they if they agree with
the torch core, otherwise the core, with a warning. With stand-ins: Triton itself is in tests/gpu.
"""

import sys
import types

import pytest
import torch

from evalgrad import _native, _triton


def core(x):
    return 2 * x, x.sum(0)


@pytest.fixture
def served(monkeypatch):
    """What serves the operator `double`, given the function that stands in for its kernels."""
    monkeypatch.setattr(_triton, "INTERPRETED", True)
    monkeypatch.setitem(sys.modules, "evalgrad._triton.stand_in", types.ModuleType("stand_in"))

    def make(kernel, **options):
        def double(x):
            double.calls += 1
            return kernel(x)

        double.calls = 0
        monkeypatch.setattr(_triton, "_implementations", {})
        _triton.implements(lambda dtype: (torch.arange(6.0, dtype=dtype).view(3, 2),), **options)(
            double
        )
        return _triton.serve("stand_in", "double", core), double

    return make


def test_kernels_that_agree_do_the_work(served):
    run, kernel = served(core)
    x = torch.randn(4, 2)
    for _ in range(2):
        assert torch.equal(run(x)[0], 2 * x)
    assert kernel.calls == 3  # one of them the comparison


@pytest.mark.parametrize(
    ("kernel", "problem"),
    [
        (lambda x: (2 * x + 1e-3, x.sum(0)), r"result 0 is off by 0.001 on a small example"),
        (lambda x: (2 * x, x.sum(0) * torch.nan), "result 1 is off by nan"),
        (lambda x: (2 * x, x.sum()), r"result 1 is torch.float32 \(\)"),
        (lambda x: (2 * x.double(), x.sum(0)), r"result 0 is torch.float64 \(3, 2\)"),
        (lambda x: None, "leaves its own example to the core"),
        (lambda x: 1 // 0, "it failed: ZeroDivisionError: integer division"),
    ],
)
def test_kernels_that_differ_do_not(served, kernel, problem):
    run, kernel = served(kernel)
    x = torch.randn(4, 2)
    expected = rf"Triton kernel double is not used on cpu for torch.float32: .*{problem}"
    with pytest.warns(RuntimeWarning, match=expected):
        assert torch.equal(run(x)[0], 2 * x)
    assert torch.equal(run(x)[0], 2 * x)  # without a second warning
    assert kernel.calls == 1


def test_the_core_does_what_kernels_leave_to_it(served):
    run, kernel = served(lambda x: None if len(x) == 1 else core(x))
    assert torch.equal(run(torch.ones(1, 2))[0], torch.full((1, 2), 2.0))
    assert kernel.calls == 2


def test_the_core_does_other_dtypes(served):
    run, kernel = served(core)
    assert run(torch.ones(3, 2, dtype=torch.float64))[0].dtype == torch.float64
    assert kernel.calls == 0


def test_every_dtype_is_compared_by_itself(served):
    run, kernel = served(core, dtypes=(torch.float32, torch.float64))
    for dtype in (torch.float32, torch.float64, torch.float32):
        run(torch.ones(3, 2, dtype=dtype))
    assert kernel.calls == 5


def test_kernels_get_contiguous_tensors(served):
    run, _ = served(lambda x: core(x) if x.is_contiguous() else None)
    x = torch.randn(2, 4).T
    assert torch.equal(run(x)[0], 2 * x)


def test_without_triton_a_sentence_says_what_to_install(served, monkeypatch):
    run, _ = served(core)
    monkeypatch.setitem(sys.modules, "evalgrad._triton.stand_in", None)
    with pytest.warns(RuntimeWarning, match=r"install it with `pip install '\.\[gpu\]'`"):
        run(torch.ones(3, 2))


def test_other_devices_have_the_core(served, monkeypatch):
    run, kernel = served(core)
    monkeypatch.setattr(_triton, "INTERPRETED", False)
    run(torch.ones(3, 2))
    assert kernel.calls == 0


def test_they_are_off_by_default():
    assert not _triton.ENABLED
    assert any(bodies.triton for bodies in _native.operators.values())
