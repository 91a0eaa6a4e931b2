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

import torch
from torch import Tensor

from evalgrad.direct_loss.sorted_lists import SortedLists

TIE = 1e-13


class RankingMetric:
    """Gains a_i T(r) of one metric on the rows of `lists`."""

    def __init__(self, lists: SortedLists, ndcg: bool, k: int) -> None:
        self.average_precision = not ndcg
        self.pairs, self.n = lists.pairs, lists.scores.shape[1]
        self.k = k if ndcg and 0 < k < self.n else None
        # i = 1 .. n, of which a row has |P|
        self.i = torch.arange(1, self.n + 1, device=lists.z.device, dtype=lists.z.dtype)
        self.beyond = self.i > lists.positives
        # Above 0 in void rows too, whose result is thrown away.
        self.ideal = self._ideal(lists).clamp_min(torch.finfo(lists.z.dtype).tiny)

    def _ideal(self, lists: SortedLists) -> Tensor:
        """sum of a_i T(i), (R, 1)."""
        if self.average_precision:
            return lists.positives.to(lists.z.dtype)
        return self.gain(self.i.expand_as(self.beyond)).masked_fill(self.beyond, 0.0).sum(1, True)

    def factor(self, i: Tensor) -> Tensor:
        """a_i."""
        return i if self.average_precision else torch.ones_like(i)

    def gain(self, rank: Tensor) -> Tensor:
        """T(rank)."""
        gain = 1 / rank if self.average_precision else 1 / torch.log2(1 + rank)
        return gain if self.k is None else gain.masked_fill(rank > self.k, 0.0)

    def scale(self, epsilon: float) -> Tensor:
        """c = eps |P||N| / (2 ideal), (R, 1)."""
        return self.pairs * (epsilon / 2) / self.ideal

    def loss(self, above: Tensor) -> Tensor:
        """Delta of rankings n_i = above, (m, R, n), exactly 0 for perfect ones, (m, R)."""
        # Term by term against the perfect ranking n_i = 0, whose terms are then exactly 0.
        if self.average_precision:
            lost = above / (self.i + above)
        else:
            lost = self.gain(self.i) - self.gain(self.i + above)
        return lost.masked_fill(self.beyond, 0.0).sum(-1) / self.ideal[:, 0]


def augment(lists: SortedLists, metric: RankingMetric, epsilon: float, sign: int) -> Tensor:
    """n_i of the maximiser of F + sign eps Delta, (R, n)."""
    if needs_chain(sign, metric.k is not None):
        return _chain(lists, metric, epsilon, sign)
    o = _place_negatives(lists, metric, epsilon)
    # n_i = number of j with o_j < i, and the o_j rise.
    i = torch.arange(1, metric.n + 1, device=o.device).expand(o.shape[0], -1).contiguous()
    return torch.searchsorted(o, i)


def needs_chain(sign: int, cutoff: bool) -> bool:
    """Whether the inference goes from positive to positive."""
    return sign < 0 or cutoff


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
    above = torch.arange(width + 1, device=lists.z.device)  # n
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
    rank = lists.rank[:, i : i + 1]
    if sign > 0:
        return (above >= rank) & (above <= lists.negatives)
    if metric.k is None:
        return above <= rank
    return (above <= rank) & ((above + (i + 1) <= metric.k) | (above == rank))


def _trace_back(lists: SortedLists, records: list[Tensor], above: Tensor) -> Tensor:
    """n_i from the records: the last positive takes its last one, every other positive its last one
    that is not beyond its successor's.
    """
    result, limit = lists.rank[:, : lists.scores.shape[1]].clone(), lists.negatives
    for i in reversed(range(len(records))):
        last = torch.where(records[i] & (above <= limit), above, 0).amax(1, keepdim=True)
        limit = torch.where(i < lists.positives, last, limit)
        result[:, i : i + 1] = torch.where(i < lists.positives, last, lists.negatives)
    return result


# ---- positive direction, no cutoff: divide and conquer -------------------------------------------


_BITS = 3  # of the numbers of the negatives, by which a level divides them


