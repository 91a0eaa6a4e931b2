"""Behaviour of the modules: hard cases, state, resume, constraints, groups, gradients, messages."""

import copy
import inspect
import io
import math
import pickle

import pytest
import torch
import torch.nn.functional as F

from evalgrad import (
    PRAUC,
    ROCAUC,
    FBeta,
    PartialROCAUC,
    PrecisionAtRecall,
    RecallAtPrecision,
    SensitivityAtSpecificity,
)
from evalgrad.s_measures.counts import EVERY

N = 200
X = torch.randn(N, 4)
Y = (X[:, 0] + 0.7 * torch.randn(N)) > 0.8
INDEX = torch.arange(N)
MEASURES = [
    (FBeta, 1.0),
    (PrecisionAtRecall, 0.7),
    (RecallAtPrecision, 0.6),
    (SensitivityAtSpecificity, 0.8),
    (PartialROCAUC, 0.4),
    (ROCAUC, 4),
    (PRAUC, 4),
]
every = pytest.mark.parametrize(("measure", "argument"), MEASURES)
solvers = pytest.mark.parametrize("solver", ["ratio", "lagrangian"])
surrogates = pytest.mark.parametrize("surrogate", ["hinge", "square", "cross_entropy", "margin"])


def run(reg, weight, batches):
    """Plain training on the given batches; returns the losses."""
    groups = reg.primal_groups(0.05)
    optimiser = torch.optim.SGD([{"params": [weight], "lr": 0.05}, *groups])
    losses = []
    for index in batches:
        optimiser.zero_grad()
        loss = reg(X[index] @ weight, Y[index], index=index)
        loss.backward()
        optimiser.step()
        reg.project_()
        reg.dual_step()
        losses.append(loss.detach())
    return losses


@every
@solvers
@surrogates
def test_gradcheck_and_bounds(measure, argument, solver, surrogate):
    target, index = Y[:40], INDEX[:40]
    reg = measure(argument, labels=target, solver=solver, surrogate=surrogate).double()
    scores = torch.randn(40, dtype=torch.float64, requires_grad=True)
    reg(scores.detach(), target, index=index)
    reg.dual_step()
    reg.eval()
    if measure is not FBeta:  # whose value is V, not what its gradient is that of
        assert torch.autograd.gradcheck(lambda s: reg(s, target, index=index), scores)
    report = reg.diagnostics()
    assert 0 <= report["certificate"] <= report["metric"] + 1e-9


@every
@solvers
def test_batch_without_a_class_adds_a_zero_gradient(measure, argument, solver):
    reg = measure(argument, labels=Y, solver=solver)
    for part in (~Y, Y):
        index = INDEX[part]
        scores = torch.randn(len(index), requires_grad=True)
        loss = reg(scores, Y[index], index=index)
        loss.backward()
        assert loss == 0
        assert scores.grad.eq(0).all()
        assert all(p.grad is None or p.grad.eq(0).all() for p in reg.parameters())
    empty = torch.zeros(0, requires_grad=True)
    reg(empty, Y[:0], index=INDEX[:0]).backward()


def test_zero_at_perfect_prediction_and_nan_shows():
    reg = RecallAtPrecision(0.9, labels=Y)
    assert reg(torch.where(Y, 2.0, -2.0), Y) == 0
    assert reg(torch.where(Y, torch.inf, -torch.inf), Y) == 0
    assert reg(torch.full((N,), torch.nan), Y).isnan()
    assert reg(torch.randn(N), Y).isfinite()  # the NaN batch left the averages alone


@every
@solvers
def test_resume_is_bitwise(measure, argument, solver):
    # duplicates across batches, items never seen, no epochs
    order = [torch.randperm(N)[:50] for _ in range(24)]

    def fresh():
        return measure(argument, labels=Y, solver=solver, project_every=3), torch.zeros(
            4, requires_grad=True
        )

    reg, weight = fresh()
    whole = run(reg, weight, order)
    reg, weight = fresh()
    run(reg, weight, order[:11])
    file = io.BytesIO()
    torch.save((reg.state_dict(), weight.detach()), file)
    file.seek(0)
    state, saved = torch.load(file, weights_only=True)
    other, _ = fresh()
    other.load_state_dict(state)
    rest = run(other, saved.clone().requires_grad_(), order[11:])
    assert all(torch.equal(a, b) for a, b in zip(whole[11:], rest, strict=True))


