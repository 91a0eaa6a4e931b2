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
from evalgrad.smooth_topk import (
    SmoothTopKLoss,
    TopKHingeLoss,
    log_elementary_symmetric,
    smooth_topk_loss,
    topk_hinge_loss,
    topk_predict,
    topk_probabilities,
)

__version__ = "0.1.0"

__all__ = [
    "LovaszHingeLoss",
    "LovaszSoftmaxLoss",
    "SmoothTopKLoss",
    "TopKHingeLoss",
    "jaccard_lovasz_extension",
    "log_elementary_symmetric",
    "lovasz_hinge_loss",
    "lovasz_prox",
    "lovasz_softmax_loss",
    "metrics",
    "smooth_topk_loss",
    "topk_hinge_loss",
    "topk_predict",
    "topk_probabilities",
]
