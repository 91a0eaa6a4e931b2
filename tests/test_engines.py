"""Every loss of the table on every engine: compile, export, torch.func, vmap, forward mode,
autocast, meta and fake tensors.
"""

import ctypes
import gc
import multiprocessing
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from cases import CASES
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from evalgrad import _native

# Bins are operators of their own.
BINNED = tuple(
    replace(case, name=f"{case.name}_bins", fixed={**case.fixed, "bins": 8}, options=())
    for case in CASES
    if any("bins" in options for options in case.options)
)
every_case = pytest.mark.parametrize("case", [*CASES, *BINNED], ids=str)


@pytest.fixture
def drawn(case):
    x, target = case.draw(torch.Generator().manual_seed(11))
    return x.float(), target


def grad_of(loss, x):
    x = x.detach().clone().requires_grad_()
    value = loss(x)
    value.backward()
    return value.detach(), x.grad


@every_case
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_compiles_without_a_break(case, drawn, dynamic):
    """A dynamic graph serves any number of items without another compilation."""
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda z, y: case(z, y), fullgraph=True, dynamic=dynamic, backend="aot_eager"
    )
    # No duck shapes: that two axes happen to be equally long at first must not bind them.
    with (
        torch._dynamo.config.patch(error_on_recompile=True),
        torch.fx.experimental._config.patch(use_duck_shape=False),
    ):
        for copies in (1, 2, 3) if dynamic else (1,):
            # no ties: compiled or not, any may win
            x = torch.cat([drawn[0] * (1 + i / 10) for i in range(copies)], -1)
            target = torch.cat([drawn[1]] * copies, -1)
            expected = grad_of(lambda z, y=target: case(z, y), x)
            for actual, wanted in zip(
                grad_of(lambda z, y=target: compiled(z, y), x), expected, strict=True
            ):
                torch.testing.assert_close(actual, wanted)


@every_case
@pytest.mark.filterwarnings("ignore")
def test_exports(case, drawn):
    class Step(torch.nn.Module):
        def forward(self, x, target):
            return case(x, target)

    x, target = drawn
    exported = torch.export.export(Step(), (x, target))
    torch.testing.assert_close(exported.module()(x, target), case(x, target))


@every_case
def test_func_grad(case, drawn):
    x, target = drawn
    torch.testing.assert_close(
        torch.func.grad(lambda z: case(z, target))(x), grad_of(lambda z: case(z, target), x)[1]
    )


@every_case
@pytest.mark.parametrize("batched_target", [False, True])
def test_vmap_of_value_and_gradient(case, drawn, batched_target):
    x, target = drawn
    xs = torch.stack([x, x.flip(-1), -x])
    targets = torch.stack([target, target.flip(-1), target]) if batched_target else target
    dims = (0, 0 if batched_target else None)
    pairs = list(zip(xs, targets if batched_target else [target] * 3, strict=True))
    torch.testing.assert_close(
        torch.vmap(case, dims)(xs, targets), torch.stack([case(*pair) for pair in pairs])
    )
    gradients = torch.stack([grad_of(lambda z, t=t: case(z, t), z)[1] for z, t in pairs])
    torch.testing.assert_close(torch.vmap(torch.func.grad(case), dims)(xs, targets), gradients)


@every_case
@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # torch's own
def test_forward_mode(case, drawn):
    x, target = drawn
    tangent = torch.randn_like(x)
    _, gradient = grad_of(lambda z: case(z, target), x)
    with forward_ad.dual_level():
        value = case(forward_ad.make_dual(x, tangent), target)
        torch.testing.assert_close(
            forward_ad.unpack_dual(value).tangent, (tangent * gradient).sum()
        )


@every_case
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_changes_nothing(case, drawn, dtype):
    x, target = drawn
    with torch.autocast("cpu", dtype=dtype):
        inside = grad_of(lambda z: case(z, target), x)
    for actual, expected in zip(inside, grad_of(lambda z: case(z, target), x), strict=True):
        assert torch.equal(actual, expected)


@every_case
def test_fake_and_meta_tensors(case, drawn):
    x, target = drawn
    with FakeTensorMode() as mode:
        value = case(mode.from_tensor(x), mode.from_tensor(target))
    assert (value.shape, value.dtype) == ((), x.dtype)
    assert case(x.to("meta"), target.to("meta")).shape == ()


