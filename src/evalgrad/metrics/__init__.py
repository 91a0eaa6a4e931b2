"""The metrics that networks are judged by, exact, in plain torch: docs/metrics.md.

Defaults are scikit-learn's definitions; ``ties="worst"`` is what the losses follow.
"""

from evalgrad.metrics.fbeta import fbeta_score
from evalgrad.metrics.first_places import precision_at_k, recall_at_k, reciprocal_rank
from evalgrad.metrics.gains import ndcg
from evalgrad.metrics.jaccard import jaccard_counts, jaccard_from_counts, jaccard_index
from evalgrad.metrics.operating_points import (
    partial_roc_auc,
    pr_auc,
    precision_at_recall,
    recall_at_precision,
    sensitivity_at_specificity,
)
from evalgrad.metrics.ranking import average_precision, roc_auc
from evalgrad.metrics.retrieval import hit_rate_at_k, map_at_r, r_precision, retrieval_lists
from evalgrad.metrics.topk import topk_error
from evalgrad.metrics.tversky import dice, tversky_from_counts, tversky_index

__all__ = [
    "average_precision",
    "dice",
    "fbeta_score",
    "hit_rate_at_k",
    "jaccard_counts",
    "jaccard_from_counts",
    "jaccard_index",
    "map_at_r",
    "ndcg",
    "partial_roc_auc",
    "pr_auc",
    "precision_at_k",
    "precision_at_recall",
    "r_precision",
    "recall_at_k",
    "recall_at_precision",
    "reciprocal_rank",
    "retrieval_lists",
    "roc_auc",
    "sensitivity_at_specificity",
    "topk_error",
    "tversky_from_counts",
    "tversky_index",
]
