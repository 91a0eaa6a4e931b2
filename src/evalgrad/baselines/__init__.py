"""What the papers compare with, under the arguments and the hard cases of the other
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
from evalgrad.baselines.sorting_network import SortingNetworkTopKLoss, sorting_network_topk_loss
from evalgrad.baselines.topk import (
    TopKEntropyLoss,
    TopKSVMLoss,
    topk_entropy_loss,
    topk_svm_loss,
)

__all__ = [
    "BootstrappedCrossEntropy",
    "FocalLoss",
    "SoftDiceLoss",
    "SoftJaccardLoss",
    "SoftTverskyLoss",
    "SortingNetworkTopKLoss",
    "TopKEntropyLoss",
    "TopKSVMLoss",
    "bootstrapped_cross_entropy",
    "focal_loss",
    "inverse_frequency_weights",
    "median_frequency_weights",
    "soft_dice_loss",
    "soft_jaccard_loss",
    "soft_tversky_loss",
    "sorting_network_topk_loss",
    "topk_entropy_loss",
    "topk_svm_loss",
]