class _Recorder(TorchDispatchMode):
    """Collects the calls of our operators with their arguments."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "evalgrad":
            self.calls.append((func, args))
        return func(*args, **(kwargs or {}))


@every_case
def test_operators_pass_opcheck(case, drawn):
    with _Recorder() as recorder:
        for options in ({}, *case.options):
            if options.get("classes") != [1]:
                case(*drawn, **options)
    assert bool(recorder.calls) != case.plain
    for operator, args in {str(call[0]): call for call in recorder.calls}.values():
        torch.library.opcheck(operator, args)


def _child(queue, case_index):
    case = CASES[case_index]
    x, target = case.draw(torch.Generator().manual_seed(11))
    queue.put(
        case(
            x.float().repeat_interleave(case.crowd, -1), target.repeat_interleave(case.crowd, -1)
        ).item()
    )


@pytest.mark.parametrize("index", range(len(CASES)), ids=[case.name for case in CASES])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_works_in_a_forked_child(index):
    """DataLoader workers are forked; a kernel with OpenMP would hang there after its first use in
    the parent.
    """
    case = CASES[index]
    if case.autograd or not case.forks:
        pytest.skip("torch's own operators use OpenMP")
    x, target = case.draw(torch.Generator().manual_seed(11))
    torch.set_num_threads(2)
    expected = case(
        x.float().repeat_interleave(case.crowd, -1), target.repeat_interleave(case.crowd, -1)
    ).item()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=_child, args=(queue, index))
    process.start()
    try:
        assert queue.get(timeout=60) == pytest.approx(expected, rel=1e-6)
    finally:
        process.join(10)
        process.kill()


@every_case
def test_number_of_threads_does_not_matter(case, drawn):
    if _native.library is None:
        pytest.skip("built without kernels")
    x, target = drawn
    x, target = (t.repeat_interleave(case.crowd, -1) for t in (x, target))
    x = x + torch.randn(1)
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        results.append(grad_of(lambda z: case(z, target), x))
    torch.set_num_threads(1)
    for one, two in zip(*results, strict=True):
        assert torch.equal(one, two)


def crowded(case, drawn, copies):
    """Enough items for a kernel to spread over threads, no two lists of scores the same."""
    x, target = (t.repeat_interleave(copies, -1) for t in drawn)
    return x + torch.randn(x.shape, generator=torch.Generator().manual_seed(5)), target


@every_case
def test_eight_threads_at_once_give_the_bits_of_one(case, drawn):
    """Each computes something else, or memory that they share would go unnoticed."""
    x, target = crowded(case, drawn, case.crowd // 10)
    scores = [x * (1 + i / 8) for i in range(8)]
    expected = [grad_of(lambda z: case(z, target), z) for z in scores]
    start = threading.Barrier(8)

    def computed(z):
        start.wait()
        return [grad_of(lambda t: case(t, target), z) for _ in range(4)]

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(computed, scores))
    for wanted, found in zip(expected, results, strict=True):
        for value, gradient in found:
            assert torch.equal(value, wanted[0])
            assert torch.equal(gradient, wanted[1])


@every_case
def test_memory_of_any_alignment(case, drawn):
    """A vector of the kernels is 32 bytes; a compiler that takes an address for one of a vector
    would end the process.
    """
    x, target = crowded(case, drawn, 40)
    expected = grad_of(lambda z: case(z, target), x)
    for shift in (1, 2, 3):
        moved = torch.empty(x.numel() + shift)[shift:].view(x.shape)
        with torch.no_grad():
            moved.copy_(x)
        assert moved.data_ptr() % 32
        moved.requires_grad_()
        value = case(moved, target)
        value.backward()
        assert torch.equal(value, expected[0])
        assert torch.equal(moved.grad, expected[1])


class _Mallinfo(ctypes.Structure):
    """What glibc tells of its memory; `uordblks` and `hblkhd` are in use."""

    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = tuple((name, ctypes.c_size_t) for name in names.split())


def in_use():
    """Blocks of Python, and bytes of everything else where glibc counts them."""
    gc.collect()
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        return sys.getallocatedblocks(), 0
    mallinfo.restype = _Mallinfo
    found = mallinfo()
    return sys.getallocatedblocks(), found.uordblks + found.hblkhd


@every_case
@pytest.mark.skipif(sys.platform != "linux", reason="asks glibc")
def test_repeated_calls_keep_no_memory(case, drawn):
    """What leaks grows in every round; what is cached, in the first ones."""
    x, target = drawn
    calls, grown = 25, []
    while not grown or grown[-1][0] >= calls or grown[-1][1] >= 8 * calls:
        assert len(grown) < 15, grown
        before = in_use()
        for _ in range(calls):
            grad_of(lambda z: case(z, target), x)
        grown.append([now - old for now, old in zip(in_use(), before, strict=True)])
