"""Lists of scored items down their ranking, and the mean over lists.

Every metric of a ranking is a function of two counts, the true and the false positives among the
first i items, and of the places where a threshold can cut the ranking: not inside a group of items
with equal scores. Counts are integers, so that no metric depends on the scale of the scores.
"""

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from evalgrad._binary_inputs import Binary, lists
from evalgrad._grades import Graded
from evalgrad._options import one_of
from evalgrad._ranking import against_the_model
from evalgrad._rows import exact_dtype

Ties = Literal["standard", "worst"]
ListReduction = Literal["mean", "none"]
list_reduction = one_of("mean", "none")


class Curve(NamedTuple):
    """R rankings of n items at the places 0 .. n; negatives stand first in a tied group."""

    tp: Tensor  # (R, n + 1) true positives among the first items, from none on
    fp: Tensor  # (R, n + 1) false positives
    cut: Tensor  # (R, n + 1) bool: where a threshold can cut; behind every tied group
    given: Binary

    def hits(self) -> Tensor:
        """``(R, n)``: 1 for each item that is a positive, in their order."""
        return self.tp.diff(dim=-1)

    def misses(self) -> Tensor:
        """``(R, n)``: 1 for each item that is a negative. Items left out are neither."""
        return self.fp.diff(dim=-1)

    def positives(self) -> Tensor:
        """``(R,)``: how many there are."""
        return self.tp[:, -1]

    def precision(self) -> Tensor:
        """``(R, n + 1)``, 0 at the place 0."""
        return self.tp / (self.tp + self.fp).clamp(min=1)

    def start(self) -> Tensor:
        """``(R, n)``: the last place ahead of each item's tied group."""
        return torch.where(self.cut, self._places(), 0).cummax(-1).values[:, :-1]

    def end(self) -> Tensor:
        """``(R, n)``: the first place behind each item's tied group."""
        n = self.tp.shape[-1] - 1
        behind = torch.where(self.cut, self._places(), n).flip(-1).cummin(-1).values.flip(-1)
        return behind[:, 1:]

    def _places(self) -> Tensor:
        return torch.arange(self.tp.shape[-1], device=self.tp.device)


def curve(
    function: str, scores: object, target: object, mask: object = None, *, dim: int | None = None
) -> Curve:
    """The rankings of the items along axis `dim`, by decreasing score."""
    given = lists(function, scores, target, mask, dim=dim)
    positive, negative = given.counted()
    ranked, order = against_the_model(given.rows.detach(), positive, given.mask)
    exact = exact_dtype(given.rows)
    tp, fp = (
        F.pad(kind.gather(-1, order).cumsum(-1), (1, 0)).to(exact) for kind in (positive, negative)
    )
    # Items left out rank last. They may tie with a score of -inf, but they add to neither count.
    cut = F.pad(ranked[:, :-1] != ranked[:, 1:], (1, 1), value=True)[:, : tp.shape[-1]]
    return Curve(tp, fp, cut, given)


def broken(given: Binary | Graded) -> Tensor:
    """``(R,)`` bool: lists with a NaN score that counts, or with an undeclared label."""
    nan = given.rows.isnan() if given.mask is None else given.rows.isnan() & given.mask
    return nan.any(-1) if given.invalid is None else nan.any(-1) | given.invalid


def over_lists(
    value: Tensor, curve: Curve, undefined: Tensor, zero_division: float, reduction: ListReduction
) -> Tensor:
    """The lists' values ``(R,)``, or their mean; `undefined` ones are 0/0."""
    void = curve.tp[:, -1] + curve.fp[:, -1] == 0
    values, weight = settled(value, undefined, void, broken(curve.given), zero_division)
    return values.reshape(curve.given.shape) if reduction == "none" else mean(values, weight)


def settled(
    value: Tensor, undefined: Tensor, void: Tensor, broken: Tensor, zero_division: float
) -> tuple[Tensor, Tensor]:
    """Values of any shape with 0/0 replaced, and 1 for each that is in the mean, else 0.

    A void list, in which nothing counts, is NaN and out of the mean; so is 0/0 if it is to be NaN.
    A broken list is NaN and stays in: a NaN that counts is never hidden.
    """
    value = torch.where(undefined, zero_division, value).masked_fill(void | broken, torch.nan)
    counts = broken | ~(void | (undefined & value.isnan()))
    return value, counts.to(value.dtype)


def mean(value: Tensor, weight: Tensor) -> Tensor:
    """The weighted mean along the last axis of what has a weight; of nothing it is NaN."""
    return torch.where(weight == 0, 0.0, value * weight).sum(-1) / weight.sum(-1)
