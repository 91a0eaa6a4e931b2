"""Slow oracles of the losses that smooth top-k is compared with, from their definitions. They
import nothing from evalgrad.
"""

import math


def over_samples(value, x, target, weight=None, ignore_index=None, reduction="mean", **options):
    """The loss of ``x (N, C, S)``, the items being samples."""
    losses, total = [], 0.0
    for image, labels in zip(x, target):
        row = []
        for s, y in enumerate(labels):
            counts = 0.0 if y == ignore_index else 1.0 if weight is None else weight[y]
            loss = value([scores[s] for scores in image], y, **options) if counts else 0.0
            row.append(counts * loss)
            total += counts
        losses.append(row)
    if reduction == "none":
        return losses
    summed = sum(map(sum, losses))
    return summed / total if reduction == "mean" and total else summed


def svm(scores, y, k, variant="alpha", margin=1.0):
    violations = [0.0 if j == y else margin + s - scores[y] for j, s in enumerate(scores)]
    largest = sorted(violations, reverse=True)[:k]
    if variant == "alpha":
        return max(0.0, sum(largest) / k)
    return sum(max(0.0, v) for v in largest) / k


def leads(scores, y):
    return sorted((s - scores[y] for j, s in enumerate(scores) if j != y), reverse=True)


def entropy(scores, y, k, truncated=False):
    """max <a, x> - sum x log x - (1 - s) log(1 - s) over 0 <= x_j <= s/k, s = sum x <= 1."""
    a = leads(scores, y)
    if truncated:
        return math.log1p(sum(math.exp(v) for v in a[k - 1 :]))
    p = shares(a, k)

    def objective(s):
        return sum(s * q * (v - log_of(s * q)) for q, v in zip(p, a)) - (1 - s) * log_of(1 - s)

    low, high = 0.0, 1.0  # concave in s: the best is where the difference of neighbours changes
    for _ in range(200):
        third = (high - low) / 3
        if objective(low + third) < objective(high - third):
            low += third
        else:
            high -= third
    return objective((low + high) / 2)


def shares(a, k):
    """p_j = min(1/k, exp(a_j - t)) with the t for which they add up to 1, by bisection."""
    low, high = min(a) - 50.0, max(a) + 50.0
    for _ in range(200):
        t = (low + high) / 2
        if sum(min(1 / k, math.exp(v - t)) for v in a) > 1:
            low = t
        else:
            high = t
    return [min(1 / k, math.exp(v - (low + high) / 2)) for v in a]


def log_of(x):
    return math.log(x) if x > 0 else 0.0  # where it is multiplied with x


def sorting_network(scores, y, k, temperature=1.0, candidates=16):
    """-log of the label's share in the first k rows of the network's permutation matrix."""
    others = sorted((s for j, s in enumerate(scores) if j != y), reverse=True)[: candidates - 1]
    place = sum(s >= scores[y] for s in others)
    values = [*others[:place], scores[y], *others[place:]]
    m = len(values)
    matrix = [[float(i == j) for j in range(m)] for i in range(m)]
    for layer in range(m):
        step = [[float(i == j) for j in range(m)] for i in range(m)]
        for i in range(layer % 2, m - 1, 2):
            stays = 1 / (1 + math.exp((values[i + 1] - values[i]) / temperature))
            step[i][i] = step[i + 1][i + 1] = stays
            step[i][i + 1] = step[i + 1][i] = 1 - stays
        values = [sum(w * v for w, v in zip(row, values)) for row in step]
        columns = list(zip(*matrix))
        matrix = [[sum(w * v for w, v in zip(row, c)) for c in columns] for row in step]
    return -math.log(sum(matrix[i][place] for i in range(k)))
