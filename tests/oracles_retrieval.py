"""Slow oracle of retrieval from embeddings: loops over queries, every ranking tried. It imports
nothing from evalgrad.
"""

import math

import oracles_direct_loss


def products(u, v):
    return sum(a * b for a, b in zip(u, v))


def similarity(u, v, kind):
    """The similarity of two vectors, and its derivatives by both."""
    dot = products(u, v)
    if kind == "dot":
        return dot, list(v), list(u)
    a, b = math.sqrt(products(u, u)), math.sqrt(products(v, v))
    cosine = dot / (a * b)
    by_u = [y / (a * b) - cosine * x / (a * a) for x, y in zip(u, v)]
    by_v = [x / (a * b) - cosine * y / (b * b) for x, y in zip(u, v)]
    return cosine, by_u, by_v


def queries(vectors, labels, kind):
    """Of every query that counts: its index, the others' indices, their similarities, positives."""
    for q, label in enumerate(labels):
        others = [i for i in range(len(labels)) if i != q]
        target = [labels[i] == label for i in others]
        if not oracles_direct_loss.is_void(target):
            yield q, others, [similarity(vectors[q], vectors[i], kind)[0] for i in others], target


def value(x, target, epsilon=0.1, direction="positive", similarity="cosine", reduction="mean"):
    """The loss of ``x (1, D, N)``."""
    vectors, labels = list(zip(*x[0])), target[0]
    losses = [0.0] * len(labels)
    live = 0
    for q, _, scores, relevant in queries(vectors, labels, similarity):
        losses[q] = oracles_direct_loss.model_loss(scores, relevant)
        live += 1
    if reduction == "none":
        return losses
    return sum(losses) / (live if reduction == "mean" and live else 1)


def gradient(vectors, labels, epsilon, sign, kind):
    """Of the mean over queries, ``(N, D)``."""
    total = [[0.0] * len(v) for v in vectors]
    live = 0
    for q, others, scores, relevant in queries(vectors, labels, kind):
        _, slopes = oracles_direct_loss.direct_ranking(scores, relevant, epsilon, sign)
        live += 1
        for i, slope in zip(others, slopes):
            _, by_query, by_item = similarity(vectors[q], vectors[i], kind)
            for d in range(len(vectors[q])):
                total[q][d] += slope * by_query[d]
                total[i][d] += slope * by_item[d]
    return [[g / max(live, 1) for g in row] for row in total]
