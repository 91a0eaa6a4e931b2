"""From scores to the prediction that is best for the metric, without training: docs/decisions.md.

The rival of every loss here: a network of cross-entropy whose probabilities are right needs no
other loss, only another decision than argmax or 0.5.
"""

from evalgrad.decisions.class_offsets import class_offsets
from evalgrad.decisions.masks import dice_mask, jaccard_mask
from evalgrad.decisions.ratio import dataset_jaccard_labels, greedy_jaccard_labels
from evalgrad.decisions.thresholds import best_threshold

__all__ = [
    "best_threshold",
    "class_offsets",
    "dataset_jaccard_labels",
    "dice_mask",
    "greedy_jaccard_labels",
    "jaccard_mask",
]
