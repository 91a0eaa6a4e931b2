"""Direct losses against brute force, in value and gradient; `test_laws.py` has what all losses
promise.
"""

import math
import random

import oracles_direct_loss as oracles
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

import evalgrad as eg
from evalgrad import _native
from evalgrad.direct_loss import inference, operators

INF, NAN = math.inf, math.nan
SIGNS = {"positive": 1, "negative": -1}
DIRECT_LOSSES = (
    eg.direct_average_precision_loss,
    eg.direct_ndcg_loss,
    eg.direct_jaccard_loss,
    eg.direct_zero_one_loss,
)
BASELINES = (
    eg.average_precision_hinge_loss,
    eg.average_precision_perceptron_loss,
    eg.zero_one_hinge_loss,
    eg.zero_one_perceptron_loss,
)
RANKING_LOSSES = (*DIRECT_LOSSES[:2], *BASELINES[:2])

seeds = st.integers(0, 2**32 - 1)
directions = st.sampled_from(["positive", "negative"])
every_direction = pytest.mark.parametrize("direction", ["positive", "negative"])


def draw_row(rng, longest, dtype=torch.float32):
    """Scores of several characters, labels, and an epsilon. Few-valued ones tie often."""
    n = rng.randint(1, longest)
    scores = torch.tensor([rng.gauss(0, 1) for _ in range(n)])
    kind = rng.choice(["plain", "tied", "grid", "small", "offset"])
    scores = {
        "tied": scores.round(),
        "grid": (8 * scores).round() / 8,
        "small": 1e-3 * scores,
        "offset": scores + 1000,
    }.get(kind, scores)
    target = torch.tensor([rng.random() < 0.5 for _ in range(n)])
    return scores.to(dtype), target, rng.choice([0.003, 0.01, 0.1, 0.37, 1.0, 3.3, 20.0])


def with_strangers(rng, scores, target):
    """The same row with items among it that a mask leaves out."""
    width = len(scores) + rng.randint(0, 4)
    where = sorted(rng.sample(range(width), len(scores)))
    padded = torch.tensor(
        [rng.choice([NAN, INF, -INF, 7.0]) for _ in range(width)], dtype=scores.dtype
    )
    labels, mask = (
        torch.tensor([rng.random() < 0.5 for _ in range(width)], dtype=target.dtype),
        torch.zeros(width, dtype=torch.bool),
    )
    padded[where], labels[where], mask[where] = scores, target, True
    return padded, labels, mask, where


def value_and_gradient(loss, scores, *args, **options):
    scores = scores.detach().clone().requires_grad_()
    value = loss(scores, *args, **options)
    value.sum().backward()
    return value.detach(), scores.grad


def assert_equals(found, expected, tolerance=1e-5):
    """Value and gradient, the latter relative to its largest entry."""
    value, gradient = (torch.as_tensor(x, dtype=torch.float64) for x in expected)
    scale = max(gradient.abs().max().item(), 1.0) if gradient.numel() else 1.0
    torch.testing.assert_close(found[0].double(), value, rtol=1e-6, atol=tolerance)
    torch.testing.assert_close(found[1].double() / scale, gradient / scale, rtol=0, atol=tolerance)


