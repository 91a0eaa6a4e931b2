"""Direct losses in the hard cases; the nine algorithms of the paper and the suggested epsilon."""

import math

import oracles_direct_loss as oracles
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
DIRECT_LOSSES = (*DIRECT_LOSSES, eg.direct_graded_ndcg_loss)


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


SUGGESTED = {
    "average_precision": eg.direct_average_precision_loss,
    "ndcg": eg.direct_ndcg_loss,
    "graded_ndcg": eg.direct_graded_ndcg_loss,
    "jaccard": eg.direct_jaccard_loss,
    "zero_one": eg.direct_zero_one_loss,
}
every_suggestion = pytest.mark.parametrize("metric", SUGGESTED)


@every_direction
@every_suggestion
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
    mask = torch.cat([torch.ones(4, 300), torch.zeros(4, 9)], 1)
    padded, labels = torch.cat([scores, 9 * torch.ones(4, 9)], 1), torch.cat([target, mask == 0], 1)
    assert eg.suggest_epsilon(
        padded, labels[:, :309], mask=mask, share=0.3, **options
    ) == pytest.approx(wide, rel=1e-6)
    if "ndcg" in metric:
        cut = eg.suggest_epsilon(scores, target, share=0.3, k=300, **options)
        assert cut == pytest.approx(wide, rel=0.01)


@every_direction
def test_suggested_epsilon_of_decisions_is_a_quantile(direction):
    """The share of the right (wrong) items whose margin is below epsilon/2."""
    scores, target = torch.randn(1000).double(), torch.rand(1000) < 0.3
    margin = torch.where(target, scores, -scores) * SIGNS[direction]
    sorted_margins = margin[margin > 0].sort().values
    share = 0.25
    expected = 2 * sorted_margins[math.ceil(share * len(sorted_margins)) - 1]
    found = eg.suggest_epsilon(scores, target, metric="zero_one", share=share, direction=direction)
    assert found == pytest.approx(expected.item(), rel=2e-3)


@every_direction
def test_suggested_epsilon_of_sets_reaches_the_share(direction):
    """The task loss of y_direct, from the labelling that the gradient tells."""
    scores, target = torch.randn(3, 40).double(), torch.rand(3, 40) < 0.4
    model, sign = scores > 0, SIGNS[direction]
    before = [float(oracles.jaccard_of(y, t)) for y, t in zip(model.tolist(), target.tolist())]
    options = {"direction": direction, "reduction": "none"}
    found = eg.suggest_epsilon(scores, target, metric="jaccard", share=0.3, direction=direction)
    moved = []
    for epsilon in (found * 0.99, found * 1.01):
        _, gradient = value_and_gradient(
            eg.direct_jaccard_loss, scores, target, epsilon=epsilon, **options
        )
        direct = model ^ (gradient != 0)
        after = [float(oracles.jaccard_of(y, t)) for y, t in zip(direct.tolist(), target.tolist())]
        moved.append(sum(sign * (a - b) for a, b in zip(after, before)))
    whole_way = sum(1 - b if sign > 0 else b for b in before)
    assert moved[0] < 0.3 * whole_way <= moved[1] + 1e-9


@every_direction
@every_suggestion
def test_suggested_epsilon_of_a_batch_without_positives(direction, metric):
    """Where nothing can be measured it is a guess, on the scale of the scores, that trains."""
    scores = torch.randn(4, 100)
    for target in (torch.zeros(4, 100), torch.ones(4, 100)):
        options = {"direction": direction, "metric": metric}
        found = eg.suggest_epsilon(scores, target, **options)
        assert eg.suggest_epsilon(10 * scores, target, **options) == pytest.approx(
            10 * found, rel=0.01
        )
    labels = torch.rand(4, 100) < 0.1
    loss = SUGGESTED[metric]
    assert value_and_gradient(loss, scores, labels, epsilon=found, direction=direction)[1].any()


@every_suggestion
def test_suggested_epsilon_does_not_look_at_ties(metric):
    """Any epsilon parts them: with a share of lists that tie, one of 1e-11 would go that far."""
    target = torch.rand(4, 100) < 0.2
    scores = torch.randn(4, 100) + target
    tied = 0.0 if metric in ("jaccard", "zero_one") else torch.arange(4.0)[:, None].expand(4, 100)
    both = torch.cat([scores, 0.0 * scores + tied])
    options = {"direction": "negative", "metric": metric}
    found = eg.suggest_epsilon(both, target.repeat(2, 1), **options)
    assert found == pytest.approx(eg.suggest_epsilon(scores, target, **options), rel=0.01)
    if metric not in ("jaccard", "zero_one"):
        for direction in ("negative", "positive"):
            options["direction"] = direction
            with pytest.raises(ValueError, match=r"nor in the extreme order already\.$"):
                eg.suggest_epsilon(tied, target, **options)


