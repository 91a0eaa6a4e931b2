"""Wrong metrics that the comparisons with scikit-learn must reject, each a mistake that is easily
made.
"""

import math

import oracles_rankings
import pytest
import test_fbeta_score
import test_first_places
import test_ranking_metrics
import torch
from test_broken import fails

from evalgrad import metrics
from evalgrad.metrics import curves, gains, tied_groups

RIGHT = {metric.__name__: metric for metric in test_ranking_metrics.RANKING}


def rejected_ranking(metric, name, levels=(3,), **options):
    check = test_ranking_metrics.check_is_scikit_learns
    return any(
        fails(check, metric, name, seed, level, **options) for seed in range(10) for level in levels
    )


@pytest.mark.parametrize("name", RIGHT)
def test_the_right_ones_pass(name):
    assert not rejected_ranking(RIGHT[name], name, (None, 3))


@pytest.mark.parametrize("name", RIGHT)
def test_worst_ties_are_not_standard(name):
    def worst(*args, **options):
        return RIGHT[name](*args, ties="worst", **options)

    assert rejected_ranking(worst, name)
    assert not rejected_worst_without_ties(worst, name)


def rejected_worst_without_ties(worst, name):
    """Apart from the second half of the check, which ties items at -inf."""
    scores, target = test_ranking_metrics.draw(0)
    expected = [
        test_ranking_metrics.REFERENCE[name](y.numpy(), s.numpy())
        for s, y in zip(scores, target.long())
    ]
    return worst(scores, target, reduction="none").tolist() != pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", RIGHT)
def test_the_best_order_of_ties_is_rejected(name):
    """What a sort gives that happens to see the positives first."""

    def best(scores, target, **options):
        return RIGHT[name](scores + 1e-6 * target.double(), target, **options)

    assert rejected_ranking(best, name)


def test_ties_that_reach_into_what_is_left_out_are_rejected(monkeypatch):
    """An item left out may tie with one that counts at -inf; it must not widen the group."""

    def of_all(x, start, there):
        return tied_groups.group_mean(x, start, torch.ones_like(there))

    monkeypatch.setattr(gains, "group_mean", of_all)
    assert rejected_ranking(metrics.ndcg, "ndcg")


def test_a_cutoff_inside_a_tied_group_is_not_a_cut_of_the_list():
    """k places of the averaged orders, not the items that the sort happens to put there."""

    def first_items(scores, target, *, k, **options):
        order = scores.argsort(descending=True, stable=True)[..., :k]
        if "mask" in options:
            options["mask"] = options["mask"].gather(-1, order)
        return metrics.ndcg(scores.gather(-1, order), target.gather(-1, order), **options)

    assert rejected_ranking(first_items, "ndcg", k=3)
    assert not rejected_ranking(metrics.ndcg, "ndcg", k=3)


def rejected_fbeta(fbeta, check):
    return any(
        fails(check, fbeta, seed, 2.0, zero_division, reduction)
        for seed in range(30)
        for zero_division in (0.0, 1.0, math.nan)
        for reduction in test_fbeta_score.AVERAGES
    )


def inverse_beta(scores, target, *, beta, **options):
    return metrics.fbeta_score(scores, target, beta=1 / beta, **options)


def zero_for_nan(scores, target, **options):
    return metrics.fbeta_score(scores, target, **options).nan_to_num(0.0)


WRONG = [inverse_beta, zero_for_nan]
CHECKS = [test_fbeta_score.check_multi_label, test_fbeta_score.check_multi_class]


@pytest.mark.parametrize("check", CHECKS)
def test_wrong_fbeta_is_rejected(check):
    assert not rejected_fbeta(metrics.fbeta_score, check)
    for wrong in WRONG:
        assert rejected_fbeta(wrong, check), wrong.__name__


def test_false_alarms_without_positives_are_not_0_by_0():
    def what_this_library_did(scores, target, *, reduction, **options):
        values = metrics.fbeta_score(scores, target, reduction="none", **options)
        values = torch.where(target.any(0), values, options["zero_division"])
        return values.nanmean() if reduction == "mean" else values

    check = test_fbeta_score.check_multi_label
    for reduction in ("mean", "none"):
        wrong = [
            fails(check, what_this_library_did, seed, 1.0, zero_division, reduction)
            for seed in range(30)
            for zero_division in (1.0, math.nan)
        ]
        assert any(wrong)
        assert not all(wrong), "it differs there alone"


