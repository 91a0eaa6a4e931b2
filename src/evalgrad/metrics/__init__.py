"""The exact metrics that the losses follow: the promise, executable. Plain torch, same hard cases
as the losses.
"""

from evalgrad.metrics.jaccard import jaccard_counts, jaccard_from_counts, jaccard_index
from evalgrad.metrics.ranking import average_precision, ndcg
from evalgrad.metrics.thresholds import (
    fbeta_score,
    pr_auc,
    precision_at_recall,
    recall_at_precision,
    roc_auc,
)
from evalgrad.metrics.topk import topk_error

__all__ = [
    "average_precision",
    "fbeta_score",
    "jaccard_counts",
    "jaccard_from_counts",
    "jaccard_index",
    "ndcg",
    "pr_auc",
    "precision_at_recall",
    "recall_at_precision",
    "roc_auc",
    "topk_error",
]
