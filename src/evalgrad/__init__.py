"""evalgrad: train PyTorch networks on the metric they are judged by."""

from evalgrad import metrics
from evalgrad.loss_max_pooling import LossMaxPooling, loss_max_pooling, loss_max_pooling_weights
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
    "LossMaxPooling",
    "LovaszHingeLoss",
    "LovaszSoftmaxLoss",
    "jaccard_lovasz_extension",
    "loss_max_pooling",
    "loss_max_pooling_weights",
    "lovasz_hinge_loss",
    "lovasz_prox",
    "lovasz_softmax_loss",
    "metrics",
]
