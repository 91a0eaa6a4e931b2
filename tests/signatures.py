"""The public losses by the arguments that they take: a new one is tested without being listed."""

import inspect

import evalgrad as eg
from evalgrad import metrics


def losses_with(*arguments):
    return [
        function
        for name, function in vars(eg).items()
        if inspect.isfunction(function)
        and name.endswith(("_loss", "_entropy"))
        and {*arguments} <= inspect.signature(function).parameters.keys()
    ]


def names(function):
    return getattr(function, "__name__", type(function).__name__)


CLASS_MAPS = losses_with("logits", "target", "weight")
SAMPLES = losses_with("scores", "target", "k", "weight")
RANKINGS = losses_with("scores", "target", "dim")
assert len(CLASS_MAPS) >= 3
assert len(SAMPLES) >= 2
assert len(RANKINGS) >= 8
LIST_METRICS = [metrics.average_precision, metrics.ndcg, metrics.roc_auc, metrics.fbeta_score]
