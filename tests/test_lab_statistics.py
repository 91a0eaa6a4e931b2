"""The numbers of a comparison, against scipy's paired t-test and formulas."""

import math

import numpy as np
import pytest
from scipy import stats
from synthetic_runs import TASKS, comparison

from evalgrad_lab.report import panels


def values(records, task, budget, loss):
    return [
        r["test"][r["metric"]]
        for r in records
        if (r["task"], r["budget"], r["loss"]) == (task, budget, loss)
    ]


@pytest.fixture(scope="module")
def records():
    return comparison()["records"]


def test_every_row_is_what_scipys_paired_test_says(records):
    for panel in panels.panels(records):
        reference = values(records, panel.task, panel.budget, panel.reference.loss)
        for row in panel.rows:
            own = values(records, panel.task, panel.budget, row.loss)
            assert row.mean == pytest.approx(np.mean(own))
            assert row.spread == pytest.approx(
                math.sqrt(sum((v - np.mean(own)) ** 2 for v in own) / (len(own) - 1))
            )
            if row is not panel.reference:
                test = stats.ttest_rel(own, reference)
                assert row.difference.interval == pytest.approx(
                    tuple(test.confidence_interval(panels.CONFIDENCE))
                )
                expected = (
                    "tie"
                    if test.pvalue >= 1 - panels.CONFIDENCE
                    else "win"
                    if test.statistic > 0
                    else "loss"
                )
                assert row.difference.verdict == expected


def test_the_data_hold_all_three_verdicts(records):
    assert {
        row.difference.verdict for p in panels.panels(records) for row in p.rows if row.difference
    } == {
        "win",
        "tie",
        "loss",
    }


def test_panels_keep_the_order_of_the_records_with_baselines_first(records):
    found = panels.panels(records)
    assert [(p.task, p.budget) for p in found] == [
        (task[0], budget) for task in TASKS for budget in task[4]
    ]
    shuffled = panels.panels(reversed([r for r in records if r["task"] == "strokes"]))[0]
    assert [row.role for row in shuffled.rows] == ["baseline"] * 3 + ["ours"]


def run(loss, role, seed, test, validation, metric="AP"):
    shape = {
        "task": "t",
        "title": "T",
        "designed": False,
        "budget": "10 iterations",
        "metric": metric,
    }
    validation = {} if validation is None else {metric: validation}
    return {
        **shape,
        "loss": loss,
        "role": role,
        "seed": seed,
        "test": {metric: test},
        "validation": validation,
    }


def test_reference_and_champion_are_chosen_on_validation_not_on_test():
    runs = [
        run("lucky", "baseline", 0, test=0.9, validation=0.1),
        run("tuned", "baseline", 0, test=0.5, validation=0.6),
        run("lucky ours", "ours", 0, test=0.9, validation=0.2),
        run("tuned ours", "ours", 0, test=0.7, validation=0.3),
    ]
    [panel] = panels.panels(runs)
    assert (panel.reference.loss, panel.champion.loss) == ("tuned", "tuned ours")
    assert panel.champion.difference.mean == pytest.approx(0.7 - 0.5)


def test_without_validation_the_reference_is_the_best_on_test():
    [panel] = panels.panels(
        [run("a", "baseline", 0, 0.2, None), run("b", "baseline", 0, 0.4, None)]
    )
    assert panel.reference.loss == "b"
    assert panel.champion is None


def test_one_seed_has_no_interval_and_no_verdict():
    [panel] = panels.panels([run("a", "baseline", 0, 0.2, 0.2), run("b", "ours", 0, 0.4, 0.4)])
    assert panel.champion.spread is None
    assert panel.champion.difference.interval is None
    assert panel.verdict == "unknown"


def test_only_common_seeds_are_paired():
    difference = panels.paired_difference({0: 0.5, 1: 0.7, 5: 0.0}, {1: 0.6, 0: 0.3, 7: 1.0})
    assert difference.pairs == 2
    assert difference.mean == pytest.approx((0.2 + 0.1) / 2)
    # Student's quantile of one degree of freedom is that of Cauchy: tan(pi (p - 1/2)).
    half = math.tan(math.pi * 0.475) * (0.1 / math.sqrt(2)) / math.sqrt(2)
    assert difference.interval == pytest.approx((0.15 - half, 0.15 + half))
    assert panels.paired_difference({0: 0.5}, {1: 0.5}) is None


def test_equal_runs_tie_and_a_constant_gain_wins():
    assert panels.paired_difference({0: 0.5, 1: 0.6}, {0: 0.5, 1: 0.6}).verdict == "tie"
    assert panels.paired_difference({0: 0.75, 1: 0.5}, {0: 0.5, 1: 0.25}).verdict == "win"


def test_without_a_baseline_there_is_no_difference():
    [panel] = panels.panels([run("b", "ours", 0, 0.4, 0.4), run("b", "ours", 1, 0.4, 0.4)])
    assert panel.reference is None
    assert panel.champion.difference is None
    assert panel.verdict == "unknown"


def test_rank_correlation_is_that_of_the_ranks():
    x, y = [0.1, 5.0, 2.0, 2.5], [0.9, 0.1, 0.8, 0.3]
    assert panels.rank_correlation(x, y) == pytest.approx(
        np.corrcoef(np.argsort(np.argsort(x)), np.argsort(np.argsort(y)))[0, 1]
    )
    assert panels.rank_correlation([1.0, 1.0], [0.1, 0.2]) is None
    assert panels.rank_correlation([1.0, math.inf], [0.1, 0.2]) is None
