"""The ratio solver on every engine: kernel and pure torch, compile, torch.func, vmap, forward mode, autocast, opcheck."""

import math

import pytest
import torch
from torch.autograd import forward_ad

from evalgrad import PRAUC, ROCAUC, FBeta, _native
from evalgrad.s_measures.surrogate_errors import _operator, error_totals, weighted_errors
from evalgrad.s_measures.surrogates import SURROGATES

surrogates = pytest.mark.parametrize("surrogate", SURROGATES)
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
FORMULAS = {
    "hinge": lambda z: max(0.0, z),
    "square": lambda z: z * z,
    "cross_entropy": lambda z: math.log2(1 + math.exp(z - 1)),
    "margin": lambda z: min(1.0, max(0.0, z)),
}
X = torch.randn(37, generator=torch.Generator().manual_seed(3))
Y = torch.arange(37) % 3 == 0


def by_loops(scores, positive, weight, formula):
    """Value and totals written from the definition."""
    sides = [[-s for s, y in zip(scores, positive, strict=True) if y], [s for s, y in zip(scores, positive, strict=True) if not y]]
    totals = [[sum(formula(1 + u) for u in side), sum(u >= 0 for u in side), len(side)] for side in sides]
    both = all(sides)
    return sum(w * t[0] / t[2] for w, t in zip(weight, totals, strict=True)) if both else 0.0, totals