def test_scores_on_the_threshold_are_seen():
    def worst(*args, **options):
        return metrics.fbeta_score(*args, ties="worst", **options)

    assert rejected_fbeta(worst, test_fbeta_score.check_multi_label)


def test_a_mean_that_hides_nan_is_rejected(monkeypatch):
    def forgiving(value, weight):
        weight = torch.where(value.isnan(), 0.0, weight)
        return torch.where(weight == 0, 0.0, value).sum(-1) / weight.sum(-1)

    monkeypatch.setattr(curves, "mean", forgiving)
    assert fails(test_ranking_metrics.test_a_nan_that_counts_is_not_hidden, metrics.roc_auc)


# ---- the first places and graded NDCG ------------------------------------------------------------


def rejected_first_places(metric, name, seeds=range(15)):
    oracle = getattr(oracles_rankings, name)
    grades = 4 if name == "ndcg" else 2
    check = test_first_places.check_meets_every_order
    drawn = [(k, *test_first_places.draw(seed, grades=grades)) for seed in seeds for k in (1, 3)]
    return any(fails(check, metric, oracle, s, y.double(), y, k, k=k) for k, s, y in drawn)


def as_they_come(metric):
    """The items that a sort happens to put first."""

    def broken(scores, target, *, ties, **options):
        return metric(scores - 1e-6 * torch.arange(scores.shape[-1]), target, ties=ties, **options)

    return broken


def over_hits(scores, target, *, k, **options):
    """torchmetrics' mean over the positives that were found."""
    found = metrics.average_precision(scores, target, k=k, **options)
    return found / metrics.recall_at_k(scores, target, k=k, **options).clamp(min=1e-9)


def first_of_the_group(scores, target, *, ties, **options):
    """The reciprocal rank of a tied group's mean place."""
    worst = metrics.reciprocal_rank(scores, target, ties="worst", **options)
    if ties == "worst":
        return worst
    best = metrics.reciprocal_rank(scores + 1e-6 * target, target, ties="worst", **options)
    return 2 / (1 / worst + 1 / best).nan_to_num(posinf=math.inf)


def whole_ideal(scores, target, *, k, **options):
    """The ideal gain without the cutoff."""
    gains = (target * options["mask"]).double().sort(-1, descending=True).values
    gained = gains / torch.log2(torch.arange(gains.shape[-1]) + 2.0)
    return metrics.ndcg(scores, target, k=k, **options) * gained[:, :k].sum(-1) / gained.sum(-1)


BROKEN = {
    "precision": [as_they_come(metrics.precision_at_k)],
    "recall": [as_they_come(metrics.recall_at_k)],
    "reciprocal_rank": [as_they_come(metrics.reciprocal_rank), first_of_the_group],
    "average_precision": [over_hits],
    "ndcg": [as_they_come(metrics.ndcg), whole_ideal],
}
MENDED = {
    "precision": metrics.precision_at_k,
    "recall": metrics.recall_at_k,
    "reciprocal_rank": metrics.reciprocal_rank,
    "average_precision": metrics.average_precision,
    "ndcg": metrics.ndcg,
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_first_places_are_rejected(name):
    assert not rejected_first_places(MENDED[name], name)
    for wrong in BROKEN[name]:
        assert rejected_first_places(wrong, name), wrong.__name__


def test_an_ideal_order_by_grade_instead_of_weighted_gain_is_rejected():
    scores, target = test_first_places.draw(1, grades=4)
    weight = torch.tensor([[0.1, 5.0, 1.0, 1.0, 1.0, 1.0]] * 2, dtype=torch.float64)
    gains = weight * target
    by_grade = torch.stack([g[y.argsort(descending=True)] for g, y in zip(gains, target)])
    discount = 1 / torch.log2(torch.arange(6) + 2.0).double()
    right = (gains.sort(-1, descending=True).values * discount).sum(-1)
    assert ((by_grade * discount).sum(-1) < right - 0.01).any(), "here they differ"

    def wrong(scores, target, *, item_weight, **options):
        value = metrics.ndcg(scores, target, item_weight=item_weight, **options)
        return value * right / (by_grade * discount).sum(-1)

    check = test_first_places.check_meets_every_order
    args = (oracles_rankings.ndcg, scores, gains, target, None)
    assert fails(check, wrong, *args, item_weight=weight)
    assert not fails(check, metrics.ndcg, *args, item_weight=weight)
