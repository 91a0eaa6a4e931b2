"""What runs on an accelerator, without one: on meta tensors, which are not on the CPU either."""

import copy

import pytest
import torch
from test_engines import every_case
from torch.utils._python_dispatch import TorchDispatchMode

import evalgrad as eg
from evalgrad import _native

# Their cores loop over the items: a compiler sees the operator.
OPAQUE = {"direct_ranking", "ap_structured", "retrieval"}


def operators_of(graph):
    targets = {str(node.target) for node in graph.nodes}
    return {target.split(".")[1] for target in targets if target.startswith("evalgrad.")}


def on_the_cpu(graph_module):
    """The same graph, with what it makes on the CPU."""
    for node in graph_module.graph.nodes:
        if "device" in node.kwargs:
            node.update_kwarg("device", torch.device("cpu"))
    graph_module.recompile()
    return graph_module


class Compiler:
    """A backend that looks at the graph of a function, and runs it."""

    def __init__(self, function, **options):
        torch._dynamo.reset()
        self.compiled = torch.compile(function, fullgraph=True, backend=self, **options)

    def __call__(self, graph_module, _):
        self.operators = operators_of(graph_module.graph)

        def run(*given):  # in an order of its own, and with the numbers among the shapes
            graph = on_the_cpu(copy.deepcopy(graph_module))
            self.results = graph(*(self.values.get(id(x), x) for x in given))
            return graph_module(*given)

        return run

    def value(self, *inputs):
        """Compiled off the CPU, computed on it."""
        moved = [x.to("meta") for x in inputs]
        self.values = {id(x): inputs[place] for place, x in enumerate(moved)}
        assert self.compiled(*moved).is_meta
        return self.results[0]


@every_case
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_a_compiler_sees_the_core(case):
    """A dynamic graph serves any number of items without another compilation."""
    x, target = case.draw(torch.Generator().manual_seed(11))
    compiler = Compiler(case, dynamic=True)
    with (
        torch._dynamo.config.patch(error_on_recompile=True),
        torch.fx.experimental._config.patch(use_duck_shape=False),
    ):
        for copies in (1, 2, 3):
            scores = torch.cat([x.float() * (1 + i / 10) for i in range(copies)], -1)
            labels = torch.cat([target] * copies, -1)
            torch.testing.assert_close(compiler.value(scores, labels), case(scores, labels))
    assert compiler.operators <= OPAQUE


@pytest.mark.parametrize("loss", [eg.LovaszSoftmaxLoss(), eg.LovaszSoftmaxLoss(bins=8)])
@pytest.mark.filterwarnings("ignore")
def test_a_compiler_sees_images_of_one_group(loss):
    """Their classes are not next to each other in memory."""
    x, target = torch.randn(3, 9, 4, 5), torch.randint(9, (3, 4, 5))
    value = Compiler(loss).value(x, target)
    torch.testing.assert_close(value, loss(x, target))


@pytest.mark.filterwarnings("ignore")
def test_a_compiler_sees_the_operator_on_the_cpu():
    compiler = Compiler(eg.lovasz_softmax_loss)
    compiler.values = {}
    compiler.compiled(torch.randn(1, 2, 3), torch.tensor([[0, 1, 0]]))
    assert compiler.operators == {"lovasz_softmax"}


@pytest.mark.filterwarnings("ignore")
def test_vmap_under_compile_keeps_the_operator():
    """It folds the new axis into the rows; in a core a batched tensor may meet a plain buffer."""
    x, target = torch.randn(3, 2, 4, 5), torch.randint(4, (2, 5))
    losses = torch.vmap(eg.lovasz_softmax_loss, (0, None))
    compiler = Compiler(losses)
    torch.testing.assert_close(compiler.value(x, target), losses(x, target))
    assert compiler.operators == {"lovasz_softmax"}


def test_open_operators_are_their_cores():
    x, target = torch.randn(1, 4, 5, device="meta"), torch.zeros(1, 5, dtype=int, device="meta")
    with _native.open_operators(), Recorder() as recorder:
        eg.lovasz_softmax_loss(x, target)
    assert "aten.sort.default" in recorder.names
    assert not any(name.startswith("evalgrad") for name in recorder.names)
    with Recorder() as recorder:
        eg.lovasz_softmax_loss(x, target)
    assert "evalgrad.lovasz_softmax.default" in recorder.names


class Recorder(TorchDispatchMode):
    """Collects the names of all operations."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(str(func))
        return func(*args, **(kwargs or {}))
