"""The way in for graded relevance: lists of scores, and what each of their items gains.

A grade is a number of at least 0; its gain is the grade itself or 2^grade - 1. Grades are read as
labels are (`_labels`): where that costs no sync a wrong one raises, elsewhere its list is invalid.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from evalgrad._binary_inputs import items_last, list_axes
from evalgrad._errors import describe, fail
from evalgrad._inputs import like
from evalgrad._labels import binary_labels, readable
from evalgrad._options import Axes, one_of
from evalgrad._rows import exact_dtype

Gain = Literal["linear", "exponential"]
GAIN = one_of("linear", "exponential")


class Graded(NamedTuple):
    """Scores of lists with the gains of their items, along the last axis."""

    rows: Tensor  # (R, n), the dtype as given
    gain: Tensor  # (R, n) float64, finite and at least 0; 0 where an item does not count
    mask: Tensor | None  # (R, n) bool, True = counts; None: everything does
    invalid: Tensor | None  # (R,) bool: rows with a wrong grade; None: the grades were read
    shape: torch.Size  # of the leading axes that the rows came from

    def counts(self) -> Tensor:
        """Which items count, ``(R, n)`` bool."""
        return torch.ones_like(self.gain, dtype=torch.bool) if self.mask is None else self.mask


def graded_lists(
    function: str,
    scores: object,
    target: object,
    mask: object = None,
    *,
    dim: Axes = None,
    gain: Gain = "linear",
    item_weight: object = None,
) -> Graded:
    """Scores, grades and perhaps a mask and weights, of one shape; the items along axis `dim`."""
    scores, axes = list_axes(function, scores, dim)

    def rows(argument: str, x: object) -> Tensor:
        moved = items_last(like(function, argument, x, scores, "scores"), axes)
        return moved.reshape(moved.shape[:-1].numel(), moved.shape[-1])

    shape, x = items_last(scores, axes).shape[:-1], rows("scores", scores)
    mask, invalid = None if mask is None else rows("mask", mask), None
    if mask is not None:
        mask, _, invalid = binary_labels(function, mask, "mask")
    gains, wrong = _gains(function, "target", rows("target", target), mask, gain)
    invalid = _either(invalid, wrong)
    if item_weight is not None:
        weights, wrong = _gains(function, "item_weight", rows("item_weight", item_weight), mask)
        gains, invalid = gains * weights, _either(invalid, wrong)
    return Graded(x, gains, mask, invalid, shape)


def _gains(
    function: str, argument: str, x: Tensor, mask: Tensor | None, gain: Gain = "linear"
) -> tuple[Tensor, Tensor | None]:
    """The gain of every item, 0 where it does not count, and which rows hold a wrong one."""
    if x.is_complex():
        fail(TypeError, function, argument, "real numbers", describe(x), "Pass real numbers.")
    number = x.to(exact_dtype(x))
    number = number if mask is None else torch.where(mask, number, 0.0)
    gains = torch.exp2(number) - 1 if gain == "exponential" else number
    wrong = ~((gains >= 0) & (gains < torch.inf))
    if not readable(x):
        return torch.where(wrong, 0.0, gains), wrong.any(-1)
    if bool(wrong.any()):
        value = number[wrong][0].item()
        got = f"the {'grade' if argument == 'target' else 'weight'} {value:g}"
        repair = "If it marks items to ignore, pass a `mask`."
        if 0 < value < torch.inf:
            repair = '2^grade - 1 overflows: pass gain="linear", or smaller grades.'
        fail(ValueError, function, argument, "finite and at least 0", got, repair)
    return gains, None


def _either(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    return one if other is None else other if one is None else one | other