def assert_meets_every_interleaving(
    loss, seed, direction, metric="ap", dtype=torch.float32, **options
):
    """Law: value and gradient are those of the best of all rankings; what a mask leaves out changes
    nothing.
    """
    rng = random.Random(seed)
    scores, target, epsilon = draw_row(rng, 8, dtype)
    padded, labels, mask, where = with_strangers(rng, scores, target)
    value, gradient = value_and_gradient(
        loss, padded, labels, mask=mask, epsilon=epsilon, direction=direction, **options
    )
    assert not gradient[~mask].any()
    expected = oracles.direct_ranking(
        scores.tolist(), target.tolist(), epsilon, SIGNS[direction], metric, options.get("k")
    )
    assert_equals((value, gradient[where]), expected, 1e-5 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(seed=seeds, direction=directions)
def test_average_precision_meets_every_interleaving(engine, dtype, seed, direction):
    assert_meets_every_interleaving(eg.direct_average_precision_loss, seed, direction, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(seed=seeds, direction=directions, k=st.sampled_from([None, 1, 2, 3, 5, 8, 20]))
def test_ndcg_meets_every_interleaving(engine, dtype, seed, direction, k):
    assert_meets_every_interleaving(eg.direct_ndcg_loss, seed, direction, "ndcg", dtype, k=k)


@every_direction
@pytest.mark.parametrize("positives", range(1, 10))
def test_ten_items(engine, direction, positives):
    rng, target = random.Random(positives), torch.arange(10) < positives
    for epsilon in (0.1, 1.0):
        scores = torch.tensor([rng.gauss(0, 1) for _ in range(10)])
        expected = oracles.direct_ranking(
            scores.tolist(), target.tolist(), epsilon, SIGNS[direction]
        )
        options = {"epsilon": epsilon, "direction": direction}
        assert_equals(
            value_and_gradient(eg.direct_average_precision_loss, scores, target, **options),
            expected,
        )


@given(seed=seeds, direction=directions)
def test_meets_the_table_of_the_paper(engine, seed, direction):
    rng = random.Random(seed)
    scores, target, epsilon = draw_row(rng, 60)
    if oracles.is_void(target.tolist()):
        return
    direct = oracles.paper_table(scores.tolist(), target.tolist(), epsilon, SIGNS[direction])
    gradient = oracles.direct_gradient(
        scores.tolist(), target.tolist(), direct, epsilon, SIGNS[direction]
    )
    found = value_and_gradient(
        eg.direct_average_precision_loss, scores, target, epsilon=epsilon, direction=direction
    )
    assert_equals(found, (oracles.model_loss(scores.tolist(), target.tolist()), gradient))


@every_direction
@pytest.mark.parametrize("k", [None, 10, 100])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.95])
def test_kernel_equals_pure_torch_on_long_lists(monkeypatch, direction, k, share):
    """Longer than a block of the chain and a small sort, with masks and with ties."""
    target, mask = torch.rand(5, 700) < share, torch.rand(5, 700) < 0.9
    for epsilon, step in ((0.003, 1e-9), (0.3, 0.125)):
        scores = ((torch.randn(5, 700) + target) / step).round() * step
        options = {"mask": mask, "epsilon": epsilon, "direction": direction, "reduction": "none"}
        losses = [eg.direct_average_precision_loss] if k is None else []
        for loss in (*losses, lambda *a, **o: eg.direct_ndcg_loss(*a, k=k, **o)):
            found = value_and_gradient(loss, scores, target, **options)
            with monkeypatch.context() as context:
                context.setattr(_native, "library", None)
                assert_equals(found, value_and_gradient(loss, scores, target, **options), 2e-6)


@every_direction
@pytest.mark.parametrize("ndcg", [False, True])
def test_on_an_accelerator_as_on_a_cpu(monkeypatch, direction, ndcg):
    """There nobody looks at the number of positives, and a chain goes to the kernel of the CPU."""
    target, mask = torch.rand(3, 90) < 0.3, torch.rand(3, 90) < 0.9
    scores = (8 * torch.randn(3, 90)).round() / 8
    monkeypatch.setattr(inference, "_bound", lambda count, n: n)
    for k, chosen in ((0, None), (0, mask), (10, mask)):
        options = (0.1, SIGNS[direction], ndcg, k)
        expected = operators.direct_ranking(scores, target, chosen, *options)
        for engine in (operators._direct_pure, operators._on_cpu):
            found = engine(scores, target, chosen, *options)
            for part in (0, 1):  # Delta of y_w and of y_direct
                assert_equals((found[part], found[2]), (expected[part], expected[2]), 2e-6)


