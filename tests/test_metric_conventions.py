"""What docs/metrics.md says of 0/0 here, in scikit-learn and in torchmetrics."""

import math
import re
from pathlib import Path

import pytest
import sklearn.metrics as theirs
import torch
import torchmetrics.functional.classification as tmc
import torchmetrics.functional.retrieval as tmr

from evalgrad import metrics

PAGE = (Path(__file__).parent.parent / "docs" / "metrics.md").read_text()
SCORES, NONE = torch.tensor([0.2, 0.1, 0.4]), torch.zeros(3, dtype=torch.long)

# metric: here, scikit-learn, torchmetrics, each of nothing but negatives
ROWS = {
    "average_precision": (
        metrics.average_precision,
        lambda s, y: theirs.average_precision_score(y, s),
        tmc.binary_average_precision,
    ),
    "ndcg": (
        metrics.ndcg,
        lambda s, y: theirs.ndcg_score(y[None], s[None]),
        tmr.retrieval_normalized_dcg,
    ),
    "roc_auc": (metrics.roc_auc, lambda s, y: theirs.roc_auc_score(y, s), tmc.binary_auroc),
    "reciprocal_rank": (metrics.reciprocal_rank, None, tmr.retrieval_reciprocal_rank),
    "recall_at_k": (
        lambda s, y: metrics.recall_at_k(s, y, k=2),
        None,
        lambda s, y: tmr.retrieval_recall(s, y, top_k=2),
    ),
    "precision_at_k": (
        lambda s, y: metrics.precision_at_k(s, y, k=2),
        None,
        lambda s, y: tmr.retrieval_precision(s, y, top_k=2),
    ),
    "precision_at_recall": (
        lambda s, y: metrics.precision_at_recall(s, y, recall=0.5),
        None,
        lambda s, y: tmc.binary_precision_at_fixed_recall(s, y, min_recall=0.5)[0],
    ),
    "recall_at_precision": (
        lambda s, y: metrics.recall_at_precision(s, y, precision=0.5),
        None,
        lambda s, y: tmc.binary_recall_at_fixed_precision(s, y, min_precision=0.5)[0],
    ),
    "pr_auc": (metrics.pr_auc, None, None),
    "fbeta_score": (
        lambda s, y: metrics.fbeta_score(s, y, threshold=0.5),
        lambda s, y: theirs.f1_score(y, s > 0.5),
        tmc.binary_f1_score,
    ),
    "jaccard_index": (
        lambda s, y: metrics.jaccard_index(s[None] > 0.5, y[None], num_classes=2, classes=[1]),
        lambda s, y: theirs.jaccard_score(y, s > 0.5),
        tmc.binary_jaccard_index,
    ),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.filterwarnings("ignore")  # theirs, of 0/0
def test_the_table_of_0_by_0_is_true(name):
    table = PAGE[PAGE.index("| metric | 0/0 |") :]
    row = re.search(rf"^\|.*`{name}`.*$", table, re.M)[0]
    for words, call in zip(row.split("|")[3:6], ROWS[name]):
        if words.strip() == "-":
            assert call is None
        else:
            assert float(call(SCORES, NONE)) == pytest.approx(float(words), nan_ok=True)


@pytest.mark.filterwarnings("ignore")
def test_torchmetrics_leaves_absent_classes_out_of_the_macro_average():
    prediction = torch.tensor([[2.0, 0.0, 1.0], [0.0, 2.0, 1.0]])
    target = torch.tensor([0, 0])
    expected = tmc.multiclass_f1_score(prediction, target, num_classes=3).item()
    assert metrics.fbeta_score(prediction, target).item() == pytest.approx(expected)
    index = metrics.jaccard_index(
        prediction.argmax(1)[None],
        target[None],
        num_classes=3,
        classes="all",
        zero_division=math.nan,
    )
    expected = tmc.multiclass_jaccard_index(prediction, target, num_classes=3).item()
    assert index.item() == pytest.approx(expected)


def test_torchmetrics_retrieval_depends_on_the_order_of_ties():
    scores = torch.tensor([0.5, 0.5, 0.1])
    orders = torch.tensor([[1, 0, 0], [0, 1, 0]])
    first, second = (tmr.retrieval_average_precision(scores, y) for y in orders)
    assert first != second
    first, second = (tmr.retrieval_normalized_dcg(scores, y) for y in orders)
    assert first == second
    assert metrics.ndcg(scores, orders[0]).item() == pytest.approx(first.item())
