"""The direct loss of graded NDCG against every order of the items, and wrong versions of it that
this must reject.
"""

import math
import random

import oracles_direct_loss as oracles
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_broken import fails
from test_direct_loss import (
    SIGNS,
    assert_equals,
    directions,
    draw_row,
    every_direction,
    seeds,
    value_and_gradient,
    with_strangers,
)

import evalgrad as eg
from evalgrad import _native, metrics
from evalgrad._rows import with_gradient

cutoffs = st.sampled_from([None, 1, 2, 3, 9])


def assert_meets_every_order(loss, seed, direction, k=None, dtype=torch.float64, **options):
    """Law: the gradient is that of one of the best orders; what a mask leaves out changes
    nothing.
    """
    rng = random.Random(seed)
    scores, _, epsilon = draw_row(rng, 6, dtype)
    grades = torch.tensor([rng.choice([0, 0, 1, 2, 5]) for _ in scores])
    padded, labels, mask, where = with_strangers(rng, scores, grades)
    options = {"mask": mask, "epsilon": epsilon, "direction": direction, "k": k, **options}
    value, gradient = value_and_gradient(loss, padded, labels, **options)
    assert not gradient[~mask].any()
    if grades.unique().numel() < 2:
        assert value == 0
        assert not gradient.any()
        return
    gains = [2**g - 1 if options.get("gain") == "exponential" else g for g in grades.tolist()]
    expected, gradients = oracles.direct_graded(
        scores.tolist(), gains, epsilon, SIGNS[direction], k
    )
    tolerance = 1e-6 if dtype == torch.float32 else 1e-12
    assert value.item() == pytest.approx(expected, abs=tolerance)
    found = gradient[where].double()
    best = torch.tensor(gradients, dtype=torch.float64)
    distances = (found - best).abs().amax(1) * epsilon
    assert distances.min() < 10 * tolerance


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(seed=seeds, direction=directions, k=cutoffs, gain=st.sampled_from(["linear", "exponential"]))
def test_meets_every_order(engine, dtype, seed, direction, k, gain):
    loss = eg.direct_graded_ndcg_loss
    assert_meets_every_order(loss, seed, direction, k, dtype, gain=gain)


@every_direction
def test_of_equally_good_orders_the_one_that_gains_less_is_taken(engine, direction):
    """A gap of exactly epsilon: y_direct may exchange the two items or not."""
    target = torch.tensor([2, 0] if direction == "positive" else [0, 2])
    options = {"epsilon": 0.5, "direction": direction}
    loss = eg.direct_graded_ndcg_loss
    _, gradient = value_and_gradient(loss, torch.tensor([0.5, 0.0]), target, **options)
    assert gradient.any() == (direction == "positive")
    _, nearer = value_and_gradient(loss, torch.tensor([0.49, 0.0]), target, **options)
    assert nearer.any()
    _, farther = value_and_gradient(loss, torch.tensor([0.51, 0.0]), target, **options)
    assert not farther.any()


@every_direction
@pytest.mark.parametrize("height", [0.0, 1e30, math.inf, -math.inf])
def test_equal_scores_shift_by_their_gains_at_any_height(engine, direction, height):
    """The positive direction stays at the worst order, the negative goes to the best."""
    scores, target = torch.full((4,), height), torch.tensor([1, 3, 0, 2])
    options = {"epsilon": 0.1, "direction": direction}
    value, gradient = value_and_gradient(eg.direct_graded_ndcg_loss, scores, target, **options)
    assert value.item() == pytest.approx(oracles.graded_loss([0, 1, 2, 3]))
    if direction == "positive":
        assert not gradient.any()
    else:
        assert gradient.argsort(descending=True).tolist() == [2, 0, 3, 1]


@given(seed=seeds, k=cutoffs)
def test_two_grades_have_the_value_of_the_binary_loss(seed, k):
    scores, target, _ = draw_row(random.Random(seed), 12)
    for direction in SIGNS:
        options = {"k": k, "epsilon": 0.5, "direction": direction}
        binary, graded = (
            value_and_gradient(loss, scores, target, **options)
            for loss in (eg.direct_ndcg_loss, eg.direct_graded_ndcg_loss)
        )
        torch.testing.assert_close(binary[0], graded[0])


