"""Every operator by its Triton kernels, on the interpreter: it agrees with the torch core, and the
sanitizer finds nothing.
"""

import pytest
import torch
from draws import DRAWS
from hypothesis import given, settings
from hypothesis import strategies as st
from sanitizer import Trace

from evalgrad import _native, _triton

SERVED = {name: bodies for name, bodies in _native.operators.items() if bodies.triton is not None}
every_operator = pytest.mark.parametrize("name", SERVED)


def both(name, args):
    """Results of the kernels and of the core, and the trace of the kernels."""
    bodies = SERVED[name]
    with Trace() as trace:
        found = _triton.implementation(bodies.triton, name).run(*args)
    assert found is not None, "left to the core"
    expected = bodies.pure(*args)
    if isinstance(found, torch.Tensor):
        return [found], [expected], trace
    return found, expected, trace


# The exact losses take errors as tied where that is expected to move the gradient by less than 3e-5
# of its norm, as the C++ kernels do.
TIED = {"lovasz_softmax": 6e-5, "lovasz_rows": 6e-5}


def close(name, found, expected):
    for mine, theirs in zip(found, expected, strict=True):
        scale = theirs.double().abs().nan_to_num(0).amax().item() if theirs.numel() else 0
        if name in TIED and theirs.ndim > 1:
            assert (mine - theirs).norm() <= TIED[name] * theirs.norm()
        else:
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=2e-6 * scale, equal_nan=True)


def test_every_operator_is_drawn():
    assert SERVED.keys() == DRAWS.keys()


@every_operator
def test_the_example_runs_on_the_kernels(name):
    example = _triton.implementation(SERVED[name].triton, name).example(torch.float32)
    found, expected, trace = both(name, example)
    close(name, found, expected)
    assert sum(trace.launches.values()) > 0
    assert trace.clean, trace


@every_operator
@settings(max_examples=8)
@given(data=st.data())
def test_agrees_with_the_core_and_touches_what_it_may(name, data):
    found, expected, trace = both(name, data.draw(DRAWS[name]))
    close(name, found, expected)
    assert sum(trace.launches.values()) > 0
    assert trace.clean, trace


@every_operator
def test_the_operator_itself_runs_the_kernels(name):
    """On CPU tensors, as TRITON_INTERPRET is set."""
    example = _triton.implementation(SERVED[name].triton, name).example(torch.float32)
    operator = getattr(torch.ops.evalgrad, name)
    operator(*example)  # which compares first
    with Trace() as trace:
        operator(*example)
    assert sum(trace.launches.values()) > 0


def test_pixels_without_a_hinge_loss_are_no_ties():
    """Taken for ties, they would use up the lists: here an error of 0.4 % of the norm."""
    generator = torch.Generator().manual_seed(0)
    foreground = torch.rand(1, 20_000, generator=generator) < 0.3
    x = torch.randn(1, 20_000, generator=generator)
    found, expected, _ = both("lovasz_rows", (x, foreground, None, torch.ones(1), True, 0.5, 0.5))
    close("lovasz_rows", found, expected)
