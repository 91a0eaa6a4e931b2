"""What the segmentation papers compare with, under the arguments and the hard cases of the other
losses.
"""

from evalgrad.baselines.bootstrapping import BootstrappedCrossEntropy, bootstrapped_cross_entropy
from evalgrad.baselines.focal import FocalLoss, focal_loss
from evalgrad.baselines.frequencies import inverse_frequency_weights, median_frequency_weights
from evalgrad.baselines.soft_overlap import (
    SoftDiceLoss,
    SoftJaccardLoss,
    SoftTverskyLoss,
    soft_dice_loss,
    soft_jaccard_loss,
    soft_tversky_loss,
)

__all__ = [
    "BootstrappedCrossEntropy",
    "FocalLoss",
    "SoftDiceLoss",
    "SoftJaccardLoss",
    "SoftTverskyLoss",
    "bootstrapped_cross_entropy",
    "focal_loss",
    "inverse_frequency_weights",
    "median_frequency_weights",
    "soft_dice_loss",
    "soft_jaccard_loss",
    "soft_tversky_loss",
]