def test_two_grades_have_another_gradient():
    """F differs, hence the name: here the pairwise F of the binary loss has moved a pair."""
    scores, target = torch.tensor([0.3, 0.1, 0.2]), torch.tensor([1, 1, 0])
    binary, graded = (
        value_and_gradient(loss, scores, target, epsilon=0.5)[1]
        for loss in (eg.direct_ndcg_loss, eg.direct_graded_ndcg_loss)
    )
    assert binary.any()
    assert graded.any()
    assert not torch.allclose(binary, graded)


def test_epsilon_is_on_the_scale_of_the_scores_whatever_the_list():
    """An item of the highest gain moves by epsilon: past those less than that above it."""
    for n in (3, 50):
        for top in (1, 100):
            scores = torch.cat([torch.tensor([0.0]), torch.linspace(0.9, 1.1, n)])
            target = top * (torch.arange(n + 1) == 0)
            options = {"epsilon": 1.0, "direction": "negative"}
            _, gradient = value_and_gradient(eg.direct_graded_ndcg_loss, scores, target, **options)
            assert torch.equal(gradient[1:] != 0, scores[1:] < 1.0)


@every_direction
@pytest.mark.parametrize("k", [None, 10])
def test_kernel_equals_pure_torch_on_long_lists(monkeypatch, direction, k):
    """With masks, and with ties of every kind."""
    target, mask = torch.randint(5, (5, 700)), torch.rand(5, 700) < 0.9
    for epsilon, step in ((0.01, 1e-9), (0.25, 0.125)):
        scores = ((torch.randn(5, 700) + 0.3 * target) / step).round() * step
        options = {"mask": mask, "epsilon": epsilon, "direction": direction, "k": k}
        loss = eg.direct_graded_ndcg_loss
        found = value_and_gradient(loss, scores, target, reduction="none", **options)
        with monkeypatch.context() as context:
            context.setattr(_native, "library", None)
            pure = value_and_gradient(loss, scores, target, reduction="none", **options)
        assert_equals(found, pure, 2e-6)


def test_item_weights_are_factors_of_the_gains():
    scores, target = torch.randn(3, 8), torch.randint(4, (3, 8))
    weight = torch.rand(3, 8)
    options = {"epsilon": 0.5, "k": 5}
    found = value_and_gradient(
        eg.direct_graded_ndcg_loss,
        scores,
        target,
        gain="exponential",
        item_weight=weight,
        **options,
    )
    gains = weight.double() * (2.0**target - 1)
    expected = value_and_gradient(eg.direct_graded_ndcg_loss, scores, gains, **options)
    torch.testing.assert_close(found, expected)
    module = eg.DirectGradedNDCGLoss(gain="exponential", **options)
    assert module(scores, target, item_weight=weight) == found[0]
    mask = torch.rand(3, 8) < 0.8
    assert module(scores, target, mask, item_weight=weight) == eg.direct_graded_ndcg_loss(
        scores, target, mask=mask, gain="exponential", item_weight=weight, **options
    )


def test_void_lists_are_left_out(engine):
    scores = torch.randn(4, 5)
    scores[1, 0] = math.nan  # void: it does not count
    target = torch.tensor([[0, 1, 3, 0, 2], [2] * 5, [0] * 5, [1, 2, 2, 2, 2]])
    mask = torch.ones(4, 5, dtype=torch.bool)
    mask[3, 0] = False
    loss = eg.direct_graded_ndcg_loss
    value, gradient = value_and_gradient(loss, scores, target, mask=mask, reduction="none")
    assert (value[1:] == 0).all()
    assert (gradient[1:] == 0).all()
    assert torch.equal(loss(scores, target, mask=mask), loss(scores[0], target[0]))


@every_direction
def test_huge_gains_do_not_overflow(direction):
    scores, target = torch.randn(6), torch.tensor([0, 1, 2, 3, 1, 0])
    options = {"epsilon": 0.5, "direction": direction}
    small, huge = (
        value_and_gradient(eg.direct_graded_ndcg_loss, scores, scale * target.double(), **options)
        for scale in (1.0, 5e307)
    )
    torch.testing.assert_close(small, huge)


def test_gains_that_overflow_with_their_weights_are_nan(engine):
    scores, huge = torch.randn(2, 5), torch.tensor([1e200, 1, 2, 0, 1], dtype=torch.float64)
    options = {"item_weight": torch.stack([huge, huge.new_ones(5)]), "reduction": "none"}
    value, gradient = value_and_gradient(
        eg.direct_graded_ndcg_loss, scores, huge.expand(2, 5), **options
    )
    assert value.isnan().tolist() == [True, False]
    assert gradient.isnan().all(1).tolist() == [True, False]


