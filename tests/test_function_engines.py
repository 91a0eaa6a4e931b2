"""Every public function that is not a loss on every engine, and no public name without a row in one
of the tables.
"""

import inspect
import sys

import pytest
import torch
from cases import CASES
from functions import FUNCTIONS
from torch._subclasses.fake_tensor import FakeTensorMode

import evalgrad as eg
from evalgrad._module import LossModule

every_function = pytest.mark.parametrize("function", FUNCTIONS, ids=str)
every_differentiable = pytest.mark.parametrize(
    "function", [f for f in FUNCTIONS if f.differentiable], ids=str
)


def gradient(call, x, y):
    x = x.detach().clone().requires_grad_()
    call(x, y).sum().backward()
    return x.grad


@every_function
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_compiles_once_for_all_sizes(function):
    torch._dynamo.reset()
    compiled = torch.compile(function.call, fullgraph=True, dynamic=True, backend="aot_eager")
    with torch._dynamo.config.patch(error_on_recompile=True):
        for items in (5, 7, 12):
            x, y = function.draw(items)
            torch.testing.assert_close(compiled(x, y), function.call(x, y))


@every_differentiable
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_compiled_gradient(function):
    x, y = function.draw(5)
    torch._dynamo.reset()
    compiled = torch.compile(function.call, fullgraph=True, dynamic=True, backend="aot_eager")
    torch.testing.assert_close(gradient(compiled, x, y), gradient(function.call, x, y))


@every_function
@pytest.mark.filterwarnings("ignore")
def test_exports(function):
    class Step(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.measure = function.module  # torch 2.6 exports parameters of submodules alone

        def forward(self, x, y):
            return function.call(x, y)

    x, y = function.draw(5)
    torch.testing.assert_close(
        torch.export.export(Step(), (x, y)).module()(x, y), function.call(x, y)
    )


@every_function
def test_vmap(function):
    pairs = [function.draw(5), tuple(t.flip(0) for t in function.draw(5))]
    together = torch.vmap(function.call)(*(torch.stack(tensors) for tensors in zip(*pairs)))
    torch.testing.assert_close(together, torch.stack([function.call(*pair) for pair in pairs]))


@every_differentiable
def test_func_grad_and_its_vmap(function):
    x, y = function.draw(5)
    slope = torch.func.grad(lambda x, y: function.call(x, y).sum())
    torch.testing.assert_close(slope(x, y), gradient(function.call, x, y))
    torch.testing.assert_close(
        torch.vmap(slope, (0, None))(torch.stack([x, -x]), y)[1], gradient(function.call, -x, y)
    )


@every_function
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_changes_nothing(function, dtype):
    x, y = function.draw(5)
    with torch.autocast("cpu", dtype=dtype):
        inside = function.call(x, y)
    assert torch.equal(inside, function.call(x, y))


@every_function
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_float32_inside(function, dtype):
    x, y = function.draw(5)
    expected = function.call(x.to(dtype).float(), y)
    assert torch.equal(
        function.call(x.to(dtype), y), expected.to(dtype) if function.keeps_dtype else expected
    )


@every_function
def test_fake_and_meta_tensors(function):
    x, y = function.draw(5)
    expected = function.call(x, y)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        value = function.call(mode.from_tensor(x), mode.from_tensor(y))
    on_meta = function.call(x.to("meta"), y.to("meta"))
    for result in (value, on_meta):
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype)


NOT_IN_A_GRAPH = {
    # parts of a network and of its data: test_s_measures_size_head.py
    *("SizeHead", "SizeLabels", "majority_size_labels"),
    # Python that looks at the data: test_sampling.py
    *("EquibatchSampler", "PerformanceSampler", "class_presence"),
    *(
        "inverse_frequency_weights",
        "median_frequency_weights",
        "suggest_epsilon",
    ),  # the same: test_baselines.py, test_direct_loss.py
    "Tversky",  # a choice of metric, the value of an option: test_tversky.py
}


def public():
    """Every public function and class, of the library and of its metrics, by name."""
    names = {
        name: thing
        for name, thing in vars(eg).items()
        if not name.startswith("_") and not inspect.ismodule(thing)
    }
    return names | {f"metrics.{name}": getattr(eg.metrics, name) for name in eg.metrics.__all__}


def code_in(run):
    """The code that runs in a call: what a row of a table covers need not be written down."""
    seen = set()
    sys.setprofile(lambda frame, event, _: seen.add(frame.f_code))
    try:
        run()
    finally:
        sys.setprofile(None)
    return seen


def all_rows():
    for function in FUNCTIONS:
        function.call(*function.draw(5))
    for case in CASES:
        x, target = case.draw(torch.Generator().manual_seed(11))
        case(x, target)
        case.module(**case.fixed)(*case.arrange(x, target))


def test_every_public_name_has_a_row():
    """A new loss is in the table of cases, a new function in that of functions, and then all
    engines run on it.
    """
    seen = code_in(all_rows)
    modules = {type(case.module(**case.fixed)) for case in CASES}  # these share one forward

    def has_a_row(thing):
        if inspect.isclass(thing) and issubclass(thing, LossModule):
            return thing in modules
        function = thing.forward if inspect.isclass(thing) else thing
        return inspect.unwrap(function).__code__ in seen

    missing = {
        name
        for name, thing in public().items()
        if name not in NOT_IN_A_GRAPH and not has_a_row(thing)
    }
    assert missing == set()
    assert public().keys() >= NOT_IN_A_GRAPH
