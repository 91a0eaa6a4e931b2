"""Positives and negatives of every row in descending order of score, in pure torch.

All ranking losses start from these lists. The two classes of a row stand side by side: positive i
in column i - 1, negative j in column n + j - 1.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from evalgrad._ranking import against_the_model
from evalgrad._rows import exact_dtype


class SortedLists(NamedTuple):
    """Both classes of each row, in descending order, aligned left; R rows, n items."""

    order: Tensor  # (R, n) items from the top of the model's ranking, those that do not count last
    column: Tensor  # (R, n) of these items, where they stand below; 2n where they do not count
    positives: Tensor  # (R, 1) |P|, |N|
    negatives: Tensor
    z: Tensor  # (R, 2n + 1) scores up to a constant, wide gaps closed; lower than all if no item
    rank: Tensor  # (R, 2n + 1) n_i and o_j of y_w; |N| and |P| beyond the lists' ends
    scores: Tensor  # (R, n) as given, in that order
    nan: Tensor  # (R, 1) a NaN among the items that count

    @property
    def phi(self) -> Tensor:
        """Scores of the positives, (R, n)."""
        return self.z[:, : self.scores.shape[1]]

    @property
    def psi(self) -> Tensor:
        """Scores of the negatives, (R, n)."""
        return self.z[:, self.scores.shape[1] : -1]

    @property
    def pairs(self) -> Tensor:
        """|P||N|, (R, 1), as a real number: an integer times a float would fall to float32."""
        return self.positives.to(self.z.dtype) * self.negatives

    @property
    def live(self) -> Tensor:
        """Rows with a positive and a negative, (R, 1)."""
        return torch.minimum(self.positives, self.negatives) > 0


def sort_lists(scores: Tensor, target: Tensor, mask: Tensor | None, epsilon: float) -> SortedLists:
    """Sort and split the rows of `scores` (R, n). `epsilon` says which gap is too wide to cross."""
    n = scores.shape[1]
    ranked, order = against_the_model(scores, target, mask)
    is_positive, nan = target.gather(1, order), scores.isnan()
    if mask is not None:
        counted, nan = mask.gather(1, order), mask & nan
        is_positive = is_positive & counted
    down_to = is_positive.cumsum(1)  # positives
    positives = down_to[:, -1:]
    negatives = (n if mask is None else mask.sum(1, keepdim=True)) - positives
    positives_above = down_to - is_positive.to(down_to.dtype)
    # What does not count comes last.
    negatives_above = torch.arange(n, device=scores.device) - positives_above
    column = torch.where(is_positive, positives_above, negatives_above + n)
    column = column if mask is None else column.masked_fill(~counted, 2 * n)
    ranked = ranked.to(exact_dtype(scores))
    z, below = _close_gaps(ranked, epsilon * positives.to(ranked.dtype) * negatives)
    z = below.expand(-1, 2 * n + 1).scatter(1, column, z)
    other = torch.where(is_positive, negatives_above, positives_above)
    beyond = torch.cat([negatives.expand(-1, n), positives.expand(-1, n + 1)], 1)
    rank, nan = beyond.scatter(1, column, other), nan.any(1, keepdim=True)
    return SortedLists(order, column, positives, negatives, z, rank, ranked, nan)


def _close_gaps(ranked: Tensor, widest: Tensor) -> tuple[Tensor, Tensor]:
    """Descending scores from 0 with gaps of at most `widest`, of which equal infinities have none,
    and a score more than that below them.

    Ranking a pair against such a gap costs 2 eps of F, and Delta <= 1: no y_direct ever does. So
    infinite scores act as their limit, and an outlier does not swallow the digits of the others.
    """
    falls = (ranked[:, 1:] - ranked[:, :-1]).nan_to_num(0.0, math.inf, -math.inf)
    falls = torch.nn.functional.pad(torch.maximum(falls, -widest), (1, 0))
    z = falls.cumsum(1)[:, : ranked.shape[1]]
    return z, z[:, -1:] - (2 * widest + 1)


def below_each(lists: SortedLists, above: Tensor) -> Tensor:
    """o_j from n_i = above, (R, n)."""
    # n_i beyond the end of a list is |N| or more: it is never below some j <= |N|.
    j = torch.arange(1, above.shape[1] + 1, device=above.device).expand_as(above).contiguous()
    return torch.minimum(torch.searchsorted(above.contiguous(), j), lists.positives)


def score_gradient(
    lists: SortedLists, above: Tensor, below: Tensor, reference: Tensor, factor: float
) -> Tensor:
    """factor (dF(y) - dF(y_reference)) of the items in the order of the lists, (R, n); 0 where
    ignored and in void rows, NaN where a NaN counts.

    y has n_i = above and o_j = below, as y_reference has them side by side, (R, 2n); dF/dphi_i =
    (|N| - 2 n_i)/(|P||N|) and dF/dpsi_j = -(2 o_j - |P|)/(|P||N|).
    """
    moved = torch.nn.functional.pad(torch.cat([above, below], 1) - reference, (0, 1))
    unit = -2 * factor / lists.pairs.clamp_min(1)
    return moved.gather(1, lists.column) * unit.masked_fill(lists.nan & lists.live, math.nan)


def score_above_perfect(lists: SortedLists, above: Tensor) -> Tensor:
    """F(y) - F(all positives first) = (2/|P||N|) sum_i (S(n_i) - n_i phi_i) in the scores, (R,)."""
    # An infinite score in an inverted pair meets its like and cancels, or the value is
    # infinite (below).
    scores, n = lists.scores, lists.scores.shape[1]
    top = scores[:, :1].nan_to_num(math.nan, 0.0, 0.0)
    shifted = (scores - top).nan_to_num(math.nan, 0.0, 0.0)
    aligned = scores.new_zeros(scores.shape[0], 2 * n + 1).scatter(1, lists.column, shifted)
    S = torch.nn.functional.pad(aligned[:, n:-1].cumsum(1), (1, 0))
    inverted = S.gather(1, above.clamp_max(n)) - above * aligned[:, :n]
    beyond = torch.arange(n, device=scores.device) >= lists.positives
    total = inverted.masked_fill(beyond, 0.0).sum(1) * 2 / lists.pairs.clamp_min(1)[:, 0]
    is_negative = lists.column >= n
    highest = scores.masked_fill(~is_negative | (lists.column == 2 * n), -math.inf).amax(1)
    lowest = scores.masked_fill(is_negative, math.inf).amin(1)
    unbounded = (highest > lowest) & (highest.isinf() | lowest.isinf())
    return total.masked_fill(unbounded, math.inf)


def in_given_order(lists: SortedLists, gradient: Tensor, mask: Tensor | None) -> Tensor:
    """Back to the order of the scores, 0 where ignored, and no -0."""
    back = torch.zeros_like(gradient).scatter_(1, lists.order, gradient) + 0.0
    return back if mask is None else back.masked_fill(~mask, 0.0)


def row_values(lists: SortedLists, value: Tensor) -> Tensor:
    """``value (*, R)``: NaN rows are NaN, void rows 0."""
    value = value.masked_fill(lists.nan[:, 0], math.nan)
    return value.masked_fill(~lists.live[:, 0], 0.0)