def test_loading_against_other_positives_raises_and_changes_nothing():
    flipped = Y.clone()
    flipped[:2] = ~flipped[:2]
    for solver in ("ratio", "lagrangian"):
        reg = FBeta(labels=flipped, solver=solver)
        before = copy.deepcopy(reg.state_dict())
        with pytest.raises(ValueError, match="`labels` must be those it was saved with"):
            reg.load_state_dict(FBeta(labels=Y, solver=solver).state_dict())
        torch.testing.assert_close(before["groups.0.mu"], reg.state_dict()["groups.0.mu"])


@every
@solvers
def test_pickle_and_deepcopy(measure, argument, solver):
    reg = measure(argument, labels=Y, solver=solver)
    run(reg, torch.zeros(4, requires_grad=True), [INDEX])
    scores = torch.randn(N)
    for clone in (copy.deepcopy(reg), pickle.loads(pickle.dumps(reg))):
        assert torch.equal(clone.eval()(scores, Y, index=INDEX), reg.eval()(scores, Y, index=INDEX))
        clone.load_state_dict(reg.state_dict())


def test_duplicates_count_once_in_the_cache():
    scores = torch.randn(N)
    once, twice = FBeta(labels=Y), FBeta(labels=Y)
    once(scores, Y, index=INDEX)
    double = torch.cat([INDEX, INDEX])
    twice(scores[double], Y[double], index=double)
    torch.testing.assert_close(once.groups[0].mu, twice.groups[0].mu)


@solvers
def test_gradient_accumulation_may_sum_losses_first(solver):
    reg, weight = FBeta(labels=Y, solver=solver), torch.zeros(4, requires_grad=True)
    halves = INDEX[::2], INDEX[1::2]
    sum(reg(X[i] @ weight, Y[i], index=i) for i in halves).backward()
    assert weight.grad.isfinite().all()
    assert weight.grad.ne(0).any()


@solvers
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_scores_and_half_modules(solver, dtype):
    reg = FBeta(labels=Y, solver=solver)
    scores = torch.randn(N)
    expected = copy.deepcopy(reg)(scores.to(dtype).float(), Y, index=INDEX)
    reg.to(dtype)
    value = reg(scores.to(dtype).requires_grad_(), Y, index=INDEX)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, expected, rtol=1e-2, atol=1e-2)
    # the state took its precision back, the coefficients exactly
    assert all(b.dtype != dtype for b in [*reg.buffers(), *reg.parameters()])
    fresh = dict(FBeta(labels=Y, solver=solver).named_buffers())
    for name in ("objective", "constraints", "share"):
        assert torch.equal(reg.get_buffer(f"groups.0.{name}"), fresh[f"groups.0.{name}"])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(
            FBeta(labels=Y, solver=solver)(scores, Y, index=INDEX),
            FBeta(labels=Y, solver=solver)(scores, Y, index=INDEX),
        )


def test_overflow_does_not_poison_the_moving_average():
    reg = FBeta(labels=Y)
    for value in (torch.randn(N), torch.full((N,), torch.inf), torch.randn(N)):
        for _ in range(32):
            reg(value, Y)
    assert reg.groups[0].counts.totals.isfinite().all()
    assert "moving average" in reg.diagnostics()["source"]


@every
def test_without_labels_the_moving_average_suffices(measure, argument):
    known, unknown = measure(argument, labels=Y), measure(argument)
    scores = torch.randn(N)
    for reg in (known, unknown):
        for _ in range(80):
            value = reg(scores, Y)
    torch.testing.assert_close(value, known(scores, Y))


