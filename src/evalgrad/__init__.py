"""evalgrad: train PyTorch networks on the metric they are judged by."""

from evalgrad import metrics
from evalgrad.direct_loss import (
    AveragePrecisionHingeLoss,
    AveragePrecisionPerceptronLoss,
    DirectAveragePrecisionLoss,
    DirectJaccardLoss,
    DirectNDCGLoss,
    DirectZeroOneLoss,
    ZeroOneHingeLoss,
    ZeroOnePerceptronLoss,
    average_precision_hinge_loss,
    average_precision_perceptron_loss,
    direct_average_precision_loss,
    direct_jaccard_loss,
    direct_loss,
    direct_ndcg_loss,
    direct_zero_one_loss,
    suggest_epsilon,
    zero_one_hinge_loss,
    zero_one_perceptron_loss,
)
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
    "AveragePrecisionHingeLoss",
    "AveragePrecisionPerceptronLoss",
    "DirectAveragePrecisionLoss",
    "DirectJaccardLoss",
    "DirectNDCGLoss",
    "DirectZeroOneLoss",
    "LovaszHingeLoss",
    "LovaszSoftmaxLoss",
    "ZeroOneHingeLoss",
    "ZeroOnePerceptronLoss",
    "average_precision_hinge_loss",
    "average_precision_perceptron_loss",
    "direct_average_precision_loss",
    "direct_jaccard_loss",
    "direct_loss",
    "direct_ndcg_loss",
    "direct_zero_one_loss",
    "jaccard_lovasz_extension",
    "lovasz_hinge_loss",
    "lovasz_prox",
    "lovasz_softmax_loss",
    "metrics",
    "suggest_epsilon",
    "zero_one_hinge_loss",
    "zero_one_perceptron_loss",
]
