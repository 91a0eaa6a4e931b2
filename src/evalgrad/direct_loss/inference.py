"""Loss-augmented inference for rankings in pure torch: any device, batched over rows; the peer and
the fallback of the kernel. docs/maths.md, "Rankings", derives what is used here:

    phi, psi     scores of the positives and of the negatives of a row, descending; R rows
    n_i          number of negatives above positive i: `above`
    o_j          number of positives above negative j: `o`, and `place` for a candidate of it
    a_i, T(r)    Delta = 1 - (1/ideal) sum_i a_i T(i + n_i): `factor` and `gain` of `RankingMetric`
    s, c         the direction, `sign`; c = eps |P||N| / (2 ideal), `scale`
    H_i(n)       S(n) - n phi_i - s c a_i T(i + n), with S(n) = psi_1 + .. + psi_n

Times |P||N|/2 and up to a constant, F + s eps Delta is the sum of H_i(n_i), to be maximised under
n_1 <= n_2 <= ... Among equally good rankings the one with the most negatives above is taken, as in
y_w; equally good means up to TIE c, so that rounding does not choose where scores are few-valued
(half precision) and exact ties do occur.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from evalgrad.direct_loss.sorted_lists import SortedLists

TIE = 1e-13


class RankingMetric:
    """Gains a_i T(r) of one metric on the rows of `lists`."""

    def __init__(self, lists: SortedLists, ndcg: bool, k: int) -> None:
        self.average_precision = not ndcg
        self.pairs, self.n = lists.pairs, lists.phi.shape[1]
        self.k = k if ndcg and 0 < k < self.n else None
        # i = 1 .. n, of which a row has |P|
        self.i = torch.arange(1, self.n + 1, device=lists.phi.device, dtype=lists.phi.dtype)
        self.counts = self.i <= lists.positives
        best = torch.where(self.counts, self.factor(self.i) * self.gain(self.i), 0.0)
        # Above 0 in void rows too, whose result is thrown away.
        self.ideal = best.sum(1, keepdim=True).clamp_min(torch.finfo(best.dtype).tiny)

    def factor(self, i: Tensor) -> Tensor:
        """a_i."""
        return i if self.average_precision else torch.ones_like(i)

    def gain(self, rank: Tensor) -> Tensor:
        """T(rank)."""
        gain = 1 / rank if self.average_precision else 1 / torch.log2(1 + rank)
        return gain if self.k is None else torch.where(rank <= self.k, gain, 0.0)

    def scale(self, epsilon: float) -> Tensor:
        """c = eps |P||N| / (2 ideal), (R, 1)."""
        return self.pairs * (epsilon / 2) / self.ideal

    def loss(self, above: Tensor) -> Tensor:
        """Delta of the rankings n_i = above, exactly 0 for perfect ones, (R,)."""
        # Term by term against the perfect ranking n_i = 0, whose terms are then exactly 0.
        lost = self.factor(self.i) * (self.gain(self.i) - self.gain(self.i + above))
        return (torch.where(self.counts, lost, 0.0) / self.ideal).sum(1)


def augment(lists: SortedLists, metric: RankingMetric, epsilon: float, sign: int) -> Tensor:
    """n_i of the maximiser of F + sign eps Delta, (R, n)."""
    if sign > 0 and metric.k is None:
        o = _place_negatives(lists, metric, epsilon)
        # n_i = number of j with o_j < i, and the o_j rise.
        i = torch.arange(1, metric.n + 1, device=o.device).expand_as(o).contiguous()
        return torch.searchsorted(o, i)
    return _chain(lists, metric, epsilon, sign)


def _bound(count: Tensor, n: int) -> int:
    """A bound on the number of items of a class: the largest count on CPU, where reading it is
    free; else the shape.
    """
    return int(count.max()) if count.device.type == "cpu" else n


# ---- any sign, any metric: the chain of running maxima -------------------------------------------


def _chain(lists: SortedLists, metric: RankingMetric, epsilon: float, sign: int) -> Tensor:
    """The chain D_i(n) = H_i(n) + max_{m <= n} D_{i-1}(m): one step per positive, all rows and all
    n = 0 .. |N| at once (docs/maths.md, "The negative direction").

    `d` is D_i, `maxima` its running maximum over n, `best` that of the positive before. A cell
    (i, n) is a *record* if D_i reaches its running maximum there: only such an n can be taken. The
    records, one byte per cell, are all that is kept.
    """
    steps, width = _bound(lists.positives, metric.n), _bound(lists.negatives, metric.n)
    if metric.k is not None and sign < 0:
        # The others cannot come inside the cutoff: they stay where they are.
        steps = min(steps, metric.k)
    above = torch.arange(width + 1, device=lists.phi.device)  # n
    S = torch.nn.functional.pad(lists.psi[:, :width].cumsum(1), (1, 0))
    scale = sign * metric.scale(epsilon)  # s c
    best, records = torch.zeros_like(S), []
    for i in range(steps):  # positive i + 1 of the maths
        phi = lists.phi[:, i : i + 1]
        gain = metric.factor(metric.i[i]) * metric.gain((above + (i + 1)).to(S.dtype))
        allowed = _allowed(lists, metric, sign, i, above)
        d = torch.where(allowed, S - above * phi - scale * gain + best, -math.inf)
        maxima = d.cummax(1).values
        records.append(allowed & (d + TIE * scale.abs() >= maxima))
        # A row with fewer positives has finished its chain, and carries its maxima on.
        best = torch.where(i < lists.positives, maxima, best)
    return _trace_back(lists, records, above)


def _allowed(lists: SortedLists, metric: RankingMetric, sign: int, i: int, above: Tensor) -> Tensor:
    """Which n the positive may take: those of the band, n <= its rank among the negatives if
    sign < 0, else n >= it.

    Beyond a cutoff Delta does not see where it stands: there its own place is the only candidate.
    So no two cells tie in exact arithmetic because Delta does not see the difference.
    """
    rank = lists.positive_rank[:, i : i + 1]
    if sign > 0:
        return (above >= rank) & (above <= lists.negatives)
    if metric.k is None:
        return above <= rank
    return (above <= rank) & ((above + (i + 1) <= metric.k) | (above == rank))


def _trace_back(lists: SortedLists, records: list[Tensor], above: Tensor) -> Tensor:
    """n_i from the records: the last positive takes its last one, every other positive its last one
    that is not beyond its successor's.
    """
    result, limit = lists.positive_rank.clone(), lists.negatives
    for i in reversed(range(len(records))):
        last = torch.where(records[i] & (above <= limit), above, 0).amax(1, keepdim=True)
        limit = torch.where(i < lists.positives, last, limit)
        result[:, i : i + 1] = torch.where(i < lists.positives, last, lists.negatives)
    return result


# ---- positive direction, no cutoff: divide and conquer -------------------------------------------


class _PairSums(NamedTuple):
    """Sums over the first o positives, from which the value of a candidate o_j is read."""

    phi: Tensor  # (R, |P| + 1): phi_1 + .. + phi_o
    harmonic: Tensor  # 1 + 1/2 + .. + 1/r, from r = 0 on
    scale: Tensor  # (R, 1): c


def _place_negatives(lists: SortedLists, metric: RankingMetric, epsilon: float) -> Tensor:
    """o_j, (R, n), by divide and conquer over the negatives, a level at a time (docs/maths.md, "The
    positive direction").

    Negative j chooses o_j to maximise sum_{i > o} m(i, j), m(i, j) = psi_j - phi_i + c a_i
    (T(i+j-1) - T(i+j)). Every m falls with j (1/r and 1/log2(1 + r) are convex), so the best o_j
    rise with j: the negatives decouple, and those already placed bound the ones between.
    """
    (rows, n), device = lists.psi.shape, lists.psi.device
    width = _bound(lists.positives, n)
    # A power of two above |N|: j = 1 .. size - 1, the last ones padding.
    size = 1 << _bound(lists.negatives, n).bit_length()
    reciprocals = 1 / torch.arange(1, width + size + 1, device=device, dtype=lists.phi.dtype)
    sums = _PairSums(
        torch.nn.functional.pad(lists.phi[:, :width].cumsum(1), (1, 0)),
        torch.nn.functional.pad(reciprocals.cumsum(0), (1, 0)),
        metric.scale(epsilon),
    )
    # Column j is o_j; o_0 = 0 and o_size = |P| are the bounds of the first level.
    o = torch.zeros(rows, size + 1, dtype=torch.long, device=device)
    o[:, size:] = lists.positives
    for stride in (size >> level for level in range(1, size.bit_length())):
        # The negatives halfway between those already placed, which stand 2 stride apart.
        j = torch.arange(stride, size, 2 * stride, device=device)
        low, high = _bounds(lists, j, o[:, : -stride : 2 * stride], o[:, 2 * stride :: 2 * stride])
        o[:, stride : size : 2 * stride] = _best_places(lists, metric, sums, j, low, high)
    return torch.nn.functional.pad(o[:, 1:], (0, max(n - size, 0)), value=n)[:, :n].contiguous()


def _bounds(lists: SortedLists, j: Tensor, before: Tensor, behind: Tensor) -> tuple[Tensor, Tensor]:
    """Least and largest candidate for each negative j, (R, J), from the o of its placed neighbours.

    The band adds a bound: in the positive direction a negative moves up only, so its o_j is at most
    the model's. Padding, j > |N|, has |P| as its only candidate.
    """
    real, column = j <= lists.negatives, (j - 1).clamp_max(lists.psi.shape[1] - 1)
    own = torch.minimum(behind, lists.negative_rank[:, column])
    high = torch.where(real, own, lists.positives)
    return torch.where(real, before, high), high


def _best_places(
    lists: SortedLists,
    metric: RankingMetric,
    sums: _PairSums,
    j: Tensor,
    low: Tensor,
    high: Tensor,
) -> Tensor:
    """The best o_j in [low, high] for each negative j of a level, (R, J); of equal ones the least,
    which has the most negatives above.

    The ranges of neighbours share at most one end, so a level has |P| + J candidates at most. They
    lie in one row, range after range: `segment` is whose candidate it is, `place` the o it tries.
    """
    rows, n = lists.psi.shape
    ends = (high - low + 1).cumsum(1)
    most = sums.phi.shape[1] - 1 + len(j)
    candidate = torch.arange(most, device=j.device).expand(rows, -1).contiguous()
    used = candidate < ends[:, -1:]
    segment = torch.searchsorted(ends, candidate, right=True).clamp_max(len(j) - 1)
    # The last candidate of a range, ends - 1, is its `high`.
    place = torch.where(used, candidate - (ends - 1 - high).gather(1, segment), 0)
    # sum_{i > o} m(i, j) less that of o = 0: the sum over i <= o of -m(i, j).
    psi = lists.psi[:, (j - 1).clamp_max(n - 1)].gather(1, segment)
    dropped = _dropped(metric, sums.harmonic, j[segment], place)
    value = sums.phi.gather(1, place) - place * psi - sums.scale * dropped
    value = torch.where(used, value, -math.inf)
    best = torch.full_like(ends, -math.inf, dtype=value.dtype)
    best = best.scatter_reduce(1, segment, value, "amax").gather(1, segment)
    is_best = used & (value >= best - TIE * sums.scale)
    return high.scatter_reduce(1, segment, torch.where(is_best, place, n), "amin")


def _dropped(metric: RankingMetric, harmonic: Tensor, j: Tensor, o: Tensor) -> Tensor:
    """sum_{i <= o} a_i (T(i+j-1) - T(i+j)), in closed form."""
    if metric.average_precision:
        # i/((i+j-1)(i+j)) = 1/(i+j) - (j-1) (1/(i+j-1) - 1/(i+j)), and the second part telescopes.
        reached = harmonic[o + j] - harmonic[j]
        j, o = j.to(harmonic.dtype), o.to(harmonic.dtype)
        return reached - (j - 1) / j * (o / (o + j))
    return metric.gain(j.to(harmonic.dtype)) - metric.gain((o + j).to(harmonic.dtype))
