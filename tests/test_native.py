"""The bridge to the kernels: what may cross it, and what happens without them."""

import subprocess
import sys

import pytest
import torch

import evalgrad as eg
from evalgrad import _native
from evalgrad.lovasz.extension import extend_rows


@pytest.mark.skipif(_native.library is None, reason="built without kernels")
def test_raw_pointers_only_from_contiguous_cpu_tensors():
    with pytest.raises(RuntimeError, match="contiguous CPU tensors"):
        _native.call("lovasz_rows", torch.zeros(4, 4).T)
    with pytest.raises(RuntimeError, match="contiguous CPU tensors"):
        _native.call("lovasz_rows", torch.zeros(4, device="meta"))


def test_operator_takes_strided_tensors():
    x, front = torch.randn(6, 5), torch.rand(6, 5) > 0.5
    value, gradient = extend_rows(x.T, front.T, None, None, False)
    expected = extend_rows(x.T.contiguous(), front.T.contiguous(), None, None, False)
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