@surrogates
@dtypes
@pytest.mark.parametrize("items", [0, 1, 2, 16, 37, 1025, 2100])  # lanes and blocks, whole and broken
def test_equals_the_definition(surrogate, dtype, items, request):
    draw = torch.Generator().manual_seed(items)
    scores, positive = torch.randn(items, dtype=dtype, generator=draw), torch.rand(items, generator=draw) < 0.3
    weight, kind = torch.tensor([[0.7, 2.5]], dtype=dtype), SURROGATES[surrogate]
    value, totals = weighted_errors(scores, positive, weight, kind)
    expected, sums = by_loops(scores.tolist(), positive.tolist(), weight[0].tolist(), FORMULAS[surrogate])
    tolerance = {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(value, torch.tensor(expected, dtype=dtype), **tolerance)
    torch.testing.assert_close(totals, torch.tensor([sums], dtype=dtype), **tolerance)
    torch.testing.assert_close(error_totals(scores, positive, torch.zeros(1), kind), totals, **tolerance)
    request.getfixturevalue("pure")
    torch.testing.assert_close(weighted_errors(scores, positive, weight, kind), (value, totals), **tolerance)
    torch.testing.assert_close(error_totals(scores, positive, torch.zeros(1), kind), totals, **tolerance)


@surrogates
def test_totals_leave_out_what_was_not_seen(surrogate, request):
    scores, seen = X.clone(), torch.arange(37) % 4 != 1
    scores[~seen] = torch.nan
    threshold, scale, kind = torch.tensor([0.3, -0.2]), torch.tensor([2.0, 0.5]), SURROGATES[surrogate]
    expected = [
        by_loops((c * (X[seen] - b)).tolist(), Y[seen].tolist(), (1, 1), FORMULAS[surrogate])[1]
        for b, c in zip(threshold, scale, strict=True)
    ]
    for _ in ("kernel", "pure"):
        torch.testing.assert_close(
            error_totals(scores, Y, threshold, kind, scale=scale), torch.tensor(expected), rtol=1e-5, atol=1e-5
        )
        request.getfixturevalue("pure")


@surrogates
@pytest.mark.parametrize("rows", [1, 3])
def test_kernel_gradient_equals_autograd_of_the_formula(surrogate, rows, request):
    kind, weight = SURROGATES[surrogate], torch.rand(rows, 2, dtype=torch.float64)
    offset = (X.double() - torch.linspace(-1, 1, rows).unsqueeze(-1)).requires_grad_()
    errors = kind(1 + torch.where(Y, -offset, offset))
    wanted = (weight[:, 0] * errors[:, Y].mean(1) + weight[:, 1] * errors[:, ~Y].mean(1)).sum()
    (expected,) = torch.autograd.grad(wanted, offset)
    for _ in ("kernel", "pure"):
        value, _ = weighted_errors(offset[0] if rows == 1 else offset, Y, weight, kind)
        torch.testing.assert_close(value, wanted)
        torch.testing.assert_close(torch.autograd.grad(value, offset)[0], expected)
        request.getfixturevalue("pure")


@pytest.mark.skipif(_native.library is None, reason="built without kernels")
def test_operator_passes_opcheck():
    arguments = (X.view(1, -1), Y.view(1, -1), torch.ones(1, 2), 0)
    torch.library.opcheck(_operator, arguments)


@surrogates
def test_infinite_scores_are_limits_and_nan_shows(surrogate):
    kind, weight = SURROGATES[surrogate], torch.tensor([[0.0, 1.0]])
    scores = torch.where(Y, -torch.inf, -3.0)  # positives have no weight here
    value, _ = weighted_errors(scores.requires_grad_(), Y, weight, kind)
    assert value == weighted_errors(torch.full((37,), -3.0), Y, weight, kind)[0]
    assert torch.autograd.grad(value, scores)[0].isfinite().all()
    assert weighted_errors(torch.where(Y, torch.nan, 0.0), Y, weight, kind)[0].isnan()


@pytest.fixture(params=[lambda **o: FBeta(**o), lambda **o: FBeta(surrogate="square", **o), lambda **o: ROCAUC(3, **o)])
def make(request):
    return request.param


def grad_of(measure, x):
    x = x.detach().clone().requires_grad_()
    value = measure(x, Y)
    return value.detach(), torch.autograd.grad(value, x)[0]


@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_compiles_without_a_break_in_eval_mode(make):
    reg = make().eval()
    compiled = torch.compile(reg, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(grad_of(compiled, X), grad_of(reg, X))
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore")
def test_compiled_training_keeps_the_same_state():
    """With a break around the state: the totals and v move as in eager mode."""
    eager, inside = FBeta(labels=Y), FBeta(labels=Y)
    compiled = torch.compile(inside, backend="aot_eager")
    scores = torch.where(Y, 0.9, -0.9) + 0.1 * X
    for step in range(40):
        for measure in (eager, compiled):
            measure(scores + step / 100, Y)
    torch._dynamo.reset()
    torch.testing.assert_close(inside.groups[0].mu, eager.groups[0].mu)
    assert eager.groups[0].mu != FBeta(labels=Y).groups[0].mu


def test_func_grad_vmap_and_forward_mode_in_eval_mode(make):
    reg = make().eval()
    value, gradient = grad_of(reg, X)
    torch.testing.assert_close(torch.func.grad(lambda z: reg(z, Y))(X), gradient)
    both = torch.stack([X, -X])
    torch.testing.assert_close(torch.vmap(lambda z: reg(z, Y))(both)[0], value)
    torch.testing.assert_close(torch.vmap(torch.func.grad(lambda z: reg(z, Y)))(both)[0], gradient)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # torch's own
def test_forward_mode(make):
    reg, tangent = make().eval(), torch.randn(37)
    _, gradient = grad_of(reg, X)
    with forward_ad.dual_level():
        value = reg(forward_ad.make_dual(X, tangent), Y)
        torch.testing.assert_close(forward_ad.unpack_dual(value).tangent, tangent @ gradient)


@pytest.mark.parametrize("transform", [lambda f: torch.func.grad(f), lambda f: lambda x: torch.vmap(f)(x.unsqueeze(0))])
def test_training_inside_a_transform_is_refused(make, transform):
    reg = make()
    with pytest.raises(RuntimeError, match="`scores` must be a plain tensor in training mode"):
        transform(lambda z: reg(z, Y))(X)


def test_autocast_changes_nothing(make):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = grad_of(make(), X)
    torch.testing.assert_close(inside, grad_of(make(), X), rtol=0, atol=0)


def test_a_second_derivative_is_refused_where_there_is_one():
    x = X.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(PRAUC(3, surrogate="square")(x, Y), x, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        gradient.sum().backward()


def test_backward_twice_adds_the_same_gradient():
    x = X.clone().requires_grad_()
    value = FBeta()(x, Y)
    value.backward(retain_graph=True)
    once = x.grad.clone()
    value.backward()
    assert torch.equal(x.grad, 2 * once)