def _place_negatives(lists: SortedLists, metric: RankingMetric, epsilon: float) -> Tensor:
    """o_j, (R, 2^m - 1) with 2^m above |N|, by divide and conquer over the negatives, a level at a
    time (docs/maths.md, "The positive direction").

    Negative j chooses o_j to maximise sum_{i > o} m(i, j), m(i, j) = psi_j - phi_i + c a_i
    (T(i+j-1) - T(i+j)). Every m falls with j (1/r and 1/log2(1 + r) are convex), so the best o_j
    rise with j: the negatives decouple, and those already placed bound the ones between. Behind the
    last negative stand items of so low a score that they are placed last.
    """
    width = _bound(lists.positives, metric.n)
    bits = _bound(lists.negatives, metric.n).bit_length()
    levels = -(-bits // _BITS)
    tables = _Tables(lists, metric, epsilon, width, 2 << bits)
    o = torch.zeros_like(lists.positives)  # of the negatives 0, 2^bits, 2 2^bits, ..
    for level in range(levels):
        step = 1 << bits
        bits = bits * (levels - level - 1) // (levels - level)
        ends = torch.cat([o[:, 1:], lists.positives], 1)
        j = torch.arange(1 << bits, step, 1 << bits, device=o.device)
        between = tables.best_places(ends, j.unsqueeze(-1), step)
        o = torch.cat([o.unsqueeze(1), between], 1).transpose(1, 2).flatten(1)
    return o[:, 1:].contiguous()


class _Tables:
    """What the value of a candidate is read from.

    Up to what does not depend on o, the sum of m(i, j) over i > o is phi_1 + .. + phi_o - o psi_j -
    c w(o, o + j), where for AP w(o, r) = h(r) - (o+1)/r, h(r) = 1 + 1/2 + .. + 1/r, and for NDCG
    w(o, r) = -T(r).
    """

    def __init__(
        self, lists: SortedLists, metric: RankingMetric, epsilon: float, width: int, size: int
    ) -> None:
        n, dtype, device = metric.n, lists.z.dtype, lists.z.device
        self.count = torch.arange(width + size + 1, device=device)
        self.phi = torch.nn.functional.pad(lists.phi[:, :width].cumsum(1), (1, 0))
        self.psi = lists.z[:, n - 1 : 2 * n]  # column j is psi_j; the last one is no item's
        self.scale, self.width, self.n = metric.scale(epsilon), width, n
        self.tie = TIE * self.scale.unsqueeze(-1)
        gain = metric.gain(self.count.to(dtype).clamp_min(1))
        self.by_place = gain if metric.average_precision else None
        self.by_rank = gain.cumsum(0) if metric.average_precision else -gain

    def best_places(self, ends: Tensor, j: Tensor, step: int) -> Tensor:
        """The best o_j for the negatives ``j (J, 1)`` of each interval of `step` negatives, (R, J,
        intervals); of equally good ones the least, which has the most negatives above. `ends` are
        the o_j of the last negative of each interval, (R, intervals).

        An interval shares its candidates, from one end to the other, and neighbours share an end:
        so there are |P| + intervals of them. They lie in one row, interval after interval, and
        candidate number c of interval g is the place c - g.
        """
        rows, intervals = ends.shape
        number = self.count[: self.width + intervals].expand(rows, -1).contiguous()
        interval = torch.searchsorted(ends + self.count[1 : intervals + 1], number, right=True)
        place = (number - interval).unsqueeze(1)
        # Unused candidates, behind the last interval, fall into one more.
        index = interval.unsqueeze(1).expand(-1, len(j), -1)
        value = self._value(torch.add(j, index, alpha=step), place)
        best = torch.full_like(value[..., : intervals + 1], -math.inf)
        limit = (best.scatter_reduce(2, index, value, "amax") - self.tie).gather(2, index)
        place = place.expand_as(value).masked_fill(value < limit, self.n)
        least = torch.full_like(index[..., : intervals + 1], self.n)
        return least.scatter_reduce(2, index, place, "amin")[..., :intervals]

    def _value(self, j: Tensor, place: Tensor) -> Tensor:
        """Of the places o = place, (R, 1, M), for the negatives j, (R, J, M)."""
        rank, real = j + place, place.to(self.phi.dtype)
        psi = self.psi.gather(1, j.clamp_max(self.n).flatten(1)).view_as(j)
        value = torch.addcmul(self.phi.gather(1, place[:, 0]).unsqueeze(1), real, psi, value=-1)
        w = self.by_rank[rank]
        if self.by_place is not None:
            w = torch.addcmul(w, real + 1, self.by_place[rank], value=-1)
        return torch.addcmul(value, self.scale.unsqueeze(-1), w, value=-1)
