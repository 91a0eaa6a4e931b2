"""Direct losses in the hard cases; the nine algorithms of the paper and the suggested epsilon."""

import math

import pytest
import torch
from test_direct_loss import (
    BASELINES,
    DIRECT_LOSSES,
    RANKING_LOSSES,
    SIGNS,
    assert_equals,
    every_direction,
    value_and_gradient,
)

import evalgrad as eg
from evalgrad import metrics

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize("loss", RANKING_LOSSES, ids=lambda f: f.__name__)
def test_void_lists_are_left_out(engine, loss):
    scores = torch.randn(4, 6)
    target = torch.tensor([[0, 1, 0, 1, 1, 0], [1] * 6, [0] * 6, [1, 1, 0, 0, 0, 0]])
    scores[1, 0] = NAN  # void: it does not count
    mask = torch.ones(4, 6, dtype=torch.bool)
    mask[3, :2] = False  # removes the positives
    value, gradient = value_and_gradient(loss, scores, target, mask=mask, reduction="none")
    assert (value[1:] == 0).all()
    assert (gradient[1:] == 0).all()
    assert torch.equal(loss(scores, target, mask=mask), loss(scores[0], target[0]))


@pytest.mark.parametrize("loss", [*DIRECT_LOSSES, *BASELINES], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_masks_that_remove_everything(engine, loss, dtype):
    scores = torch.full((2, 3), NAN, dtype=dtype)
    target = torch.tensor([[0, 1, 0], [1, 1, 0]])
    value, gradient = value_and_gradient(
        loss, scores, target, mask=torch.zeros(2, 3, dtype=torch.bool)
    )
    assert value == 0
    assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert (gradient == 0).all()


@pytest.mark.parametrize("loss", [*DIRECT_LOSSES, *BASELINES], ids=lambda f: f.__name__)
def test_padding_of_ragged_lists_changes_nothing(engine, loss):
    lists = [(torch.randn(n), torch.arange(n) % 3 == 0) for n in (7, 3, 12)]
    scores, target = (
        torch.nn.utils.rnn.pad_sequence(parts, batch_first=True) for parts in zip(*lists)
    )
    mask = torch.nn.utils.rnn.pad_sequence(
        [torch.ones(len(s), dtype=torch.bool) for s, _ in lists], batch_first=True
    )
    value, gradient = value_and_gradient(loss, scores, target, mask=mask, reduction="none")
    for row, (s, y) in enumerate(lists):
        alone, alone_gradient = value_and_gradient(loss, s, y)
        torch.testing.assert_close(value[row], alone)
        torch.testing.assert_close(gradient[row, : len(s)], alone_gradient)


@every_direction
def test_one_of_each(engine, direction):
    """Two items: the pair flips if its gap is below eps/2 times the difference of the losses, here
    1/2.
    """
    options = {"epsilon": 1.0, "direction": direction}
    for gap in (-0.3, -0.2, 0.2, 0.3):
        value, gradient = value_and_gradient(
            eg.direct_average_precision_loss,
            torch.tensor([gap, 0.0]),
            torch.tensor([1, 0]),
            **options,
        )
        flips = 0 < SIGNS[direction] * gap < 0.25
        assert value == (0.0 if gap > 0 else 0.5)
        assert gradient.tolist() == ([-2.0, 2.0] if flips else [0.0, 0.0])


def test_all_scores_equal(engine):
    """The worst ranking, in the value and as the place to leave."""
    target = torch.tensor([1, 0, 0, 1, 0])
    value, gradient = value_and_gradient(
        eg.direct_average_precision_loss, torch.ones(5), target, epsilon=5.0
    )
    assert value.item() == pytest.approx(1 - (1 / 4 + 2 / 5) / 2)
    assert not gradient.any()
    for scores in (torch.ones(5), torch.tensor([0.0, -0.0, 0.0, -0.0, -0.0])):
        _, gradient = value_and_gradient(
            eg.direct_average_precision_loss, scores, target, epsilon=5.0, direction="negative"
        )
        assert torch.equal(gradient < 0, target == 1)


@every_direction
@pytest.mark.parametrize("loss", DIRECT_LOSSES, ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    "template", [[INF, 0.3, 0.1, -0.2, -INF, 0.0], [INF, INF, 0.1, -INF, -INF, 0.0], [INF] * 6]
)
def test_infinities_act_as_their_limit(engine, loss, direction, template):
    for labels in ([0, 1, 0, 1, 1, 0], [1, 0, 1, 0, 0, 1], [1, 0, 0, 1, 0, 1]):
        scores, target = torch.tensor(template, dtype=torch.float64), torch.tensor(labels)
        near = value_and_gradient(
            loss, scores.clamp(-1e4, 1e4), target, epsilon=0.7, direction=direction
        )
        assert_equals(
            value_and_gradient(loss, scores, target, epsilon=0.7, direction=direction), near, 1e-12
        )


@every_direction
def test_an_outlier_does_not_swallow_the_digits_of_the_others(engine, direction):
    target, options = torch.tensor([1, 0, 1, 0, 1]), {"epsilon": 0.05, "direction": direction}
    gradients = [
        value_and_gradient(
            eg.direct_average_precision_loss,
            torch.tensor([top, 0.3, 0.2, 0.1, 0.0]),
            target,
            **options,
        )[1]
        for top in (9.0, 1e30)
    ]
    assert torch.equal(*gradients)


def test_infinite_scores_in_the_hinge(engine):
    hinge, target = eg.average_precision_hinge_loss, torch.tensor([True, False])
    assert hinge(torch.tensor([1.0, INF]), target) == INF
    assert hinge(torch.tensor([INF, 1.0]), target) == 0
    assert hinge(torch.tensor([INF, INF]), target) == 0.5


def test_hinges_bound_their_task_loss():
    scores, target = torch.randn(50, 9), torch.rand(50, 9) < 0.4
    for hinge, direct in ((BASELINES[0], DIRECT_LOSSES[0]), (BASELINES[2], DIRECT_LOSSES[3])):
        assert (
            hinge(scores, target, reduction="none")
            >= direct(scores, target, reduction="none") - 1e-6
        ).all()


def test_the_nine_algorithms_of_the_paper_train():
    """Section 4.1: pos-AP, neg-AP, pos-01, neg-01, hinge-AP, hinge-01, per-AP, per-01, logistic."""
    x = torch.randn(200, 5)
    target = x @ torch.tensor([1.0, -1.0, 0.5, 0.0, 0.0]) + 0.3 * torch.randn(200) > 1.0
    both = ({"direction": "positive", "epsilon": 5.0}, {"direction": "negative", "epsilon": 5.0})
    nine = [
        lambda s, o=o, f=f: f(s, target, **o)
        for f in (eg.direct_average_precision_loss, eg.direct_zero_one_loss)
        for o in both
    ]
    nine += [lambda s, f=f: f(s, target) for f in BASELINES]
    nine += [lambda s: torch.nn.functional.binary_cross_entropy_with_logits(s, target.float())]
    assert len(nine) == 9
    for loss in nine:
        torch.manual_seed(1)
        model = torch.nn.Linear(5, 1)
        before = metrics.average_precision(model(x)[:, 0].detach(), target)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        for _ in range(60):
            optimizer.zero_grad()
            loss(model(x)[:, 0]).backward()
            optimizer.step()
        assert metrics.average_precision(model(x)[:, 0].detach(), target) > before


@every_direction
@pytest.mark.parametrize("metric", ["average_precision", "ndcg"])
def test_suggested_epsilon_goes_the_share_of_the_way(direction, metric):
    target = torch.rand(4, 300) < 0.2
    scores = torch.randn(4, 300) + target
    options = {"direction": direction, "metric": metric}
    narrow, wide = (
        eg.suggest_epsilon(scores, target, share=share, **options) for share in (0.05, 0.3)
    )
    assert 0 < narrow < wide
    assert eg.suggest_epsilon(100 * scores, target, share=0.3, **options) == pytest.approx(
        100 * wide, rel=0.01
    )
    assert eg.suggest_epsilon(scores, target, share=0.3, k=300, **options) == pytest.approx(
        wide, rel=0.01
    )
