"""Slow metrics of rankings: every order that the scores allow. They import nothing from evalgrad.

A list is scores and gains (1 and 0 where relevance is binary), masked items already removed. The
values over all orders of the tied groups are equally probable: their mean is ``ties="standard"``,
their least ``ties="worst"``.
"""

import itertools
import math


def orders(scores):
    """All rankings by decreasing score, one for each order of the tied groups."""
    levels = sorted(set(scores), reverse=True)
    groups = [[i for i, s in enumerate(scores) if s == level] for level in levels]
    for parts in itertools.product(*(itertools.permutations(group) for group in groups)):
        yield [i for part in parts for i in part]


def over_orders(metric):
    """(mean, least) of a metric of gains listed from the top, over the orders of the ties."""

    def both(scores, gains, *args):
        values = [metric([gains[i] for i in order], *args) for order in orders(scores)]
        return sum(values) / len(values), min(values)

    return both


def discounted(gains, k):
    return sum(g / math.log2(1 + r) for r, g in enumerate(gains, 1) if k is None or r <= k)


@over_orders
def ndcg(gains, k=None):
    return discounted(gains, k) / discounted(sorted(gains, reverse=True), k)


@over_orders
def precision(gains, k):
    return sum(gains[:k]) / k


@over_orders
def recall(gains, k):
    return sum(gains[:k]) / sum(gains)


@over_orders
def reciprocal_rank(gains, k=None):
    return next((1 / r for r, g in enumerate(gains[:k], 1) if g), 0.0)


@over_orders
def hit_rate(gains, k):
    return float(any(gains[:k]))


@over_orders
def r_precision(gains):
    return sum(gains[: sum(gains)]) / sum(gains)


def average_precision(scores, labels, k):
    """scikit-learn's precision behind the tied group; of a group that the cutoff divides, the share
    of its places within. The least over orders is that of the negatives first.
    """
    total = 0.0
    for score, label in zip(scores, labels):
        above = sum(s > score for s in scores)
        group = sum(s == score for s in scores)
        hits = sum(y for s, y in zip(scores, labels) if s >= score)
        share = min(max((k - above) / group, 0.0), 1.0)
        total += label * share * hits / (above + group)
    worst = sorted(zip(scores, labels), key=lambda pair: (-pair[0], pair[1]))
    hits = [sum(y for _, y in worst[: r + 1]) for r in range(len(worst))]
    least = sum(y * hits[r] / (r + 1) for r, (_, y) in enumerate(worst) if r < k)
    return total / sum(labels), least / sum(labels)