def test_wrong_grades_are_nan_where_they_cannot_be_read():
    scores, target = torch.randn(2, 5), torch.tensor([[0, 1, 2, 0, 3], [0, 1, -1, 0, 3]])
    found = torch.vmap(eg.direct_graded_ndcg_loss)(scores, target)
    assert found.isnan().tolist() == [False, True]
    masked = torch.vmap(lambda s, y: eg.direct_graded_ndcg_loss(s, y, mask=y >= 0))
    assert not masked(scores, target).isnan().any()


# ---- wrong versions ------------------------------------------------------------------------------


def version(shift, reach=lambda k: k, worst_first=True):
    """A direct loss that sorts by the scores minus some shift of the gains."""

    def loss(scores, target, *, mask, epsilon, direction, k, gain="linear"):
        sign, where = SIGNS[direction], mask.nonzero()[:, 0].tolist()
        s, g = scores.detach()[where].tolist(), target[where].double().tolist()
        value, gradient = torch.zeros_like(scores[0]), torch.zeros_like(scores)
        if len(set(g)) > 1:
            ideal = oracles.discounted_gain(sorted(g, reverse=True), k)
            moved = [a - sign * shift(b, max(g), ideal, epsilon) for a, b in zip(s, g)]
            model = oracles.graded_ranking(s, g if worst_first else [-x for x in g])
            direct = oracles.graded_ranking(moved, g)
            for order, factor in ((direct, sign / epsilon), (model, -sign / epsilon)):
                for r, i in enumerate(order[: reach(k)], 1):
                    gradient[where[i]] += factor * max(g) / ideal / math.log2(1 + r)
            value = value + oracles.graded_loss([g[i] for i in model], k)
        return with_gradient(scores, value, gradient)

    return loss


def rejected(loss, direction, k):
    return any(fails(assert_meets_every_order, loss, seed, direction, k) for seed in range(60))


@every_direction
def test_the_right_version_passes(direction):
    right = version(lambda g, top, ideal, epsilon: epsilon * g / top)
    assert not any(rejected(right, direction, k) for k in (None, 2))


WRONG = {
    "the other sign": version(lambda g, top, ideal, epsilon: -epsilon * g / top),
    "another F in the inference": version(lambda g, top, ideal, epsilon: epsilon * g / ideal),
    "gains that are not scaled": version(lambda g, top, ideal, epsilon: epsilon * g),
    "positives alike": version(lambda g, top, ideal, epsilon: epsilon * (g > 0)),
    "ties in favour": version(lambda g, top, ideal, epsilon: epsilon * g / top, worst_first=False),
}


@every_direction
@pytest.mark.parametrize("name", WRONG)
def test_wrong_versions_are_rejected(name, direction):
    assert rejected(WRONG[name], direction, None)


@every_direction
def test_a_score_that_sees_beyond_the_cutoff_is_rejected(direction):
    """F must be cut as the metric is, or sorting no longer maximises F + s eps Delta."""
    uncut = version(lambda g, top, ideal, epsilon: epsilon * g / top, reach=lambda k: None)
    assert rejected(uncut, direction, 2)


def test_training_sorts_the_grades():
    """A linear model, both directions, from scores that say nothing."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 20, 5, generator=generator)
    hidden = x @ torch.tensor([1.0, -1.0, 0.5, 0.0, 0.0])
    target = (hidden + 0.3 * torch.randn(40, 20, generator=generator)).clamp(0, 3).floor()
    for direction in SIGNS:
        weight = torch.zeros(5).normal_(generator=generator).requires_grad_()
        before = metrics.ndcg(x @ weight.detach(), target, k=5, gain="exponential")
        optimizer = torch.optim.Adam([weight], lr=0.05)
        for _ in range(80):
            optimizer.zero_grad()
            eg.direct_graded_ndcg_loss(
                x @ weight, target, k=5, gain="exponential", epsilon=0.5, direction=direction
            ).backward()
            optimizer.step()
        after = metrics.ndcg(x @ weight.detach(), target, k=5, gain="exponential")
        assert after > max(before, 0.85), direction
