"""What the segmentation papers compare with, under the arguments and the hard cases of the other
losses.
"""

from evalgrad.baselines.bootstrapping import BootstrappedCrossEntropy, bootstrapped_cross_entropy
from evalgrad.baselines.frequencies import inverse_frequency_weights, median_frequency_weights
from evalgrad.baselines.soft_jaccard import SoftJaccardLoss, soft_jaccard_loss

__all__ = [
    "BootstrappedCrossEntropy",
    "SoftJaccardLoss",
    "bootstrapped_cross_entropy",
    "inverse_frequency_weights",
    "median_frequency_weights",
    "soft_jaccard_loss",
]
