"""Average precision, NDCG and the area under the ROC curve: by default scikit-learn's and
torchmetrics', ties included; with ties="worst" what the losses follow.
"""

import math

import numpy as np
import oracles_direct_loss as oracles
import oracles_s_measures
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, ndcg_score, roc_auc_score
from torchmetrics.functional.classification import (
    multilabel_auroc,
    multilabel_average_precision,
)

import evalgrad as eg
from evalgrad import metrics

seeds = st.integers(0, 2**32 - 1)
RANKING = [metrics.average_precision, metrics.ndcg, metrics.roc_auc]
every_metric = pytest.mark.parametrize("metric", RANKING, ids=lambda m: m.__name__)


def sklearn_ndcg(y, scores, k=None):
    return ndcg_score(y[None], scores[None], k=k)


REFERENCE = {
    "average_precision": average_precision_score,
    "ndcg": sklearn_ndcg,
    "roc_auc": roc_auc_score,
}


def draw(seed, n=20, levels=None):
    """Three lists with a positive and a negative each; `levels`: so many different scores."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.rand(3, n, generator=generator) < 0.4
    target[:, 0], target[:, 1] = True, False
    scores = torch.randn(3, n, generator=generator, dtype=torch.float64)
    if levels is not None:
        scores = torch.randint(levels, (3, n), generator=generator).double()
    return scores, target


def check_is_scikit_learns(metric, name, seed, levels, **options):
    """Each list, with and without items that do not count, and the mean."""
    scores, target = draw(seed, levels=levels)
    expected = [
        REFERENCE[name](y.numpy(), s.numpy(), **options) for s, y in zip(scores, target.long())
    ]
    found = metric(scores, target, reduction="none", **options)
    assert found.tolist() == pytest.approx(expected, abs=1e-12)
    assert metric(scores, target, **options).item() == pytest.approx(sum(expected) / 3, abs=1e-12)
    # Left-out items, among them ones that tie with the lowest score.
    wide = torch.cat([torch.full((3, 2), -math.inf), scores, torch.full((3, 1), math.nan)], 1)
    wide[0, 2:5] = -math.inf
    labels = torch.cat([torch.tensor([[1, 0]]).expand(3, 2), target, target[:, :1]], 1)
    mask = torch.ones_like(wide, dtype=torch.bool)
    mask[:, [0, 1, -1]] = False
    finite = wide[:, 2:-1].clamp(min=-1e9)
    expected = [
        REFERENCE[name](y.numpy(), s.numpy(), **options) for s, y in zip(finite, target.long())
    ]
    found = metric(wide, labels, mask=mask, reduction="none", **options)
    assert found.tolist() == pytest.approx(expected, abs=1e-12)


@every_metric
@given(seed=seeds, levels=st.sampled_from([None, 1, 2, 3, 8]))
def test_is_scikit_learns(metric, seed, levels):
    check_is_scikit_learns(metric, metric.__name__, seed, levels)


@given(seed=seeds, levels=st.sampled_from([None, 1, 2, 5]), k=st.sampled_from([1, 3, 10, 50]))
def test_ndcg_at_k_is_scikit_learns(seed, levels, k):
    check_is_scikit_learns(metrics.ndcg, "ndcg", seed, levels, k=k)


def test_constant_scores_are_chance():
    target = torch.arange(12) % 4 == 0
    scores = torch.full((12,), 0.3)
    assert metrics.roc_auc(scores, target) == 0.5
    assert metrics.average_precision(scores, target) == 0.25
    assert metrics.ndcg(scores, target, k=1).item() == pytest.approx(0.25)


def test_collapsed_networks_do_not_look_good_at_worst():
    scores, target = torch.zeros(4), torch.tensor([1, 0, 0, 0])
    assert metrics.average_precision(scores, target, ties="worst") == 0.25
    assert metrics.ndcg(scores, target, ties="worst") == 1 / math.log2(5)
    assert metrics.roc_auc(scores, target, ties="worst") == 0


@every_metric
def test_a_saturated_half_precision_sigmoid(metric):
    """Where probabilities of many items are 1.0, scikit-learn sees the same ties."""
    generator = torch.Generator().manual_seed(0)
    target = torch.rand(400, generator=generator) < 0.3
    logits = torch.randn(400, generator=generator) + 2 * target + 7
    scores = logits.half().sigmoid()
    assert scores.unique().numel() < 40
    expected = REFERENCE[metric.__name__](target.long().numpy(), scores.double().numpy())
    assert metric(scores, target).item() == pytest.approx(expected, abs=1e-12)
    assert metric(scores, target, ties="worst") < expected - 0.05


@given(seed=seeds, k=st.sampled_from([None, 2, 5]))
def test_worst_ties_count_against_the_model(seed, k):
    scores, target = draw(seed, 8, levels=4)
    rows = list(zip(scores.tolist(), target.tolist()))
    for found, name in (
        (metrics.average_precision(scores, target, ties="worst", reduction="none"), "ap"),
        (metrics.ndcg(scores, target, k=k, ties="worst", reduction="none"), "ndcg"),
    ):
        assert found.tolist() == pytest.approx(
            [1 - oracles.model_loss(*row, name, k) for row in rows]
        )
    found = metrics.roc_auc(scores, target, ties="worst", reduction="none")
    expected = [oracles_s_measures.roc_auc(s.numpy(), y.numpy()) for s, y in zip(scores, target)]
    assert found.tolist() == pytest.approx(expected)


@every_metric
@given(seed=seeds)
def test_without_ties_there_is_one_value(metric, seed):
    scores, target = draw(seed)
    assert torch.equal(metric(scores, target), metric(scores, target, ties="worst"))


@every_metric
@given(seed=seeds)
def test_worst_is_never_better(metric, seed):
    scores, target = draw(seed, levels=4)
    worst = metric(scores, target, ties="worst", reduction="none")
    assert (worst <= metric(scores, target, reduction="none") + 1e-12).all()


@given(seed=seeds)
def test_losses_have_the_value_of_the_metric(seed):
    """List by list: the losses leave an all-relevant list out, to the metric it is perfect."""
    scores, target = draw(seed, levels=6)
    target[2] = True
    for loss, metric in (
        (eg.direct_average_precision_loss, metrics.average_precision),
        (eg.direct_ndcg_loss, metrics.ndcg),
    ):
        torch.testing.assert_close(
            1 - loss(scores, target, reduction="none"),
            metric(scores, target, ties="worst", reduction="none"),
        )


# ---- the axis of the items -----------------------------------------------------------------------


@given(seed=seeds, levels=st.sampled_from([None, 3]))
def test_a_list_per_class_is_the_macro_average(seed, levels):
    scores, target = (x.T for x in draw(seed, levels=levels))  # (batch, classes)
    y, s = target.long().numpy(), scores.numpy()
    assert metrics.average_precision(scores, target, dim=0).item() == pytest.approx(
        average_precision_score(y, s, average="macro"), abs=1e-12
    )
    assert metrics.roc_auc(scores, target, dim=0).item() == pytest.approx(
        roc_auc_score(y, s, average="macro"), abs=1e-12
    )
    # torchmetrics takes a sigmoid of what is not in [0, 1].
    shares = ((scores - scores.min()) / (scores.max() - scores.min()).clamp(min=1)).clamp(0, 1)
    for ours, theirs in (
        (metrics.average_precision, multilabel_average_precision),
        (metrics.roc_auc, multilabel_auroc),
    ):
        expected = theirs(shares, target.long(), num_labels=3, average="macro")
        assert ours(shares, target, dim=0).item() == pytest.approx(expected.item(), abs=1e-6)


ALL = [
    *RANKING,
    metrics.pr_auc,
    metrics.fbeta_score,
    lambda *a, **o: metrics.precision_at_recall(*a, recall=0.5, **o),
    lambda *a, **o: metrics.recall_at_precision(*a, precision=0.5, **o),
    metrics.reciprocal_rank,
    lambda *a, **o: metrics.precision_at_k(*a, k=3, **o),
    lambda *a, **o: metrics.recall_at_k(*a, k=3, **o),
]


@pytest.mark.parametrize("metric", ALL)
def test_dim_is_the_axis_of_the_items(metric):
    scores, target = torch.randn(2, 9, 3), torch.rand(2, 9, 3) < 0.5
    mask = torch.rand(2, 9, 3) < 0.9
    expected = metric(
        scores.transpose(1, 2), target.transpose(1, 2), mask=mask.transpose(1, 2), reduction="none"
    )
    for dim in (1, -2):
        found = metric(scores, target, mask=mask, dim=dim, reduction="none")
        torch.testing.assert_close(found, expected, equal_nan=True)
        assert found.shape == (2, 3)


@pytest.mark.parametrize("metric", ALL)
def test_one_column_has_to_say_what_it_is(metric):
    scores, target = torch.randn(6, 1), torch.arange(6).unsqueeze(1) % 2
    for labels in (target, target[:, 0]):
        with pytest.raises(ValueError, match=r"`scores` must be lists of items.*pass dim=0"):
            metric(scores, labels)
        assert metric(scores, labels, dim=0) == metric(scores[:, 0], target[:, 0])
    with pytest.raises(ValueError, match=r"`dim` must be a dimension in \[-2, 1\]; got 2"):
        metric(scores, target, dim=2)


# ---- 0/0 -----------------------------------------------------------------------------------------


@every_metric
def test_lists_with_one_kind_of_items(metric):
    scores = torch.tensor([[3.0, 2.0, 1.0], [3.0, 3.0, 1.0], [1.0, 2.0, 3.0]])
    target = torch.tensor([[1, 0, 1], [1, 1, 1], [0, 0, 0]])
    values = metric(scores, target, reduction="none")
    if metric is metrics.roc_auc:  # no pair
        assert values[1].isnan()
    else:
        assert values[1].item() == pytest.approx(1)
        assert metric(scores, target, ties="worst", reduction="none")[1] == 1
    assert values[2].isnan()
    assert metric(scores, target).item() == pytest.approx(np.nanmean(values))
    assert metric(scores[2], target[2]).isnan(), "the mean of nothing"
    assert metric(scores[2], target[2], zero_division=0.0) == 0
    assert metric(scores, target, zero_division=0.25, reduction="none")[2] == 0.25
    found = metric(scores, target, zero_division=0.25)
    assert found.item() == pytest.approx(values.nan_to_num(0.25).mean().item())


@every_metric
def test_nothing_that_counts_is_left_out_whatever_zero_division_is(metric):
    scores, target = torch.randn(2, 4), torch.tensor([[1, 0, 1, 0], [1, 0, 0, 0]])
    mask = torch.tensor([[True] * 4, [False] * 4])
    assert metric(scores, target, mask=mask, zero_division=0.0) == metric(scores[0], target[0])
    assert metric(scores[:, :0], target[:, :0], zero_division=0.0).isnan()
    assert metric(scores[:0], target[:0], zero_division=0.0).isnan()


@every_metric
def test_a_nan_that_counts_is_not_hidden(metric):
    scores = torch.tensor([[3.0, 2.0, 1.0], [math.nan, 2.0, 1.0]])
    target = torch.tensor([[1, 0, 1], [0, 0, 1]])
    assert metric(scores, target).isnan()
    assert metric(scores, torch.zeros_like(target), zero_division=0.0).isnan()
    assert metric(scores, target, reduction="none").isnan().tolist() == [False, True]
    mask = scores.isfinite()
    assert metric(scores[1], target[1], mask=mask[1]) == metric(scores[1, 1:], target[1, 1:])
