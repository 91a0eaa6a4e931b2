"""Smooth top-k: training for top-k error, exactly at any temperature. One file per sub-topic."""

from evalgrad.smooth_topk.hinge import TopKHingeLoss, topk_hinge_loss
from evalgrad.smooth_topk.loss import SmoothTopKLoss, smooth_topk_loss
from evalgrad.smooth_topk.probabilities import topk_predict, topk_probabilities
from evalgrad.smooth_topk.symmetric import log_elementary_symmetric

__all__ = [
    "SmoothTopKLoss",
    "TopKHingeLoss",
    "log_elementary_symmetric",
    "smooth_topk_loss",
    "topk_hinge_loss",
    "topk_predict",
    "topk_probabilities",
]
