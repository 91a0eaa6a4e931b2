"""Training the S-measures on every engine: the kernel, pure torch and a compiled graph keep the
same state.
"""

import copy
import pickle

import pytest
import torch

from evalgrad import ROCAUC, FBeta, PrecisionAtRecall, RecallAtPrecision, _native

ITEMS = 37
LABELS = torch.arange(ITEMS) % 3
Y = LABELS == 0
MEASURES = {
    "f-beta": lambda: FBeta(labels=Y),
    "f-beta, margin": lambda: FBeta(2.0, labels=Y, surrogate="margin"),
    "f-beta, square": lambda: FBeta(labels=Y, surrogate="square"),
    "f-beta, three groups": lambda: FBeta(labels=LABELS),
    "f-beta, no labels": lambda: FBeta(),
    "p@r, required": lambda: PrecisionAtRecall(0.98, labels=Y, at_least=0.98),
    "r@p": lambda: RecallAtPrecision(0.7, labels=Y),
    "roc": lambda: ROCAUC(3, labels=Y),
    "roc, required": lambda: ROCAUC(3, labels=Y, at_least=0.86),
    "f-beta, lagrangian": lambda: FBeta(labels=Y, solver="lagrangian"),
}
every_measure = pytest.mark.parametrize("make", MEASURES.values(), ids=MEASURES)


def is_lagrangian(measure):
    return hasattr(measure.groups[0], "tau")


def batches(measure, count, *, seed=0):
    """(scores, target, index or None) of changing size: with positions, then without where the
    measure can.
    """
    draw, groups = torch.Generator().manual_seed(seed), len(measure.groups)
    for step in range(count):
        # some items twice, some batches without a class
        drawn = torch.randint(ITEMS, (1 + step % 12,), generator=draw)
        member = torch.nn.functional.one_hot(LABELS[drawn], 3) if groups > 1 else Y[drawn]
        # better than a constant, so that F-beta's v moves, and one error in 20, which is more than
        # what is required: its multipliers move and do not come back to 0
        scores = 2.4 * member - 1.2 + 0.7 * torch.randn(member.shape, generator=draw)
        positions = len(measure.groups[0].counts.labels) > 0 and (
            is_lagrangian(measure) or step < count // 2
        )
        yield scores, LABELS[drawn] if groups > 1 else member, {"index": drawn} if positions else {}


def step(measure, scores, target, keywords):
    x = scores.clone().requires_grad_()
    value = measure(x, target, **keywords)
    value.backward()
    return value.detach(), x.grad


def assert_same_state(one, two, **tolerance):
    for (key, a), b in zip(one.state_dict().items(), two.state_dict().values(), strict=True):
        if isinstance(a, torch.Tensor):
            torch.testing.assert_close(
                a, b, equal_nan=True, **tolerance, msg=lambda text, key=key: f"{key}: {text}"
            )
        else:
            assert a == b


@every_measure
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_one_graph_without_a_break_serves_all_batches(make):
    eager, inside = make(), make()
    torch._dynamo.reset()
    with (
        torch._dynamo.config.patch(error_on_recompile=True),
        torch.fx.experimental._config.patch(use_duck_shape=False),
    ):
        for indexed in (True, False):
            compiled = torch.compile(inside, fullgraph=True, dynamic=True, backend="aot_eager")
            for scores, target, keywords in batches(eager, 150):
                # torch makes graphs of their own for sizes 0 and 1
                if bool(keywords) == indexed and len(target) > 1:
                    torch.testing.assert_close(
                        step(compiled, scores, target, keywords),
                        step(eager, scores, target, keywords),
                    )
            torch._dynamo.reset()
    assert_same_state(eager, inside)
    moved = [
        not torch.equal(old.mu, new.mu)
        for old, new in zip(make().groups, inside.groups, strict=True)
    ]
    assert all(moved) != is_lagrangian(inside)  # which moves by `dual_step()` alone


@every_measure
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.skipif(_native.library is None, reason="built without kernels")
def test_kernel_and_pure_torch_keep_the_same_state(make, dtype, monkeypatch):
    native, pure = make().to(dtype), make().to(dtype)
    library, close = _native.library, {"rtol": 1e-4, "atol": 1e-5}
    for scores, target, keywords in batches(native, 120):
        expected = step(native, scores.to(dtype), target, keywords)
        monkeypatch.setattr(_native, "library", None)
        torch.testing.assert_close(
            step(pure, scores.to(dtype), target, keywords), expected, **close
        )
        monkeypatch.setattr(_native, "library", library)
    assert_same_state(native, pure, **close)


