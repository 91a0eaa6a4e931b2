"""Wrong metrics that the comparisons with scikit-learn must reject, each a mistake that is easily
made.
"""

import math

import pytest
import test_fbeta_score
import test_ranking_metrics
import torch
from test_broken import fails

from evalgrad import metrics
from evalgrad.metrics import curves

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

    def by_place(discount, found):
        start, end = found.start(), found.end()
        total = torch.nn.functional.pad(discount.cumsum(-1), (1, 0))
        return (total.gather(-1, end) - total.gather(-1, start)) / (end - start)

    monkeypatch.setattr("evalgrad.metrics.ranking._group_mean", by_place)
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
    assert fails(test_ranking_metrics.test_a_nan_that_counts_is_not_hidden, metrics.ndcg)
