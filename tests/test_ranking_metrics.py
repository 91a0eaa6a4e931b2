"""Average precision and NDCG: equal to scikit-learn's without ties, against the model with them,
void lists left out.
"""

import math

import oracles_direct_loss as oracles
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, ndcg_score

import evalgrad as eg
from evalgrad import metrics

seeds = st.integers(0, 2**32 - 1)


def draw(seed, n=20):
    generator = torch.Generator().manual_seed(seed)
    target = torch.rand(3, n, generator=generator) < 0.4
    target[:, 0], target[:, 1] = True, False
    return torch.randn(3, n, generator=generator), target


@given(seed=seeds)
def test_average_precision_is_scikit_learns_without_ties(seed):
    scores, target = draw(seed)
    expected = [average_precision_score(y.numpy(), s.numpy()) for s, y in zip(scores, target)]
    assert metrics.average_precision(scores, target, reduction="none").tolist() == pytest.approx(
        expected
    )
    assert metrics.average_precision(scores, target).item() == pytest.approx(sum(expected) / 3)


@given(seed=seeds, k=st.sampled_from([None, 1, 3, 10, 50]))
def test_ndcg_is_scikit_learns_without_ties(seed, k):
    scores, target = draw(seed)
    expected = ndcg_score(target.long().numpy(), scores.numpy(), k=k)
    assert metrics.ndcg(scores, target, k=k).item() == pytest.approx(expected)


@given(seed=seeds, k=st.sampled_from([None, 2, 5]))
def test_ties_count_against_the_model(seed, k):
    scores, target = draw(seed, 8)
    scores = scores.round()
    rows = list(zip(scores.tolist(), target.tolist()))
    for found, name in (
        (metrics.average_precision(scores, target, reduction="none"), "ap"),
        (metrics.ndcg(scores, target, k=k, reduction="none"), "ndcg"),
    ):
        assert found.tolist() == pytest.approx(
            [1 - oracles.model_loss(*row, name, k) for row in rows]
        )


def test_a_collapsed_network_does_not_look_perfect():
    scores, target = torch.zeros(4), torch.tensor([1, 0, 0, 0])
    assert metrics.average_precision(scores, target) == 0.25
    assert metrics.ndcg(scores, target) == 1 / math.log2(5)


@given(seed=seeds)
def test_losses_have_the_value_of_the_metric(seed):
    scores, target = draw(seed)
    torch.testing.assert_close(
        1 - eg.direct_average_precision_loss(scores, target),
        metrics.average_precision(scores, target).float(),
    )
    torch.testing.assert_close(
        1 - eg.direct_ndcg_loss(scores, target, k=4), metrics.ndcg(scores, target, k=4).float()
    )


@pytest.mark.parametrize("metric", [metrics.average_precision, metrics.ndcg])
def test_void_and_masked_lists(metric):
    scores = torch.tensor([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0], [1.0, 2.0, 3.0], [math.nan, 2.0, 1.0]])
    target = torch.tensor([[1, 0, 1], [1, 1, 1], [0, 0, 0], [0, 0, 1]])
    values = metric(scores, target, reduction="none")
    assert values.isnan().tolist() == [False, True, True, True]
    assert metric(scores[:3], target[:3]) == values[0]
    assert metric(scores, target).isnan(), "a NaN score that counts is not hidden"
    mask = scores.isfinite()
    assert metric(scores[3], target[3], mask=mask[3]) == metric(scores[3, 1:], target[3, 1:])
    assert metric(scores[1:3], target[1:3]).isnan(), "the mean of nothing"
