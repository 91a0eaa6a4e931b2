"""What Inductor, the compiler behind torch.compile, would make of a step on a GPU that is not here:
kernels and bytes.

    count = inductor(loss, x, target)  # tensors on the meta device
    print(count.kernels, count.apart, count.bytes / 1e9)

Dynamo and AOTAutograd trace the step on meta tensors, as for any device. Of the joint graph a copy
is moved to fake CUDA tensors, cut into forward and backward, lowered and scheduled by Inductor: it
decides there what is fused. No code is generated and nothing runs. Counted are the nodes of its
schedule: a fused one is a kernel, another calls a kernel of torch or, as a sort, several. The bytes
of a node are what Inductor takes its buffers to be, each read and written once; a sort is charged
with its passes, as in accounting.py. Inductor plans memory in the code that is not generated: no
peak is counted.

None of this is a public interface. From torch 2.13, which constraints.txt pins, it takes: the
partition function of AOTAutograd; joint_graph_passes and post_grad_passes; GraphLowering with its
scheduler and the classes of its nodes. It patches: what torch.cuda and CudaInterface say of the
device (an A100); has_triton; the patterns of attention and padding (`lazy_init`), which are traced
on real tensors and of which no loss has any; folding of constants, which computes on the device;
and the pass that turns scatters into views of one buffer back into writes in place.
"""

import collections
import contextlib
import copy
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import torch
from accounting import sort_cost
from torch import Tensor

TORCH = "2.13"
# Of an A100, as Inductor asks for them.
A100 = SimpleNamespace(
    type="cuda",
    index=0,
    name="A100",
    major=8,
    minor=0,
    cc=80,
    multi_processor_count=108,
    regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    warp_size=32,
    total_memory=40 << 30,
    L2_cache_size=40 << 20,
    shared_memory_per_block=49152,
    shared_memory_per_block_optin=163840,
    shared_memory_per_multiprocessor=167936,
    gcnArchName="",
)


class Count(NamedTuple):
    kernels: int  # of Inductor, and launches of torch's
    apart: dict[str, int]  # torch's, by operation
    bytes: int


def can_count() -> bool:
    return torch.__version__.startswith(TORCH + ".")


def inductor(loss: Callable[..., Tensor], x: Tensor, target: Tensor) -> Count:
    """Of forward and backward."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._inductor.decomposition import select_decomp_table

    if not can_count():
        raise RuntimeError(f"made for torch {TORCH}, whose private interfaces it uses")
    counts: list[Count] = []

    def partition(joint: torch.fx.GraphModule, inputs: Any, **options: Any) -> Any:
        from torch._functorch.partitioners import default_partition

        counts.extend(map(_scheduled, _parts(copy.deepcopy(joint), options)))
        options.pop("compiler", None)
        return default_partition(joint, inputs, **options)  # what is run is left alone

    torch._dynamo.reset()
    backend = aot_autograd(
        fw_compiler=lambda graph, _: graph.forward,
        decompositions=select_decomp_table(),
        partition_fn=partition,
    )
    x.grad = None
    torch.compile(loss, backend=backend, fullgraph=True)(x, target).backward()
    apart: collections.Counter[str] = collections.Counter()
    for count in counts:
        apart.update(count.apart)
    return Count(sum(c.kernels for c in counts), dict(apart), sum(c.bytes for c in counts))


# ---- a GPU that is not here ----------------------------------------------------------------------


@contextlib.contextmanager
def _pretended() -> Iterator[None]:
    """Inductor finds an A100."""
    from torch._dynamo.device_interface import CudaInterface
    from torch._inductor import scheduler
    from torch._inductor.fx_passes import joint_graph

    def a100(*_: Any) -> SimpleNamespace:
        return A100

    with contextlib.ExitStack() as stack:

        def patch(owner: Any, **answers: Any) -> None:
            for name, answer in answers.items():
                stack.enter_context(mock.patch.object(owner, name, answer))

        patch(
            torch.cuda,
            is_available=lambda: True,
            device_count=lambda: 1,
            current_device=lambda: 0,
            get_device_properties=a100,
            get_device_capability=lambda *_: (8, 0),
        )
        patch(
            CudaInterface,
            is_available=staticmethod(lambda: True),
            current_device=staticmethod(lambda: 0),
            get_device_properties=staticmethod(a100),
            get_compute_capability=staticmethod(lambda *_: 80),
            is_triton_capable=staticmethod(lambda *_: True),
            raise_if_triton_unavailable=staticmethod(lambda *_: None),
        )
        patch(
            CudaInterface.Worker,
            get_device_properties=staticmethod(a100),
            current_device=staticmethod(lambda: 0),
        )
        patch(scheduler, has_triton=lambda: True)
        patch(joint_graph, lazy_init=lambda *_: None)
        yield


def _placeholders(graph: torch.fx.GraphModule) -> list[Any]:
    return [node.meta["val"] for node in graph.graph.nodes if node.op == "placeholder"]


def _on_cuda(graph: torch.fx.GraphModule, inputs: list[Any]) -> tuple[list[Any], Any]:
    """Move a graph to a fake GPU; its inputs there, and the mode of the fake tensors."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    for node in graph.graph.nodes:
        if "device" in node.kwargs:
            node.update_kwarg("device", torch.device("cuda", 0))
    graph.recompile()
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        moved = [
            torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cuda:0")
            if isinstance(t, Tensor)
            else t
            for t in inputs
        ]
    FakeTensorProp(graph, mode=mode).propagate_dont_convert_inputs(*moved)
    return moved, mode


