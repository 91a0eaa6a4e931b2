"""Loss-augmented inference for rankings in pure torch: any device, batched over rows; the peer and
the fallback of the kernel.

A ranking is described by n_i, the number of negatives above positive i, or by o_j, the number of
positives above negative j. Both metrics are (1/ideal) sum_i a_i T(i + n_i): AP has a_i = i, T(r) =
1/r; NDCG has a_i = 1, T(r) = 1/log2(1 + r) up to the cutoff k. Times |P||N|/2 and up to a constant,
F + s eps Delta is sum_i H_i(n_i), with H_i(n) = S(n) - n phi_i - s c a_i T(i + n), S(n) = psi_1 +
.. + psi_n and c = eps |P||N| / (2 ideal). Among equally good rankings the one with the most
negatives above is taken, as in y_w; equally good means up to TIE c, so that rounding does not
choose where scores are few-valued (half precision) and exact ties do occur.
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
        self.pairs, self.n = lists.pairs, lists.phi.shape[1]
        self.k = k if ndcg and 0 < k < self.n else None
        # i = 1 .. n
        self.place = torch.arange(1, self.n + 1, device=lists.phi.device, dtype=lists.phi.dtype)
        self.counts = self.place <= lists.positives
        self.ideal = torch.where(
            self.counts, self.factor(self.place) * self.gain(self.place), 0.0
        ).sum(1, keepdim=True)
        self.ideal = self.ideal.clamp_min(torch.finfo(self.ideal.dtype).tiny)

    def factor(self, i: Tensor) -> Tensor:
        return i if self.average_precision else torch.ones_like(i)

    def gain(self, rank: Tensor) -> Tensor:
        gain = 1 / rank if self.average_precision else 1 / torch.log2(1 + rank)
        return gain if self.k is None else torch.where(rank <= self.k, gain, 0.0)

    def scale(self, epsilon: float) -> Tensor:
        """c = eps |P||N| / (2 ideal), (R, 1)."""
        return self.pairs * (epsilon / 2) / self.ideal

    def loss(self, above: Tensor) -> Tensor:
        """Delta of the rankings n_i = above, exactly 0 for perfect ones, (R,)."""
        lost = self.factor(self.place) * (self.gain(self.place) - self.gain(self.place + above))
        return (torch.where(self.counts, lost, 0.0) / self.ideal).sum(1)


def augment(lists: SortedLists, metric: RankingMetric, epsilon: float, sign: int) -> Tensor:
    """n_i of the maximiser of F + sign eps Delta, (R, n)."""
    if sign > 0 and metric.k is None:
        places = _place_negatives(lists, metric, epsilon)
        return torch.searchsorted(
            places,
            torch.arange(1, metric.n + 1, device=places.device).expand_as(places).contiguous(),
        )
    return _chain(lists, metric, epsilon, sign)


def _bound(count: Tensor, n: int) -> int:
    """A bound on the number of items of a class: the largest count on CPU, where reading it is
    free; else the shape.
    """
    return int(count.max()) if count.device.type == "cpu" else n


def _chain(lists: SortedLists, metric: RankingMetric, epsilon: float, sign: int) -> Tensor:
    """Any sign, any metric: D_i = H_i + cummax(D_{i-1}), one step per positive, all rows at once;
    one byte per cell.

    The exact band (n_i <= rank of i if sign < 0, else n_i >= it) and, beyond the cutoff, the
    model's own place as the only candidate leave no pair of cells that ties in exact arithmetic
    because Delta does not see the difference.
    """
    steps, width = _bound(lists.positives, metric.n), _bound(lists.negatives, metric.n)
    if metric.k is not None and sign < 0:
        # the others cannot come inside the cutoff: they stay where they are
        steps = min(steps, metric.k)
    above = torch.arange(width + 1, device=lists.phi.device)  # n = 0 .. width
    S = torch.nn.functional.pad(lists.psi[:, :width].cumsum(1), (1, 0))
    scale = sign * metric.scale(epsilon)
    best, records = torch.zeros_like(S), []
    for i in range(steps):
        phi, rank = lists.phi[:, i : i + 1], lists.positive_rank[:, i : i + 1]
        gain = metric.factor(metric.place[i]) * metric.gain((above + (i + 1)).to(S.dtype))
        allowed = (above <= rank) if sign < 0 else (above >= rank) & (above <= lists.negatives)
        if metric.k is not None and sign < 0:
            allowed = allowed & ((above + (i + 1) <= metric.k) | (above == rank))
        d = torch.where(allowed, S - above * phi - scale * gain + best, -math.inf)
        maxima = d.cummax(1).values
        records.append(allowed & (d + TIE * scale.abs() >= maxima))
        best = torch.where(i < lists.positives, maxima, best)
    return _trace_back(lists, records, above)


def _trace_back(lists: SortedLists, records: list[Tensor], above: Tensor) -> Tensor:
    """From the last positive up: the last record not beyond its successor's."""
    result, limit = lists.positive_rank.clone(), lists.negatives
    for i in reversed(range(len(records))):
        last = torch.where(records[i] & (above <= limit), above, 0).amax(1, keepdim=True)
        limit = torch.where(i < lists.positives, last, limit)
        result[:, i : i + 1] = torch.where(i < lists.positives, last, lists.negatives)
    return result


