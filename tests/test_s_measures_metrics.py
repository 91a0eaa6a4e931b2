"""The exact metrics against loops over thresholds, with ties, and against scikit-learn without
them.
"""

import numpy as np
import oracles_s_measures as oracles
import pytest
import torch
from sklearn.metrics import roc_auc_score

from evalgrad import metrics

CASES = [
    (metrics.fbeta_score, oracles.fbeta, {"beta": 0.5}),
    (metrics.fbeta_score, oracles.fbeta, {"beta": 2.0}),
    (metrics.precision_at_recall, oracles.precision_at_recall, {"recall": 0.3}),
    (metrics.precision_at_recall, oracles.precision_at_recall, {"recall": 1.0}),
    (metrics.recall_at_precision, oracles.recall_at_precision, {"precision": 0.5}),
    (metrics.recall_at_precision, oracles.recall_at_precision, {"precision": 0.9}),
    (metrics.roc_auc, oracles.roc_auc, {}),
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


def test_roc_equals_sklearn_without_ties_and_collapse_scores_zero():
    torch.manual_seed(0)
    y, scores = torch.rand(300) < 0.3, torch.randn(300)
    assert float(metrics.roc_auc(scores, y)) == pytest.approx(roc_auc_score(y, scores), abs=1e-6)
    assert metrics.roc_auc(torch.zeros(300), y) == 0


def test_void_rows_are_nan_and_nan_scores_show():
    scores = torch.tensor([[1.0, 2.0], [1.0, torch.nan]])
    assert (
        metrics.fbeta_score(scores, torch.tensor([[0, 0], [1, 0]]), reduction="none").isnan().all()
    )
    assert metrics.roc_auc(scores, torch.tensor([[1, 1], [1, 0]]), reduction="none").isnan().all()


@pytest.mark.parametrize(("ours", "oracle", "options"), CASES)
def test_the_mean_leaves_void_lists_out(ours, oracle, options):
    scores, target = torch.randn(4, 9, dtype=torch.float64), torch.arange(36).reshape(4, 9) % 3 == 0
    target[2] = False
    expected = np.mean([oracle(scores[i].numpy(), target[i].numpy(), **options) for i in (0, 1, 3)])
    assert float(ours(scores, target, **options)) == pytest.approx(expected, abs=1e-12)
    assert ours(scores, target, reduction="none", **options).isnan().tolist() == [
        False,
        False,
        True,
        False,
    ]
    assert ours(scores[:, :0], target[:, :0], **options).isnan()
