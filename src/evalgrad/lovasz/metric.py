"""The metrics that the Lovász losses can follow: the Tversky index, and Jaccard and Dice as cases.

    index = hits / (hits + misses x number of misses + false_alarms x number of false alarms)

Its loss 1 - index is a function of the set of mispredicted pixels, which is what a Lovász extension
needs. Tversky: Features of similarity, Psychological Review 1977.
"""

from typing import Literal, NamedTuple

from evalgrad._errors import describe, fail
from evalgrad._options import CHECKS, one_of


class Tversky(NamedTuple):
    """The Tversky index as a `metric` of the Lovász losses.

    Args:
        misses: weight of a false negative, a missed pixel of the class, relative to a hit.
        false_alarms: weight of a false positive, a pixel wrongly assigned to the class.

    Example:
        >>> import evalgrad as eg
        >>> loss = eg.LovaszSoftmaxLoss(metric=eg.Tversky(misses=0.7, false_alarms=0.3))
    """

    misses: float
    false_alarms: float


Metric = Literal["jaccard", "dice"] | Tversky

# A loss looks its metric up here without a call: `METRICS.get(metric, metric)`.
METRICS: dict[object, Tversky] = {"jaccard": Tversky(1.0, 1.0), "dice": Tversky(0.5, 0.5)}


def metric_choice(function: str, argument: str, value: object) -> None:
    """A check of options: the name of a metric, or `Tversky` with its weights."""
    if isinstance(value, Tversky):
        for name in ("misses", "false_alarms"):  # torch 2.6 cannot compile `_asdict`
            CHECKS[name](function, f"{argument}.{name}", getattr(value, name))
    elif isinstance(value, str):
        one_of(*METRICS)(function, argument, value)  # type: ignore[arg-type]
    else:
        must = '"jaccard", "dice" or a Tversky'
        repair = "Pass e.g. metric=evalgrad.Tversky(misses=0.7, false_alarms=0.3)."
        fail(TypeError, function, argument, must, describe(value), repair)
