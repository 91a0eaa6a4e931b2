"""Direct loss minimisation: training on the task loss itself, for rankings, sets, decisions and
anything else with an inference.
"""

from evalgrad.direct_loss.general import direct_loss
from evalgrad.direct_loss.graded import DirectGradedNDCGLoss, direct_graded_ndcg_loss
from evalgrad.direct_loss.jaccard import DirectJaccardLoss, direct_jaccard_loss
from evalgrad.direct_loss.ranking import (
    DirectAveragePrecisionLoss,
    DirectNDCGLoss,
    direct_average_precision_loss,
    direct_ndcg_loss,
)
from evalgrad.direct_loss.retrieval import (
    RetrievalAveragePrecisionLoss,
    retrieval_average_precision_loss,
)
from evalgrad.direct_loss.structured import (
    AveragePrecisionHingeLoss,
    AveragePrecisionPerceptronLoss,
    ZeroOneHingeLoss,
    ZeroOnePerceptronLoss,
    average_precision_hinge_loss,
    average_precision_perceptron_loss,
    zero_one_hinge_loss,
    zero_one_perceptron_loss,
)
from evalgrad.direct_loss.suggest import suggest_epsilon
from evalgrad.direct_loss.zero_one import DirectZeroOneLoss, direct_zero_one_loss

__all__ = [
    "AveragePrecisionHingeLoss",
    "AveragePrecisionPerceptronLoss",
    "DirectAveragePrecisionLoss",
    "DirectGradedNDCGLoss",
    "DirectJaccardLoss",
    "DirectNDCGLoss",
    "DirectZeroOneLoss",
    "RetrievalAveragePrecisionLoss",
    "ZeroOneHingeLoss",
    "ZeroOnePerceptronLoss",
    "average_precision_hinge_loss",
    "average_precision_perceptron_loss",
    "direct_average_precision_loss",
    "direct_graded_ndcg_loss",
    "direct_jaccard_loss",
    "direct_loss",
    "direct_ndcg_loss",
    "direct_zero_one_loss",
    "retrieval_average_precision_loss",
    "suggest_epsilon",
    "zero_one_hinge_loss",
    "zero_one_perceptron_loss",
]
