"""Positives and negatives of every row in descending order of score, in pure torch.

All ranking losses start from these lists.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from evalgrad._ranking import against_the_model, ahead
from evalgrad._rows import exact_dtype


class SortedLists(NamedTuple):
    """Positives and negatives of each row, in descending order, aligned left; R rows, n columns."""

    order: Tensor  # (R, n) items from the top of the model's ranking, those that do not count last
    is_positive: Tensor  # (R, n) in that order
    is_negative: Tensor
    # (R, n) number of items of the same class above, in that order: the column in the lists below
    place: Tensor
    positives: Tensor  # (R, 1) |P|, |N|
    negatives: Tensor
    phi: Tensor  # (R, n) scores up to a constant, wide gaps closed
    psi: Tensor
    positive_rank: Tensor  # (R, n) n_i and o_j of y_w; |N| and |P| beyond the lists' ends
    negative_rank: Tensor
    scores: Tensor  # (R, n) as given, in that order
    nan: Tensor  # (R, 1) a NaN among the items that count

    @property
    def pairs(self) -> Tensor:
        """|P||N|, (R, 1), as a real number: an integer times a float would fall to float32."""
        return self.positives.to(self.phi.dtype) * self.negatives

    @property
    def live(self) -> Tensor:
        """Rows with a positive and a negative, (R, 1)."""
        return (self.positives > 0) & (self.negatives > 0)


def sort_lists(scores: Tensor, target: Tensor, mask: Tensor | None, epsilon: float) -> SortedLists:
    """Sort and split the rows of `scores` (R, n). `epsilon` says which gap is too wide to cross."""
    counts = torch.ones_like(target) if mask is None else mask
    ranked, order = against_the_model(scores.to(exact_dtype(scores)), target, counts)
    is_positive, is_negative = (
        (target & counts).gather(1, order),
        (~target & counts).gather(1, order),
    )
    above_positive, above_negative = ahead(is_positive), ahead(is_negative)
    positives, negatives = is_positive.sum(1, keepdim=True), is_negative.sum(1, keepdim=True)
    z = _close_gaps(ranked, epsilon * positives.to(ranked.dtype) * negatives)
    return SortedLists(
        order=order,
        is_positive=is_positive,
        is_negative=is_negative,
        place=torch.where(is_positive, above_positive, above_negative),
        positives=positives,
        negatives=negatives,
        phi=_align(z, is_positive, above_positive, z.new_zeros(())),
        psi=_align(z, is_negative, above_negative, z.new_zeros(())),
        positive_rank=_align(above_negative, is_positive, above_positive, negatives),
        negative_rank=_align(above_positive, is_negative, above_negative, positives),
        scores=ranked,
        nan=(counts & scores.isnan()).any(1, keepdim=True),
    )


def _close_gaps(ranked: Tensor, widest: Tensor) -> Tensor:
    """Descending scores from 0 with gaps of at most `widest`; equal infinities have none.

    Ranking a pair against such a gap costs 2 eps of F, and Delta <= 1: no y_direct ever does. So
    infinite scores act as their limit, and an outlier does not swallow the digits of the others.
    """
    equal = ranked[:, 1:] == ranked[:, :-1]
    gaps = torch.where(equal, 0.0, ranked[:, :-1] - ranked[:, 1:])
    return -torch.nn.functional.pad(torch.minimum(gaps, widest), (1, 0)).cumsum(1)[
        :, : ranked.shape[1]
    ]


def _align(x: Tensor, of_this_kind: Tensor, place: Tensor, fill: Tensor) -> Tensor:
    """The entries of one kind moved left, in order; the rest of the row is `fill`."""
    rows, n = x.shape
    aligned = fill.expand(rows, n + 1).clone()  # column n takes the other kind
    return aligned.scatter_(1, torch.where(of_this_kind, place, n), x)[:, :n]


def score_gradient(
    lists: SortedLists, above: Tensor, above_reference: Tensor, below_reference: Tensor
) -> Tensor:
    """dF(y) - dF(y_reference) of the items in the order of the lists, (R, n); 0 where ignored.

    y has n_i = above; dF/dphi_i = (|N| - 2 n_i)/(|P||N|) and dF/dpsi_j = -(2 o_j - |P|)/(|P||N|).
    """
    # n_i beyond the end of a list is |N| or more: it is never below some j <= |N|.
    j = torch.arange(1, above.shape[1] + 1, device=above.device).expand_as(above).contiguous()
    below = torch.minimum(torch.searchsorted(above.contiguous(), j), lists.positives)
    moved_positive, moved_negative = (above - above_reference), (below - below_reference)
    moved = torch.where(
        lists.is_positive,
        moved_positive.gather(1, lists.place),
        moved_negative.gather(1, lists.place),
    )
    counts = (lists.is_positive | lists.is_negative) & lists.live
    return torch.where(counts, moved * (-2.0 / lists.pairs.clamp_min(1)), 0.0)


def score_above_perfect(lists: SortedLists, above: Tensor) -> Tensor:
    """F(y) - F(all positives first) = (2/|P||N|) sum_i (S(n_i) - n_i phi_i) in the scores, (R,)."""
    # An infinite score in an inverted pair meets its like and cancels, or the value is
    # infinite (below).
    top = lists.scores[:, :1]
    shifted = torch.where(
        lists.scores.isinf(), 0.0, lists.scores - torch.where(top.isinf(), 0.0, top)
    )
    zero = shifted.new_zeros(())
    phi = _align(shifted, lists.is_positive, lists.place, zero)
    psi = _align(shifted, lists.is_negative, lists.place, zero)
    S = torch.nn.functional.pad(psi.cumsum(1), (1, 0)).gather(1, above.clamp_max(phi.shape[1]))
    real = torch.arange(phi.shape[1], device=phi.device) < lists.positives
    total = torch.where(real, S - above * phi, 0.0).sum(1) * 2 / lists.pairs.clamp_min(1)[:, 0]
    highest = torch.where(lists.is_negative, lists.scores, -math.inf).amax(1)
    lowest = torch.where(lists.is_positive, lists.scores, math.inf).amin(1)
    return torch.where((highest > lowest) & (highest.isinf() | lowest.isinf()), math.inf, total)


def in_given_order(
    lists: SortedLists, value: Tensor, gradient: Tensor, like: Tensor
) -> tuple[Tensor, Tensor]:
    """Back to the order and dtype of the scores; NaN rows are NaN where they count, void rows 0."""
    counts = lists.is_positive | lists.is_negative
    gradient = torch.where(lists.nan & lists.live & counts, math.nan, gradient)
    gradient = torch.zeros_like(gradient).scatter_(1, lists.order, gradient)
    return row_values(lists, value, like), gradient.to(like.dtype) + 0.0  # no -0


def row_values(lists: SortedLists, value: Tensor, like: Tensor) -> Tensor:
    """NaN rows are NaN, void rows 0."""
    value = torch.where(lists.nan[:, 0], math.nan, value)
    return torch.where(lists.live[:, 0], value, 0.0).to(like.dtype)