def test_suggested_epsilon_of_several_axes():
    scores, target = torch.randn(2, 3, 4, 4), torch.rand(2, 3, 4, 4) < 0.3
    found = eg.suggest_epsilon(scores, target, metric="jaccard", dim=(0, 2, 3))
    rows = (x.movedim(1, 0).flatten(1) for x in (scores, target))
    assert found == eg.suggest_epsilon(*rows, metric="jaccard")


# ---- no gradient, and what helps -----------------------------------------------------------------

AT_K = (eg.direct_ndcg_loss, eg.direct_graded_ndcg_loss)


@pytest.mark.parametrize("loss", AT_K, ids=lambda f: f.__name__)
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 1000.0])
def test_no_positive_in_the_first_k_places_is_no_gradient(engine, loss, epsilon):
    """Delta is 1, which no ranking exceeds: y_w maximises F + eps Delta too. One place more ends
    it, if epsilon reaches, and so does the other direction.
    """
    scores, target = -torch.arange(30.0), (torch.arange(30) % 7 == 5).long()  # from rank 6 on
    for k in (1, 5):
        value, gradient = value_and_gradient(loss, scores, target, k=k, epsilon=epsilon)
        assert value == 1
        assert not gradient.any()
    far = {"k": 5, "direction": "negative", "epsilon": 1000.0}
    assert value_and_gradient(loss, scores, target, **far)[1].any()
    if epsilon == 1000.0:
        assert value_and_gradient(loss, scores, target, k=6, epsilon=epsilon)[1].any()


@pytest.mark.parametrize(
    "loss", [*AT_K, eg.direct_average_precision_loss], ids=lambda f: f.__name__
)
def test_the_worst_ranking_is_no_gradient_in_the_positive_direction(engine, loss):
    """A network that gives all items one score has it, as ties count against the model."""
    target = torch.tensor([1, 0, 0, 1, 0])
    for scores in (torch.zeros(5), -1.0 * target):
        assert not value_and_gradient(loss, scores, target, epsilon=10.0)[1].any()
        away = value_and_gradient(loss, scores, target, epsilon=10.0, direction="negative")[1]
        assert torch.equal(away < 0, target == 1)


def stuck_and(repair):
    """NDCG@5 after a training that starts with the positives at the end of every list."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(30, 50, 4, generator=generator)
    target = x[..., 0] > 1.5
    weight = torch.tensor([-1.0, 0.1, 0.1, 0.1], requires_grad=True)
    optimizer = torch.optim.Adam([weight], lr=0.05)
    for step in range(150):
        optimizer.zero_grad()
        repair(x @ weight, target, step).backward()
        optimizer.step()
    return metrics.ndcg(x @ weight.detach(), target, k=5).item()


def test_what_helps_where_there_is_no_gradient():
    """The repairs that docs/direct_loss.md names."""

    def at_5(scores, target, step):
        return eg.direct_ndcg_loss(scores, target, k=5, epsilon=0.1)

    def warm_start(scores, target, step):
        if step < 60:
            return torch.nn.functional.binary_cross_entropy_with_logits(scores, target.float())
        return at_5(scores, target, step)

    def growing_cutoff(scores, target, step):
        k = 50 if step < 60 else 5
        return eg.direct_ndcg_loss(scores, target, k=k, epsilon=0.1)

    epsilon = []

    def other_direction(scores, target, step):
        options = {"k": 5, "direction": "negative"}
        if not epsilon:
            found = eg.suggest_epsilon(scores.detach(), target, metric="ndcg", **options)
            epsilon.append(found)
        return eg.direct_ndcg_loss(scores, target, epsilon=epsilon[0], **options)

    assert stuck_and(at_5) < 0.01
    for repair in (warm_start, growing_cutoff, other_direction):
        assert stuck_and(repair) > 0.7, repair.__name__


@pytest.mark.parametrize("metric", ["average_precision", "ndcg", "jaccard", "zero_one"])
@pytest.mark.parametrize("garbage", [1e30, -torch.inf, torch.nan])
def test_epsilon_does_not_look_at_what_is_masked(metric, garbage):
    scores, target = torch.randn(3, 40), torch.rand(3, 40) < 0.3
    mask = torch.ones(3, 44, dtype=torch.bool)
    mask[:, 40:] = False
    padded = torch.cat([scores, torch.full((3, 4), garbage)], 1)
    labels = torch.cat([target, torch.ones(3, 4, dtype=torch.bool)], 1)
    found = eg.suggest_epsilon(padded, labels, mask=mask, metric=metric)
    assert found == pytest.approx(eg.suggest_epsilon(scores, target, metric=metric), rel=1e-6)
