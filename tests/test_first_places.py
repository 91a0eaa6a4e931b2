"""Metrics of the first places, and graded NDCG: against all orders of the ties, scikit-learn,
torchmetrics and the definitions of TF-Ranking.
"""

import math

import oracles_rankings as oracles
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score
from torchmetrics.functional import retrieval as theirs

from evalgrad import metrics

seeds = st.integers(0, 2**32 - 1)
cutoffs = st.sampled_from([1, 2, 3, 5, 9])
AT_K = {
    "precision_at_k": (metrics.precision_at_k, oracles.precision, theirs.retrieval_precision),
    "recall_at_k": (metrics.recall_at_k, oracles.recall, theirs.retrieval_recall),
    "reciprocal_rank": (
        metrics.reciprocal_rank,
        oracles.reciprocal_rank,
        theirs.retrieval_reciprocal_rank,
    ),
}
every_metric = pytest.mark.parametrize("name", AT_K)


def draw(seed, n=6, levels=3, grades=2):
    """Two lists with a relevant item each; few levels of the scores make many ties."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(grades, (2, n), generator=generator)
    target[:, 0] = grades - 1
    return torch.randint(levels, (2, n), generator=generator) - 1.0, target


def check_meets_every_order(metric, oracle, scores, gains, target, *args, **options):
    """Law: standard is the mean over the orders of the ties, worst the least; the items that a mask
    leaves out change nothing.
    """
    expected = [oracle(s, g, *args) for s, g in zip(scores.tolist(), gains.tolist())]
    strangers = torch.tensor([[math.nan, -math.inf], [math.inf, 0.0]])
    wide = torch.cat([strangers, scores], 1)
    labels = torch.cat([torch.tensor([[1, 0], [0, 1]]), target], 1)
    mask = torch.arange(wide.shape[1]).expand_as(wide) >= 2
    if "item_weight" in options:
        options["item_weight"] = torch.cat([torch.full((2, 2), 7.0), options["item_weight"]], 1)
    for column, ties in enumerate(("standard", "worst")):
        found = metric(wide, labels, mask=mask, ties=ties, reduction="none", **options)
        assert found.tolist() == pytest.approx([pair[column] for pair in expected], abs=1e-12)


@every_metric
@given(seed=seeds, k=cutoffs, levels=st.sampled_from([1, 2, 3, 50]))
def test_meets_every_order(name, seed, k, levels):
    metric, oracle, _ = AT_K[name]
    scores, target = draw(seed, levels=levels)
    check_meets_every_order(metric, oracle, scores, target, target, k, k=k)


@given(seed=seeds, k=cutoffs, levels=st.sampled_from([1, 2, 3, 50]))
def test_average_precision_at_k(seed, k, levels):
    scores, target = draw(seed, levels=levels)
    metric = metrics.average_precision
    check_meets_every_order(metric, oracles.average_precision, scores, target, target, k, k=k)
    assert torch.equal(metric(scores, target, k=6), metric(scores, target))


def test_the_whole_list_is_no_cutoff():
    scores, target = draw(0)
    assert torch.equal(
        metrics.reciprocal_rank(scores, target), metrics.reciprocal_rank(scores, target, k=6)
    )
    assert metrics.recall_at_k(scores, target, k=6) == 1


@every_metric
@given(seed=seeds, k=cutoffs)
def test_is_torchmetrics_without_ties(name, seed, k):
    """Its retrieval metrics take tied items as they come, and only scores above 0."""
    generator = torch.Generator().manual_seed(seed)
    scores, (_, target) = torch.rand(2, 6, generator=generator) + 0.1, draw(seed)
    metric, _, reference = AT_K[name]
    expected = [reference(s, y, top_k=k) for s, y in zip(scores, target)]
    found = metric(scores, target, k=k, reduction="none")
    assert found.tolist() == pytest.approx([x.item() for x in expected], abs=1e-6)


@given(seed=seeds, k=cutoffs)
def test_average_precision_at_k_of_torchmetrics_is_that_of_the_hits(seed, k):
    """It averages over the positives within k, here over all: one found among many is not 1."""
    generator = torch.Generator().manual_seed(seed)
    scores, (_, target) = torch.rand(2, 6, generator=generator) + 0.1, draw(seed)
    expected = [
        theirs.retrieval_average_precision(s, y, top_k=k).item() for s, y in zip(scores, target)
    ]
    found = metrics.average_precision(scores, target, k=k, reduction="none")
    share = metrics.recall_at_k(scores, target, k=k, reduction="none")
    assert found.tolist() == pytest.approx((torch.tensor(expected) * share).tolist(), abs=1e-6)


def test_without_positives():
    scores, target = torch.randn(2, 4), torch.tensor([[0, 0, 0, 0], [1, 0, 0, 0]])
    for metric in (metrics.recall_at_k, metrics.reciprocal_rank):
        assert metric(scores, target, k=4, reduction="none").isnan().tolist() == [True, False]
        assert metric(scores, target, k=4) == metric(scores[1], target[1], k=4)
        assert metric(scores[0], target[0], k=4, zero_division=0.25) == 0.25
    assert metrics.precision_at_k(scores, target, k=4, reduction="none").tolist() == [0, 0.25]
    for name in AT_K:
        metric = AT_K[name][0]
        assert metric(scores, target, k=2, mask=torch.zeros(2, 4)).isnan()
        assert metric(scores[:, :0], target[:, :0], k=2).isnan()


# ---- graded NDCG ---------------------------------------------------------------------------------


@given(seed=seeds, k=st.sampled_from([None, 1, 2, 4, 9]), levels=st.sampled_from([1, 3, 50]))
def test_graded_ndcg_meets_every_order(seed, k, levels):
    """TF-Ranking's definition too: gains 2^grade - 1 times the weights, ideal by weighted gain."""
    scores, target = draw(seed, levels=levels, grades=4)
    weight = torch.rand(2, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    linear = target.double()
    for gains, options in (
        (linear, {"gain": "linear"}),
        (2**linear - 1, {"gain": "exponential"}),
        (weight * (2**linear - 1), {"gain": "exponential", "item_weight": weight}),
    ):
        args = (metrics.ndcg, oracles.ndcg, scores, gains, target, k)
        check_meets_every_order(*args, k=k, **options)


@given(seed=seeds, k=st.sampled_from([None, 1, 3, 10]), levels=st.sampled_from([2, 5, 1000]))
def test_graded_ndcg_is_scikit_learns_and_torchmetrics(seed, k, levels):
    scores, target = draw(seed, n=20, levels=levels, grades=5)
    for gain, relevance in (("linear", target), ("exponential", 2**target - 1)):
        found = metrics.ndcg(scores, target, k=k, gain=gain)
        expected = ndcg_score(relevance.numpy(), scores.numpy(), k=k)
        assert found.item() == pytest.approx(expected, abs=1e-12)
        expected = [
            theirs.retrieval_normalized_dcg(s, y, top_k=k) for s, y in zip(scores, relevance)
        ]
        assert found.item() == pytest.approx(sum(expected).item() / 2, abs=1e-6)


def test_given_gains_are_grades():
    """A table of gains, and gains that are no integers."""
    scores, target = draw(3, grades=4)
    table = torch.tensor([0.0, 0.5, 0.7, 10.0], dtype=torch.float64)
    expected = ndcg_score(table[target].numpy(), scores.numpy())
    assert metrics.ndcg(scores, table[target]).item() == pytest.approx(expected, abs=1e-12)
    assert metrics.ndcg(scores, 3 * target) == pytest.approx(metrics.ndcg(scores, target).item())


def test_two_grades_are_binary():
    scores, target = draw(4)
    for ties in ("standard", "worst"):
        both = [
            metrics.ndcg(scores, y, k=3, ties=ties, gain=gain)
            for y in (target, target.bool(), target.half())
            for gain in ("linear", "exponential")
        ]
        assert all(torch.equal(x, both[0]) for x in both)


def test_a_weight_of_zero_is_no_gain_but_a_place():
    scores, target = torch.tensor([3.0, 2.0, 1.0]), torch.tensor([2, 1, 1])
    weight = torch.tensor([0.0, 1.0, 1.0])
    assert metrics.ndcg(scores, target, item_weight=weight) == metrics.ndcg(
        scores, torch.tensor([0, 1, 1])
    )
    assert metrics.ndcg(scores, target, item_weight=torch.zeros(3)).isnan()
    assert metrics.ndcg(scores, target, item_weight=torch.zeros(3), zero_division=0.0) == 0


def test_wrong_grades_are_nan_where_they_cannot_be_read():
    scores, target = draw(5, grades=4)
    weight = torch.ones(2, 6)
    weight[1, 2] = -1
    found = torch.vmap(lambda s, y, w: metrics.ndcg(s, y, item_weight=w))(scores, target, weight)
    assert found.isnan().tolist() == [False, True]
    mask = weight > 0
    masked = torch.vmap(lambda s, y, w, m: metrics.ndcg(s, y, item_weight=w, mask=m))
    assert not masked(scores, target, weight, mask).isnan().any()
