"""evalgrad: train PyTorch networks on the metric they are judged by."""

from evalgrad import metrics
from evalgrad.baselines import (
    BootstrappedCrossEntropy,
    SoftJaccardLoss,
    bootstrapped_cross_entropy,
    inverse_frequency_weights,
    median_frequency_weights,
    soft_jaccard_loss,
)
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
from evalgrad.loss_max_pooling import LossMaxPooling, loss_max_pooling, loss_max_pooling_weights
from evalgrad.lovasz import (
    LovaszHingeLoss,
    LovaszSoftmaxLoss,
    jaccard_lovasz_extension,
    lovasz_hinge_loss,
    lovasz_prox,
    lovasz_softmax_loss,
)
from evalgrad.sampling import EquibatchSampler, PerformanceSampler, class_presence

__version__ = "0.1.0"

__all__ = [
    "AveragePrecisionHingeLoss",
    "AveragePrecisionPerceptronLoss",
    "BootstrappedCrossEntropy",
    "DirectAveragePrecisionLoss",
    "DirectJaccardLoss",
    "DirectNDCGLoss",
    "DirectZeroOneLoss",
    "EquibatchSampler",
    "LossMaxPooling",
    "LovaszHingeLoss",
    "LovaszSoftmaxLoss",
    "PerformanceSampler",
    "SoftJaccardLoss",
    "ZeroOneHingeLoss",
    "ZeroOnePerceptronLoss",
    "average_precision_hinge_loss",
    "average_precision_perceptron_loss",
    "bootstrapped_cross_entropy",
    "class_presence",
    "direct_average_precision_loss",
    "direct_jaccard_loss",
    "direct_loss",
    "direct_ndcg_loss",
    "direct_zero_one_loss",
    "inverse_frequency_weights",
    "jaccard_lovasz_extension",
    "loss_max_pooling",
    "loss_max_pooling_weights",
    "lovasz_hinge_loss",
    "lovasz_prox",
    "lovasz_softmax_loss",
    "median_frequency_weights",
    "metrics",
    "soft_jaccard_loss",
    "suggest_epsilon",
    "zero_one_hinge_loss",
    "zero_one_perceptron_loss",
]
