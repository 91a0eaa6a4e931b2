"""Slow oracles of smooth top-k in 60-digit arithmetic: subsets for a few classes, products of
polynomials for many.
"""

import math
from itertools import combinations

from mpmath import exp, inf, log, log1p, mp, mpf

mp.dps = 60


def marginals_by_subsets(x: list, k: int) -> tuple:
    """sigma_k of exp(x) and d log sigma_k / d x_i, by listing all the k-subsets."""
    total, parts = mpf(0), [mpf(0)] * len(x)
    for subset in combinations(range(len(x)), k):
        weight = exp(sum((x[i] for i in subset), mpf(0)))
        total += weight
        for i in subset:
            parts[i] += weight
    return total, [part / total if total else mpf(0) for part in parts]


def _times(polynomial: list, e, k: int) -> list:
    """The product with 1 + e t, up to degree k."""
    longer = [*polynomial, mpf(0)]
    return [longer[j] + (e * longer[j - 1] if j else 0) for j in range(min(len(longer), k + 1))]


def symmetric_polynomials(x: list, k: int) -> list:
    """sigma_0 .. sigma_k of exp(x)."""
    sigma = [mpf(1)]
    for item in x:
        sigma = _times(sigma, exp(item), k)
    return sigma + [mpf(0)] * (k + 1 - len(sigma))


def marginals_by_products(x: list, degrees: list[int]) -> list:
    """(sigma_k, d log sigma_k / d x_i) for each k of ``degrees``: prefix times suffix, nothing is
    subtracted.
    """
    top, n, e = max(degrees), len(x), [exp(item) for item in x]
    prefix = [[mpf(1)]]
    for i in range(n):
        prefix.append(_times(prefix[-1], e[i], top))
    without = {k: [mpf(0)] * n for k in degrees}  # sigma_{k-1} of all the classes but i
    suffix = [mpf(1)]
    for i in reversed(range(n)):
        for k in degrees:
            pairs = range(max(0, k - len(suffix)), min(len(prefix[i]), k))
            without[k][i] = sum((prefix[i][a] * suffix[k - 1 - a] for a in pairs), mpf(0))
        suffix = _times(suffix, e[i], top)
    sigma = suffix + [mpf(0)] * (top + 1 - len(suffix))
    return [
        (sigma[k], [e[i] * without[k][i] / sigma[k] if sigma[k] else mpf(0) for i in range(n)])
        for k in degrees
    ]


def smooth_topk_row(
    scores: list[float], y: int, k: int, temperature: float, margin: float, brute: bool = False
) -> tuple:
    """Value and gradient of one row, L = tau softplus(z) with z as in docs/maths.md, "Smooth top-k"
    (finite scores).
    """
    tau = mpf(temperature)
    x = [mpf(score) / (k * tau) for i, score in enumerate(scores) if i != y]
    if brute:
        (upper, p_upper), (lower, p_lower) = (
            marginals_by_subsets(x, k),
            marginals_by_subsets(x, k - 1),
        )
    else:
        (upper, p_upper), (lower, p_lower) = (
            marginals_by_products(x, [k, k - 1])
            if k > 1
            else (marginals_by_products(x, [1])[0], (mpf(1), [mpf(0)] * len(x)))
        )
    z = mpf(margin) / tau + log(upper) - log(lower) - mpf(scores[y]) / (k * tau)
    value = tau * (z + log1p(exp(-z)) if z > 0 else log1p(exp(z)))
    slope = 1 / (1 + exp(-z))
    gradient = [slope / k * (a - b) for a, b in zip(p_upper, p_lower, strict=True)]
    gradient.insert(y, -slope / k)
    return float(value), [float(g) for g in gradient]


def topk_hinge_row(scores: list[float], y: int, k: int, margin: float) -> float:
    """The limit temperature -> 0."""
    rest = sorted((score for i, score in enumerate(scores) if i != y), reverse=True)
    return max(margin + (rest[k - 1] - scores[y]) / k, 0.0)


def _reduced(row, x, target, ignore_index, weight, reduction):
    """x: (N, C, S), target: (N, S) nested lists; `row(scores, y)` is the loss of one sample."""
    table, total = [], 0.0
    for scores, labels in zip(x, target):
        table.append([])
        for i, y in enumerate(labels):
            w = 0.0 if y == ignore_index else 1.0 if weight is None else weight[y]
            table[-1].append(w * row([c[i] for c in scores], y) if w else 0.0)
            total += w
    if reduction == "none":
        return table
    value = math.fsum(sum(table, []))
    return value if reduction == "sum" else value / total if total else 0.0


def smooth_topk(
    x, target, *, k, temperature=1.0, margin=1.0, ignore_index=None, weight=None, reduction="mean"
):
    return _reduced(
        lambda s, y: smooth_topk_row(s, y, k, temperature, margin, brute=True)[0],
        x,
        target,
        ignore_index,
        weight,
        reduction,
    )


def topk_hinge(x, target, *, k, margin=1.0, ignore_index=None, weight=None, reduction="mean"):
    return _reduced(
        lambda s, y: topk_hinge_row(s, y, k, margin), x, target, ignore_index, weight, reduction
    )


def log_elementary_symmetric(x: list[float], k: int) -> list[float]:
    return [
        float(log(s)) if s else -float(inf)
        for s in symmetric_polynomials([mpf(item) for item in x], k)
    ]


def topk_probabilities(scores: list[float], k: int, temperature: float) -> list[float]:
    x = [mpf(score) / mpf(temperature) for score in scores]
    return [float(p) for p in marginals_by_products(x, [k])[0][1]]
