"""The trapezoidal rule of required areas: what their anchors weigh, and what they show."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class RequiredArea(NamedTuple):
    """An area that must be reached, and how much of it rates (K, 4) of its anchors show."""

    at_least: float
    shown: Callable[[Tensor], Tensor]

    def missing(self, rates: Tensor) -> float:
        return self.at_least - float(self.shown(rates))


def trapezoid_shares(points: list[float]) -> Tensor:
    """The weights of the inner points in the area between the outer ones."""
    ends = torch.tensor(points)
    return (ends[2:] - ends[:-2]) / 2


def shown_area(
    rates: Tensor, *, of_predicted: bool = False, end: float = 1.0, rise: float = 1.0
) -> Tensor:
    """The area up to `end` under (0, 0), the anchors and (1, 1), each anchor where it is.

    Training asks for true positives at the rates of the anchors, and its anchors hover around these
    rates. At a lower rate than asked an anchor only adds area, so that what training is satisfied
    with is enough here; where it is a little higher, a little is lost.

    Args:
        rates: (K, 4), of the anchors, in any order.
        of_predicted: the false positives are counted per predicted positive, for the area under the
            precision-recall curve, and not per negative.
        end: of the area; before 1 the curve is level from the last anchor on.
        rise: how far before an anchor the curve leaves the level of the one before. A ROC curve of
            two points is the line between them, by chance alone. A precision-recall curve is not:
            between anchors much further apart than those asked for a line is too high, by .5 if
            everything is predicted.
    """
    hit, alarms, place = rates[:, 0].clamp_min(0), rates[:, 1], rates[:, 2]
    if of_predicted:
        place = alarms / (hit + alarms).clamp_min(torch.finfo(rates.dtype).tiny)
    hit = torch.where(place > end, 0, hit)
    x = torch.cat([rates.new_zeros(1), place.clamp(max=end), rates.new_full((1,), end)])
    y = torch.cat([rates.new_zeros(1), hit, rates.new_full((1,), float(end == 1))])
    rising = y.argsort()  # also where several are at the same rate
    order = rising[x[rising].argsort(stable=True)]
    level, width = y[order].cummax(0).values, x[order].diff()
    return (level[:-1] * width + level.diff() * width.clamp(max=rise) / 2).sum()