def test_order_of_groups_is_one_vs_rest_macro():
    labels = torch.randint(0, 3, (N,))
    scores = torch.randn(N, 3, requires_grad=True)
    reg = FBeta(labels=labels)
    parts = [FBeta(labels=labels == c)(scores[:, c], labels == c, index=INDEX) for c in range(3)]
    value = reg(scores, labels, index=INDEX)
    torch.testing.assert_close(value, torch.stack(parts).mean())
    assert len(reg.diagnostics()["groups"]) == 3


def test_spatial_shapes_are_flattened():
    scores = torch.randn(N)
    flat = FBeta(labels=Y)(scores, Y, index=INDEX)
    shaped = FBeta(labels=Y)(
        scores.view(4, 5, 10), Y.view(4, 5, 10).long(), index=INDEX.view(4, 5, 10)
    )
    assert torch.equal(flat, shaped)


@pytest.mark.parametrize(
    "make",
    [
        lambda: RecallAtPrecision(0.7, labels=Y, at_least=0.5),
        lambda: PrecisionAtRecall(0.5, labels=Y, at_least=0.7),
    ],
)
def test_constraint_is_met_by_hard_counts(make):
    reg, weight = make(), torch.zeros(5, requires_grad=True)
    features = F.pad(X, (0, 1), value=1.0)
    optimiser = torch.optim.Adam([weight], lr=0.05)
    before = None
    for step in range(400):
        optimiser.zero_grad()
        scores = features @ weight
        loss = F.binary_cross_entropy_with_logits(scores, Y.float()) + reg(scores, Y, index=INDEX)
        loss.backward()
        optimiser.step()
        if step == 0:
            before = reg.diagnostics()
    after = reg.diagnostics()
    assert not before["met"]
    assert before["why"]
    assert after["met"], after
    assert after["recall"][0] >= 0.499
    assert after["precision"][0] >= 0.699


def test_impossible_constraint_says_why():
    labels, noise = torch.arange(40) % 2 == 0, torch.zeros(40)
    reg = RecallAtPrecision(0.9, labels=labels, at_least=0.9, max_multiplier=2.0)
    for _ in range(200):
        reg(noise + 1, labels, index=torch.arange(40))
    report = reg.diagnostics()
    assert not report["met"]
    assert "unable to meet it" in report["why"]
    reg(noise - 1, labels, index=torch.arange(40))
    assert "bias" in reg.diagnostics()["why"]


@solvers
@pytest.mark.parametrize("drop_last", [False, True])
def test_a_shuffling_loader_with_a_broken_last_batch(solver, drop_last):
    """Any order, a last batch of one item or left out: the cache ends with the last score of every
    item that came.
    """
    reg, weight = FBeta(labels=Y, solver=solver), torch.zeros(4, requires_grad=True)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(INDEX), batch_size=66, shuffle=True, drop_last=drop_last
    )
    seen = []
    for (index,) in loader:
        run(reg, weight, [index])
        seen.append(index)
    assert weight.isfinite().all()
    cached = ~reg.groups[0].counts.cache.isnan()
    assert cached.nonzero()[:, 0].equal(torch.cat(seen).sort().values)
    assert int(cached.sum()) == (198 if drop_last else 200)
    assert f"{99 if drop_last else 100} %" in reg.diagnostics()["source"]


@pytest.mark.parametrize("solver", ["ratio", "lagrangian"])
def test_order_of_the_items_of_a_batch_does_not_matter(solver):
    order, scores = torch.randperm(N), torch.randn(N)
    one, other = FBeta(labels=Y, solver=solver), FBeta(labels=Y, solver=solver)
    torch.testing.assert_close(
        other(scores[order], Y[order], index=order), one(scores, Y, index=INDEX)
    )
    one.dual_step(), other.dual_step()
    torch.testing.assert_close(one.groups[0].mu, other.groups[0].mu)


@pytest.mark.parametrize("make", [FBeta, lambda **options: ROCAUC([0.1, 0.3], **options)])
def test_lambda_stops_at_its_price_unless_it_alone_pulls_tau_down(make):
    """Scores far below what tau claims press on lambda. Without the square of `augment` it must
    pass the price to lower tau.
    """
    for augment in (1.0, 0.0):
        reg = make(labels=Y, solver="lagrangian", augment=augment)
        reg(torch.where(Y, -9.0, -20.0), Y, index=INDEX)
        reg.dual_step()
        (group,) = reg.groups
        assert group.lam.amax(-1).equal(group.price()) == (augment > 0)
        assert (group.lam.amax(-1) > group.price()).all() == (augment == 0)