# ---- what Inductor does with a graph -------------------------------------------------------------


def _parts(joint: torch.fx.GraphModule, options: dict[str, Any]) -> list[torch.fx.GraphModule]:
    """Forward and backward, cut where Inductor would cut them."""
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._inductor import config
    from torch._inductor.fx_passes.joint_graph import joint_graph_passes
    from torch._inductor.virtualized import V

    more = {name: value for name, value in options.items() if name != "compiler"}
    with _pretended():
        moved, mode = _on_cuda(joint, _placeholders(joint))
        context = torch._guards.TracingContext(mode)
        with mode, torch._guards.tracing(context), V.set_fake_mode(mode):
            with config.patch(joint_graph_constant_folding=False):
                joint_graph_passes(joint)
            return list(
                min_cut_rematerialization_partition(joint, moved, compiler="inductor", **more)
            )


def _scheduled(part: torch.fx.GraphModule) -> Count:
    """The schedule of a forward or a backward graph."""
    from torch._inductor.compile_fx import record_original_output_strides
    from torch._inductor.debug import DebugContext
    from torch._inductor.fx_passes.post_grad import post_grad_passes
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V

    part = copy.deepcopy(part)
    in_place = "torch._inductor.fx_passes.reinplace._inplace_generalized_scatter"
    with _pretended():
        moved, mode = _on_cuda(part, _placeholders(part))
        with mode, torch._guards.tracing(torch._guards.TracingContext(mode)), V.set_fake_mode(mode):
            with mock.patch(in_place, lambda given, source, views: given):
                post_grad_passes(part, is_inference=False)
            record_original_output_strides(part)
            lowering = GraphLowering(part, example_inputs=moved)
            with V.set_graph_handler(lowering), V.set_debug_handler(DebugContext()):
                lowering.run(*moved)
                lowering.init_wrapper_code()
                lowering._update_scheduler()
                return _count(lowering.scheduler.nodes)


def _count(nodes: list[Any]) -> Count:
    """Kernels and bytes of the nodes of a schedule."""
    from torch._inductor.scheduler import ExternKernelSchedulerNode, NopKernelSchedulerNode

    kernels, moved = 0, 0
    apart: collections.Counter[str] = collections.Counter()
    for node in nodes:
        if isinstance(node, NopKernelSchedulerNode):
            continue
        launches, amount = 1, node.get_read_write_buffers_sizes()
        if isinstance(node, ExternKernelSchedulerNode):
            name = _operation(node.node)
            if name is None:
                continue
            apart[name] += 1
            if name == "sort":
                given = node.node.inputs[0]
                shape = tuple(map(int, given.get_size()))
                amount, launches, _ = sort_cost(shape, given.get_dtype().itemsize)
        kernels += launches
        moved += amount
    return Count(kernels, dict(apart), moved)


def _operation(node: Any) -> str | None:
    """Of torch's own kernel; None for one of several results."""
    if type(node).__name__ == "MultiOutput":
        return None
    overload = getattr(node, "op_overload", None)
    if overload is not None:
        return str(overload.overloadpacket.__name__)
    return str(node.python_kernel_name).removeprefix("aten.").split(".")[0]
