"""The metrics that the S-measures follow against loops over thresholds, with ties as the
S-measures take them.
"""

from functools import partial

import numpy as np
import oracles_s_measures as oracles
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torchmetrics.classification import BinarySensitivityAtSpecificity

from evalgrad import metrics

CASES = [
    (partial(metrics.fbeta_score, ties="worst"), oracles.fbeta, {"beta": 0.5}),
    (partial(metrics.fbeta_score, ties="worst"), oracles.fbeta, {"beta": 2.0}),
    (metrics.precision_at_recall, oracles.precision_at_recall, {"recall": 0.3}),
    (metrics.precision_at_recall, oracles.precision_at_recall, {"recall": 1.0}),
    (metrics.recall_at_precision, oracles.recall_at_precision, {"precision": 0.5}),
    (metrics.recall_at_precision, oracles.recall_at_precision, {"precision": 0.9}),
    (
        metrics.sensitivity_at_specificity,
        oracles.sensitivity_at_specificity,
        {"specificity": 0.6},
    ),
    (
        partial(metrics.partial_roc_auc, ties="worst"),
        oracles.partial_roc_auc,
        {"max_fpr": 0.35},
    ),
    (partial(metrics.roc_auc, ties="worst"), oracles.roc_auc, {}),
    (metrics.pr_auc, oracles.pr_auc, {}),
]


@pytest.mark.parametrize(("ours", "oracle", "options"), CASES)
@pytest.mark.parametrize("tied", [False, True])
def test_equals_the_oracle(ours, oracle, options, tied):
    draw = np.random.default_rng(3)
    for _ in range(100):
        n = int(draw.integers(2, 14))
        y = draw.random(n) < 0.4
        y[0], y[1] = True, False
        scores = draw.normal(size=n)
        scores = np.round(scores) if tied else scores
        padded, labels, mask = (
            torch.tensor(np.concatenate(p))
            for p in ((scores, [np.nan, 9.0]), (y, [1, 0]), (y | True, [False, False]))
        )
        expected = oracle(scores, y, **options)
        assert float(ours(torch.tensor(scores), torch.tensor(y), **options)) == pytest.approx(
            expected, abs=1e-12
        )
        assert float(ours(padded, labels, mask=mask.bool(), **options)) == pytest.approx(
            expected, abs=1e-12
        )


@pytest.mark.parametrize(("ours", "oracle", "options"), CASES)
def test_the_mean_leaves_void_lists_out(ours, oracle, options):
    scores, target = torch.randn(4, 9, dtype=torch.float64), torch.arange(36).reshape(4, 9) % 3 == 0
    target[2] = False
    if oracle is oracles.fbeta:
        scores[2] -= scores[2].max() + 1  # no alarm either
    expected = np.mean([oracle(scores[i].numpy(), target[i].numpy(), **options) for i in (0, 1, 3)])
    assert float(ours(scores, target, **options)) == pytest.approx(expected, abs=1e-12)
    values = ours(scores, target, reduction="none", **options)
    assert values.isnan().tolist() == [False, False, True, False]
    assert ours(scores, target, reduction="none", zero_division=0.5, **options)[2] == 0.5
    assert ours(scores[:, :0], target[:, :0], **options).isnan()
    scores[0, 0] = torch.nan
    assert ours(scores, target, reduction="none", **options)[0].isnan()
    assert ours(scores, target, **options).isnan()


@pytest.mark.parametrize("digits", [0, 1, 5])  # many ties, few, none
def test_equals_scikit_learn_and_torchmetrics(digits):
    draw = np.random.default_rng(digits)
    for _ in range(40):
        n = int(draw.integers(4, 40))
        y, scores = draw.random(n) < 0.4, np.round(draw.normal(size=n), digits)
        y[0], y[1] = True, False
        share, given = float(draw.uniform(0.05, 1)), (torch.tensor(scores), torch.tensor(y))
        area = float(metrics.partial_roc_auc(*given, max_fpr=share))
        assert area == pytest.approx(roc_auc_score(y, scores, max_fpr=share), abs=1e-9)
        judge = BinarySensitivityAtSpecificity(min_specificity=share)
        theirs, _ = judge(torch.tensor(scores).sigmoid(), torch.tensor(y).long())
        ours = metrics.sensitivity_at_specificity(*given, specificity=share)
        assert float(ours) == pytest.approx(float(theirs), abs=1e-6)
    assert metrics.partial_roc_auc(*given, max_fpr=1.0) == pytest.approx(
        float(metrics.roc_auc(*given))
    )


def test_a_rate_reached_exactly_is_reached():
    """0.07 x 100 is a little more than 7 in floating point."""
    assert 0.07 * 100 > 7
    target = torch.tensor([1] * 7 + [0] * 93 + [1] * 93)
    scores = -torch.arange(193.0)
    assert metrics.precision_at_recall(scores, target, recall=0.07) == 1
    # 7 of the first 100 are positive, and no threshold below them has that precision again
    rare = torch.tensor([0] * 93 + [1] * 7 + [0] * 100)
    assert metrics.recall_at_precision(-torch.arange(200.0), rare, precision=0.07) == 1