def test_accumulated_gradients_are_the_sum_of_those_of_the_batches():
    """State moves between the parts of an accumulated step; what each part contributed stays what
    it was when it was taken.
    """
    weight, halves = torch.zeros(4, requires_grad=True), (INDEX[::2], INDEX[1::2])
    together, apart = FBeta(labels=Y), FBeta(labels=Y)
    sum(together(X[i] @ weight, Y[i], index=i) for i in halves).backward()
    parts = [torch.autograd.grad(apart(X[i] @ weight, Y[i], index=i), weight)[0] for i in halves]
    torch.testing.assert_close(weight.grad, sum(parts))
    assert torch.equal(together.groups[0].mu, apart.groups[0].mu)


@every
@solvers
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_under_a_scaler(measure, argument, solver, dtype):
    """As GradScaler starts, with 2^16: finite wherever the scaled gradient fits the dtype, and the
    small gradients that the scale is for arrive.
    """
    scores = torch.randn(N).to(dtype)
    wide = scores.float().requires_grad_()
    expected = measure(argument, labels=Y, solver=solver)(wide, Y, index=INDEX)
    expected.backward()
    for scale in (1.0, 2.0**16, 2.0**-20):
        half = scores.clone().requires_grad_()
        value = measure(argument, labels=Y, solver=solver)(half, Y, index=INDEX)
        (value * scale).backward()
        scaled = (wide.grad * scale).to(dtype)
        fits = scaled.isfinite()
        assert torch.equal(value, expected)
        assert half.grad.dtype == dtype
        assert torch.equal(half.grad[fits], scaled[fits])


class Tagged(torch.Tensor):
    """What MONAI's MetaTensor and fastai's TensorImage are: a tensor with something to carry, which
    every operation hands on.
    """

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(result, Tagged):
            result.tag = next((x.tag for x in args if hasattr(x, "tag")), None)
        return result


@every
@solvers
def test_tensor_subclasses_are_tensors(measure, argument, solver):
    x = torch.randn(N)
    plain = x.clone().requires_grad_()
    one = measure(argument, labels=Y, solver=solver)
    value = one(plain, Y, index=INDEX)
    value.backward()
    for kind in (Tagged, torch.nn.Parameter):
        scores = (
            torch.nn.Parameter(x) if kind is torch.nn.Parameter else x.clone().as_subclass(kind)
        )
        scores.requires_grad_()
        other = measure(argument, labels=Y.as_subclass(Tagged), solver=solver)
        got = other(scores, Y.as_subclass(Tagged), index=INDEX.as_subclass(Tagged))
        got.backward()
        assert type(got) is torch.Tensor
        assert torch.equal(got, value)
        assert torch.equal(scores.grad.as_subclass(torch.Tensor), plain.grad)
        for mine, theirs in zip(one.buffers(), other.buffers(), strict=True):
            assert type(theirs) is torch.Tensor
            torch.testing.assert_close(theirs, mine, equal_nan=True, rtol=0, atol=0)
        with pytest.raises(ValueError, match="the label 7"):
            other(x, (Y + 77).as_subclass(Tagged), index=INDEX)


INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.uint16, torch.uint64]


@solvers
@pytest.mark.parametrize("dtype", [*INTEGERS, torch.float32, torch.float64, torch.bfloat16])
def test_labels_of_any_dtype(solver, dtype):
    x = torch.randn(N)
    expected = FBeta(labels=Y, solver=solver)(x, Y, index=INDEX)
    for labels in (Y, Y.to(dtype)):
        measure = FBeta(labels=labels, solver=solver)
        assert torch.equal(measure(x, Y.to(dtype), index=INDEX.int()), expected)
    if dtype not in (torch.float32, torch.float64, torch.bfloat16):
        three = INDEX % 3
        one, other = FBeta(labels=three), FBeta(labels=three.to(dtype))
        scores = torch.randn(N, 3)
        assert torch.equal(other(scores, three.to(dtype)), one(scores, three))