class Operations(TorchDispatchMode):
    """Counts the operations on an accelerator, where a meta tensor stands for one."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += not getattr(func, "is_view", False)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("k", [None, 10])
@every_direction
def test_launches_do_not_grow_with_the_items(direction, k):
    def operations(n):
        scores = torch.zeros(2, n, device="meta")
        target = torch.zeros(2, n, dtype=torch.bool, device="meta")
        with _native.open_operators(), Operations() as seen:
            eg.direct_ndcg_loss(scores, target, k=k, direction=direction)
            if k is None:
                eg.direct_average_precision_loss(scores, target, direction=direction)
        return seen.count

    # from 2^7 to 2^12 there are two more levels of the division, and nothing else
    growth = operations(4000) - operations(100)
    assert growth <= (160 if direction == "positive" and k is None else 0)


@every_direction
@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 1.0])
def test_jaccard_kernel_equals_pure_torch_on_long_lists(monkeypatch, direction, share):
    target, mask = torch.rand(3, 700) < share, torch.rand(3, 700) < 0.9
    for epsilon, step in ((0.003, 1e-9), (0.3, 0.125)):
        scores = ((torch.randn(3, 700) + target) / step).round() * step
        options = {"mask": mask, "epsilon": epsilon, "direction": direction, "reduction": "none"}
        found = value_and_gradient(eg.direct_jaccard_loss, scores, target, **options)
        with monkeypatch.context() as context:
            context.setattr(_native, "library", None)
            assert_equals(
                found, value_and_gradient(eg.direct_jaccard_loss, scores, target, **options), 2e-6
            )


@given(seed=seeds)
def test_average_precision_hinge_meets_every_interleaving(engine, seed):
    rng = random.Random(seed)
    scores, target, _ = draw_row(rng, 8)
    padded, labels, mask, where = with_strangers(rng, scores, target)
    value, gradient = value_and_gradient(eg.average_precision_hinge_loss, padded, labels, mask=mask)
    assert_equals((value, gradient[where]), oracles.ap_hinge(scores.tolist(), target.tolist()))


@given(seed=seeds)
def test_average_precision_perceptron_is_its_sum_over_pairs(engine, seed):
    scores, target, _ = draw_row(random.Random(seed), 30, torch.float64)
    if oracles.is_void(target.tolist()):
        return
    found = value_and_gradient(eg.average_precision_perceptron_loss, scores, target)

    def pairs(x, labels):
        return 2 * (x[~labels][None] - x[labels][:, None]).relu().mean()

    value, gradient = value_and_gradient(pairs, scores, target)
    torch.testing.assert_close(found[0], value)
    if scores.unique().numel() == scores.numel():
        torch.testing.assert_close(found[1], gradient)


@given(seed=seeds, direction=directions)
def test_jaccard_meets_every_labelling(engine, seed, direction):
    rng = random.Random(seed)
    scores, target, epsilon = draw_row(rng, 8, torch.float64)
    padded, labels, mask, where = with_strangers(rng, scores, target)
    value, gradient = value_and_gradient(
        eg.direct_jaccard_loss, padded, labels, mask=mask, epsilon=epsilon, direction=direction
    )
    expected, gradients = oracles.direct_jaccard(
        scores.tolist(), target.tolist(), epsilon, SIGNS[direction]
    )
    torch.testing.assert_close(value.item(), expected)
    distances = [
        (gradient[where] - torch.tensor(g, dtype=torch.float64)).abs().max().item() * epsilon
        for g in gradients
    ]
    assert min(distances) < 1e-12, "the gradient must be that of one of the best labellings"


@given(seed=seeds, direction=directions)
def test_zero_one_meets_the_best_labels(seed, direction):
    rng = random.Random(seed)
    scores, target, epsilon = draw_row(rng, 12, torch.float64)
    padded, labels, mask, where = with_strangers(rng, scores, target)
    value, gradient = value_and_gradient(
        eg.direct_zero_one_loss, padded, labels, mask=mask, epsilon=epsilon, direction=direction
    )
    assert_equals(
        (value, gradient[where]),
        oracles.direct_zero_one(scores.tolist(), target.tolist(), epsilon, SIGNS[direction]),
        1e-12,
    )


@every_direction
def test_the_general_loss_with_brute_force_is_the_direct_average_precision(direction):
    """The user's road leads to the same place: rankings of six items, tried one by one."""
    scores, target = (
        (0.1 * torch.randn(6).double()).requires_grad_(),
        torch.tensor([True, False, True, False, False, True]),
    )

    def score(order):
        place = torch.empty(6).scatter(0, torch.tensor(order), torch.arange(6.0))
        signs = (place[~target][None] > place[target][:, None]).double() * 2 - 1
        return (signs * (scores[target][:, None] - scores[~target][None])).mean()

    loss = eg.direct_loss(
        score,
        task_loss=lambda order: torch.tensor(
            float(oracles.ranking_loss(target[order].tolist(), "ap", None))
        ).double(),
        predict=lambda: oracles.model_ranking(scores.tolist(), target.tolist()),
        augment=lambda weight: oracles.best_ranking(
            scores.tolist(), target.tolist(), abs(weight), SIGNS[direction], "ap", None
        )[1],
        epsilon=0.7,
        direction=direction,
    )
    (gradient,) = torch.autograd.grad(loss, scores)
    expected = value_and_gradient(
        eg.direct_average_precision_loss, scores, target, epsilon=0.7, direction=direction
    )
    assert_equals((loss.detach(), gradient), expected, 1e-7)
    assert gradient.any()


@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_the_general_loss_on_other_engines():
    cost, target = torch.rand(3, 3), torch.randint(3, (64,))

    def loss(logits):
        return eg.direct_loss(
            lambda y: logits.gather(1, y[:, None])[:, 0],
            lambda y: cost[target, y],
            lambda: logits.argmax(1),
            lambda weight: (logits + weight * cost[target]).argmax(1),
            epsilon=1.0,
        ).mean()

    logits = torch.randn(64, 3)
    value, gradient = value_and_gradient(loss, logits)
    assert gradient.any()
    assert torch.equal(torch.func.grad(loss)(logits), gradient)
    torch.testing.assert_close(
        torch.vmap(torch.func.grad(loss))(torch.stack([-logits, logits]))[1], gradient
    )
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    assert all(
        torch.equal(a, b) for a, b in zip(value_and_gradient(compiled, logits), (value, gradient))
    )
    torch._dynamo.reset()


def test_the_general_loss_survives_an_infinite_score():
    logits, costs = torch.tensor([[INF, 0.0]]).requires_grad_(), torch.tensor([[0.0, 1.0]])
    loss = eg.direct_loss(
        lambda y: logits.gather(1, y)[:, 0],
        lambda y: costs.gather(1, y)[:, 0],
        lambda: logits.argmax(1, keepdim=True),
        lambda weight: (logits + weight * costs).argmax(1, keepdim=True),
        epsilon=0.1,
    )
    loss.sum().backward()
    assert loss.item() == 0
    assert not logits.grad.any()