@every_measure
def test_copies_go_on_like_the_original(make):
    """In the middle of a cycle: the clock is in the copy, and not shared with it."""
    measure = make()
    for batch in batches(measure, 7):
        step(measure, *batch)
    copies = [copy.deepcopy(measure), pickle.loads(pickle.dumps(measure)), make()]
    copies[2].load_state_dict(measure.state_dict())
    for scores, target, keywords in batches(measure, 90, seed=1):
        expected = step(measure, scores, target, keywords)
        for other in copies:
            assert all(map(torch.equal, step(other, scores, target, keywords), expected))
    for other in copies:
        assert_same_state(measure, other, rtol=0, atol=0)


@every_measure
@pytest.mark.parametrize(
    "transform", [lambda f: torch.func.grad(f), lambda f: lambda x: torch.vmap(f)(x.unsqueeze(0))]
)
def test_training_inside_a_transform_is_refused(make, transform):
    measure = make()
    scores, target, keywords = next(batches(measure, 2))
    with pytest.raises(RuntimeError, match="`scores` must be a plain tensor in training mode"):
        transform(lambda z: measure(z, target, **keywords))(scores)


@every_measure
def test_autocast_changes_nothing(make):
    inside, outside = make(), make()
    for batch in batches(inside, 20):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = step(inside, *batch)
        assert all(map(torch.equal, value, step(outside, *batch)))
    assert_same_state(inside, outside, rtol=0, atol=0)


@pytest.mark.parametrize("at_least", [None, 0.5])
def test_an_overflow_in_the_cache_does_not_poison_the_multipliers(at_least, engine):
    measure, index = RecallAtPrecision(0.7, labels=Y, at_least=at_least), torch.arange(ITEMS)
    for value in (torch.inf, -torch.inf):
        measure(torch.full((ITEMS,), value), Y, index=index)
        assert measure.groups[0].mu.isfinite().all()
    before = measure.groups[0].mu.clone()
    measure(torch.linspace(-1, 1, ITEMS), Y, index=index)
    assert measure.groups[0].mu.isfinite().all()
    assert not torch.equal(measure.groups[0].mu, before)


def test_a_wrong_position_is_said_and_changes_nothing(engine):
    """At a batch that brings no new totals too."""
    measure, index = FBeta(labels=Y), torch.arange(5)
    measure(torch.zeros(5), Y[:5], index=index)
    before = measure.groups[0].counts.cache.clone()
    with pytest.raises(ValueError, match=r"`index` must be in 0\.\.36"):
        measure(torch.ones(5), Y[:5], index=index + ITEMS - 4)
    torch.testing.assert_close(measure.groups[0].counts.cache, before, equal_nan=True)


def test_totals_come_once_per_pass_however_it_is_cut():
    """Ten batches are a pass, exactly: tenths that do not add up to 1 in floating point."""
    labels = torch.arange(10) % 2 == 0
    measure, moves = FBeta(labels=labels), []
    measure(torch.linspace(1, -1, 10), labels, index=torch.arange(10))
    for item in range(20):
        before = measure.groups[0].mu.clone()
        measure(
            torch.tensor([1.0 - 2.0 * (item % 2) + item / 40]),
            labels[item % 10 : item % 10 + 1],
            index=torch.tensor([item % 10]),
        )
        if not torch.equal(before, measure.groups[0].mu):
            moves.append(item)
    assert moves == [9, 19]


def test_an_untrained_network_on_rare_positives_does_not_throw_the_multiplier(engine):
    """Its 99 false positives per positive count as one violation, not as 99: a start of 1, a step
    of 0.2, five more as damping.
    """
    labels = torch.arange(1000) % 100 == 0
    measure = RecallAtPrecision(0.9, labels=labels)
    measure(torch.zeros(1000), labels, index=torch.arange(1000))
    assert measure.groups[0].mu.item() == pytest.approx(1.2)
    assert measure.groups[0].weight[0, 1].item() == pytest.approx(2.2 * 0.9 * 99)


def test_momentum_may_be_an_integer(engine):
    """0 trusts each batch alone: the totals are those of the last batch that brought new ones."""
    measure, scores = FBeta(labels=Y, momentum=0), torch.linspace(-1, 1, ITEMS)
    measure(scores, Y)
    hinge = (1 - torch.where(Y, scores, -scores)).relu()
    torch.testing.assert_close(
        measure.groups[0].counts.totals[0, :, 0], torch.stack([hinge[Y].sum(), hinge[~Y].sum()])
    )