@every
@solvers
def test_a_column_is_a_batch(measure, argument, solver):
    """Scores (N, 1), as a network with one output gives them, mean one thing: N items."""
    x = torch.randn(N)
    expected = measure(argument, labels=Y, solver=solver)(x, Y, index=INDEX)
    for scores, target in ((x, Y[:, None]), (x[:, None], Y), (x[:, None], Y[:, None])):
        reg = measure(argument, labels=Y, solver=solver)
        assert torch.equal(reg(scores, target, index=INDEX), expected)


@every
@solvers
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_an_undeclared_label_in_a_graph_is_nan_and_enters_nothing(measure, argument, solver):
    """Labels cannot be read there."""
    reg, x = measure(argument, labels=Y, solver=solver), torch.randn(N)
    keywords = {"index": INDEX} if solver == "lagrangian" else {}
    reg(x, Y, **keywords)
    torch._dynamo.reset()
    compiled = torch.compile(reg, fullgraph=True, dynamic=True, backend="aot_eager")
    before = reg.groups[0].counts.totals.clone()
    for label in (7, -1):
        reg.groups[0].counts.progress.fill_(EVERY)  # new totals are due
        scores, target = x.clone().requires_grad_(), Y.long()
        target[5] = label
        value = compiled(scores, target, **keywords)
        value.backward()
        assert value.isnan()
        assert scores.grad.isnan().any()
    (group,) = reg.groups
    assert torch.equal(group.counts.totals, before)
    assert group.mu.isfinite().all()
    assert compiled(x, Y.long(), **keywords).isfinite()


@every
def test_options_are_attributes_and_do_what_they_say(measure, argument):
    reg = measure(argument, dual_lr=0.5, momentum=0.25, surrogate="margin")
    assert (reg.dual_lr, reg.momentum, reg.surrogate, reg.solver) == (0.5, 0.25, "margin", "ratio")
    assert all(f"{name}=" in repr(reg) for name in ("dual_lr", "surrogate", "max_multiplier"))
    reg = RecallAtPrecision(0.9, labels=Y)
    reg.max_multiplier = 0.5  # a setting may change during training
    reg(torch.randn(N), Y, index=INDEX)
    assert reg.groups[0].mu == 0.5


@every
@solvers
def test_an_option_built_in_is_refused_later(measure, argument, solver):
    """It would show in the repr and change nothing."""
    reg = measure(argument, labels=Y, solver=solver)
    state = pickle.loads(pickle.dumps(reg)).state_dict()
    for one in (reg, copy.deepcopy(reg), pickle.loads(pickle.dumps(reg))):
        shown = repr(one)
        own = inspect.signature(measure).parameters.keys() - {"options"}
        assert len(own) > 1
        for name in own | {"labels", "solver", "surrogate", "average", "ignore_index"}:
            must = f"{measure.__name__}: `{name}` must be set in the constructor; got 0.3 later. "
            with pytest.raises(
                ValueError, match=f"{must}Construct a new {measure.__name__}\\({name}="
            ):
                setattr(one, name, 0.3)
        assert repr(one) == shown
        for name in ("dual_lr", "max_multiplier", "momentum", "project_every", "augment"):
            with pytest.raises(ValueError, match=f"{measure.__name__}: `{name}` must be"):
                setattr(one, name, -1)
            setattr(one, name, 0 if name == "momentum" else 3)
        one.load_state_dict(state)
        one.double().eval().note = "any other attribute"
        one(torch.randn(N), Y, index=INDEX)


def test_scores_that_are_nan_certify_nothing():
    labels = torch.arange(6) % 2
    measure = FBeta(labels=labels)
    measure(torch.full((6,), torch.nan), labels, index=torch.arange(6))
    assert math.isnan(measure.diagnostics()["certificate"])
    measure(torch.linspace(-1, 1, 6), labels, index=torch.arange(6))
    assert 0 <= measure.diagnostics()["certificate"] <= 1