def _place_negatives(lists: SortedLists, metric: RankingMetric, epsilon: float) -> Tensor:
    """Positive direction, no cutoff: o_j, (R, n), by divide and conquer over the negatives, a level
    at a time.

    Negative j chooses o_j to maximise sum_{i > o} m(i, j), m(i, j) = psi_j - phi_i + c a_i
    (T(i+j-1) - T(i+j)). Every m falls with j (1/r and 1/log2(1 + r) are convex), so the best o_j
    rise with j: the negatives decouple, and those already placed bound the ones between. The
    candidates of a level, |P| + its number of negatives at most, lie in one row, segment after
    segment.
    """
    rows, n = lists.psi.shape
    width, device = _bound(lists.positives, n), lists.psi.device
    size = 1 << _bound(lists.negatives, n).bit_length()  # j = 1 .. size - 1, the last ones padding
    Phi = torch.nn.functional.pad(lists.phi[:, :width].cumsum(1), (1, 0))
    harmonic = torch.nn.functional.pad(
        (1 / torch.arange(1, width + size + 1, device=device, dtype=Phi.dtype)).cumsum(0), (1, 0)
    )
    scale, o = metric.scale(epsilon), torch.zeros(rows, size + 1, dtype=torch.long, device=device)
    o[:, size:] = lists.positives
    for stride in (size >> level for level in range(1, size.bit_length())):
        j = torch.arange(stride, size, 2 * stride, device=device)
        real, column = j <= lists.negatives, (j - 1).clamp_max(n - 1)
        high = torch.where(
            real,
            torch.minimum(o[:, 2 * stride :: 2 * stride], lists.negative_rank[:, column]),
            lists.positives,
        )
        low = torch.where(real, o[:, : -stride : 2 * stride], high)
        ends = (high - low + 1).cumsum(1)
        candidate = torch.arange(width + len(j), device=device).expand(rows, -1).contiguous()
        used = candidate < ends[:, -1:]
        segment = torch.searchsorted(ends, candidate, right=True).clamp_max(len(j) - 1)
        place = torch.where(used, candidate - (ends - 1 - high).gather(1, segment), 0)
        value = Phi.gather(1, place) - place * lists.psi[:, column].gather(1, segment)
        value = torch.where(
            used, value - scale * _dropped(metric, harmonic, j[segment], place), -math.inf
        )
        best = torch.full_like(ends, -math.inf, dtype=Phi.dtype).scatter_reduce(
            1, segment, value, "amax"
        )
        is_best = used & (value >= best.gather(1, segment) - TIE * scale)
        o[:, stride : size : 2 * stride] = high.scatter_reduce(
            1, segment, torch.where(is_best, place, n), "amin"
        )
    return torch.nn.functional.pad(o[:, 1:], (0, max(n - size, 0)), value=n)[:, :n].contiguous()


def _dropped(metric: RankingMetric, harmonic: Tensor, j: Tensor, o: Tensor) -> Tensor:
    """sum_{i <= o} a_i (T(i+j-1) - T(i+j))."""
    if metric.average_precision:
        reached = harmonic[o + j] - harmonic[j]
        j, o = j.to(harmonic.dtype), o.to(harmonic.dtype)
        return reached - (j - 1) / j * (o / (o + j))
    return metric.gain(j.to(harmonic.dtype)) - metric.gain((o + j).to(harmonic.dtype))
