"""evalgrad: train PyTorch networks on the metric they are judged by."""

from evalgrad import metrics
from evalgrad.lovasz import (
    LovaszHingeLoss,
    LovaszSoftmaxLoss,
    jaccard_lovasz_extension,
    lovasz_hinge_loss,
    lovasz_prox,
    lovasz_softmax_loss,
)

__version__ = "0.1.0"

__all__ = [
    "LovaszHingeLoss",
    "LovaszSoftmaxLoss",
    "jaccard_lovasz_extension",
    "lovasz_hinge_loss",
    "lovasz_prox",
    "lovasz_softmax_loss",
    "metrics",
]
