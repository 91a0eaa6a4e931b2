"""The Lovász family: surrogates of the Jaccard index (IoU), Dice and Tversky for segmentation. One
file per sub-topic.
"""

from evalgrad.lovasz.extension import jaccard_lovasz_extension
from evalgrad.lovasz.hinge import LovaszHingeLoss, lovasz_hinge_loss
from evalgrad.lovasz.metric import Tversky
from evalgrad.lovasz.prox import lovasz_prox
from evalgrad.lovasz.softmax import LovaszSoftmaxLoss, lovasz_softmax_loss

__all__ = [
    "LovaszHingeLoss",
    "LovaszSoftmaxLoss",
    "Tversky",
    "jaccard_lovasz_extension",
    "lovasz_hinge_loss",
    "lovasz_prox",
    "lovasz_softmax_loss",
]
