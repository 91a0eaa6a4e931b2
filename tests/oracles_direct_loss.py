"""Slow oracles of the direct losses: every ranking, every labelling, the paper's table. They import
nothing from evalgrad.

A row is a list of scores and a list of bools, masked items already removed. Fractions keep every
comparison exact where the metric is rational (AP, Jaccard); NDCG is compared in floating point with
a tolerance.
"""

import itertools
import math
from fractions import Fraction

# objectives closer than this times epsilon count as equal: 0.3 is not 3/10, and rounding must not
# choose
TIE = 1e-13


def average_precision(labels):
    """AP of labels listed from the top of the ranking; Prec@j includes position j."""
    hits, total = 0, Fraction(0)
    for position, relevant in enumerate(labels, 1):
        if relevant:
            hits += 1
            total += Fraction(hits, position)
    return total / hits


def ndcg(labels, k=None):
    ranks = range(1, len(labels) + 1 if k is None else min(k, len(labels)) + 1)
    gain = sum(1 / math.log2(1 + r) for r in ranks if labels[r - 1])
    return gain / sum(1 / math.log2(1 + r) for r in ranks if r <= sum(labels))


def ranking_loss(labels, metric, k):
    return 1 - (average_precision(labels) if metric == "ap" else ndcg(labels, k))


def pair_score(scores, order, target):
    """F(y) = (1/|P||N|) sum_ij y_ij (phi_i - psi_j) of a ranking, and dF/dscores, from the pairs
    themselves.
    """
    place = {item: position for position, item in enumerate(order)}
    positives, negatives = [i for i in order if target[i]], [j for j in order if not target[j]]
    total, derivative = Fraction(0), [Fraction(0)] * len(scores)
    for i, j in itertools.product(positives, negatives):
        y = 1 if place[i] < place[j] else -1
        total += y * (Fraction(scores[i]) - Fraction(scores[j]))
        derivative[i] += y
        derivative[j] -= y
    pairs = len(positives) * len(negatives)
    return total / pairs, [d / pairs for d in derivative]


def sorted_lists(scores, target):
    """Positives and negatives from the highest score; equal scores in the order of the list."""
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    return [i for i in order if target[i]], [i for i in order if not target[i]]


def model_ranking(scores, target):
    """y_w: a negative tied with a positive ranks above it."""
    return sorted(range(len(scores)), key=lambda i: (-scores[i], target[i]))


def interleave(positives, negatives, above):
    """The ranking with above[i] negatives before positive i."""
    order, used = [], 0
    for i, count in zip(positives, above):
        order += [*negatives[used:count], i]
        used = count
    return order + negatives[used:]


def best_ranking(scores, target, epsilon, sign, metric, k):
    """The best value of F + sign eps Delta over all interleavings, and its ranking.

    Of several the one with the most negatives above, which is unique: maximisers form a lattice.
    Rankings that put a positive below another of a lower score cannot be best: F loses, Delta does
    not see it.
    """
    positives, negatives = sorted_lists(scores, target)
    candidates = []
    for above in itertools.combinations_with_replacement(range(len(negatives) + 1), len(positives)):
        order = interleave(positives, negatives, above)
        loss = ranking_loss([target[i] for i in order], metric, k)
        exact = Fraction(epsilon) * loss if metric == "ap" else epsilon * loss
        candidates.append((pair_score(scores, order, target)[0] + sign * exact, sum(above), order))
    top = max(objective for objective, *_ in candidates)
    _, _, order = max((c for c in candidates if top - c[0] <= TIE * epsilon), key=lambda c: c[1])
    return top, order


def is_void(target):
    return all(target) or not any(target)


def direct_gradient(scores, target, direct, epsilon, sign):
    before = pair_score(scores, model_ranking(scores, target), target)[1]
    after = pair_score(scores, direct, target)[1]
    return [float(sign * (a - b) / Fraction(epsilon)) for a, b in zip(after, before)]


def model_loss(scores, target, metric="ap", k=None):
    return (
        0.0
        if is_void(target)
        else float(ranking_loss([target[i] for i in model_ranking(scores, target)], metric, k))
    )


def direct_ranking(scores, target, epsilon, sign, metric="ap", k=None):
    """(value, gradient) by trying every interleaving."""
    if is_void(target):
        return 0.0, [0.0] * len(scores)
    _, direct = best_ranking(scores, target, epsilon, sign, metric, k)
    return model_loss(scores, target, metric, k), direct_gradient(
        scores, target, direct, epsilon, sign
    )


def ap_hinge(scores, target):
    """max_y (F + Delta) - F(all positives first) and its gradient, by trying every interleaving."""
    if is_void(target):
        return 0.0, [0.0] * len(scores)
    top, direct = best_ranking(scores, target, 1.0, 1, "ap", None)
    perfect = [i for part in sorted_lists(scores, target) for i in part]
    reference, derivative = pair_score(scores, perfect, target)
    after = pair_score(scores, direct, target)[1]
    return float(top - reference), [float(a - b) for a, b in zip(after, derivative)]


def ap_perceptron(scores, target):
    positives, negatives = sorted_lists(scores, target)
    lost = sum(max(0.0, scores[j] - scores[i]) for i, j in itertools.product(positives, negatives))
    return 0.0 if is_void(target) else 2 * lost / (len(positives) * len(negatives))


def paper_table(scores, target, epsilon, sign):
    """The ranking of the paper's dynamic programme (Fig. 2), seeds h(i, 0) = -s eps i/|P|, h(0, j)
    = 0, in exact arithmetic.
    """
    positives, negatives = sorted_lists(scores, target)
    P, N = len(positives), len(negatives)
    phi, psi = [Fraction(scores[i]) for i in positives], [Fraction(scores[j]) for j in negatives]
    h = [[Fraction(0)] * (N + 1) for _ in range(P + 1)]
    step = [[""] * (N + 1) for _ in range(P + 1)]
    for i, j in itertools.product(range(P + 1), range(N + 1)):
        options = []
        if i > 0:  # the i-th positive takes place i + j
            below = (j * phi[i - 1] - sum(psi[:j])) / (P * N)
            options.append(
                (h[i - 1][j] - sign * Fraction(epsilon) * i / (P * (i + j)) - below, "positive")
            )
        if j > 0:  # the j-th negative does
            above = (sum(phi[:i]) - i * psi[j - 1]) / (P * N)
            options.append((h[i][j - 1] + above, "negative"))
        if options:  # ties: the positive last, so that it has the most negatives above
            h[i][j] = max(option[0] for option in options)
            step[i][j] = next(
                name for option, name in options if h[i][j] - option <= Fraction(TIE * epsilon / P)
            )
    order, i, j = [], P, N
    while i or j:
        positive = step[i][j] == "positive"
        order.append(positives[i - 1] if positive else negatives[j - 1])
        i, j = (i - 1, j) if positive else (i, j - 1)
    return order[::-1]


def jaccard_of(labelling, target):
    """1 - Jaccard; nothing predicted where nothing is there is perfect."""
    union = sum(a or b for a, b in zip(labelling, target))
    both = sum(a and b for a, b in zip(labelling, target))
    return Fraction(0) if union == 0 else 1 - Fraction(both, union)


def direct_jaccard(scores, target, epsilon, sign):
    """(value, gradients of all maximisers) by trying every labelling."""
    n, model = len(scores), tuple(s > 0 for s in scores)
    objectives = {}
    for labelling in itertools.product([False, True], repeat=n):
        score = sum((Fraction(s) for s, y in zip(scores, labelling) if y), Fraction(0)) / n
        objectives[labelling] = score + sign * Fraction(epsilon) * jaccard_of(labelling, target)
    top = max(objectives.values())
    best = [labelling for labelling, reached in objectives.items() if reached == top]
    gradients = [
        [float(sign * (int(a) - int(b)) / (n * Fraction(epsilon))) for a, b in zip(y, model)]
        for y in best
    ]
    return float(jaccard_of(model, target)), gradients


def direct_zero_one(scores, target, epsilon, sign):
    """(value, gradient) item by item, each choosing its label; a score of 0 counts as wrong."""
    n, gradient, wrong = len(scores), [], 0
    for s, positive in zip(scores, target):
        y = 1 if positive else -1
        model = y if y * s > 0 else -y
        direct = max(
            (y, -y), key=lambda label: (label * s + sign * epsilon * (label != y), label == model)
        )
        gradient.append(sign * (direct - model) / (n * epsilon))
        wrong += model != y
    return wrong / n, gradient


def zero_one_bound(scores, target, margin):
    """Mean of max over labels of F + margin Delta, minus F of the right label: hinge (margin 1) and
    perceptron (margin 0).
    """
    ys = [1 if positive else -1 for positive in target]
    return sum(max(s * y, -s * y + margin) - s * y for s, y in zip(scores, ys)) / len(scores)


def discounted_gain(gains, k):
    """Gains listed from the top of the ranking."""
    return sum(g / math.log2(1 + r) for r, g in enumerate(gains, 1) if k is None or r <= k)


def graded_loss(gains, k=None):
    return 1 - discounted_gain(gains, k) / discounted_gain(sorted(gains, reverse=True), k)


def graded_ranking(scores, gains):
    """y_w: of tied items those of lower gain rank above."""
    return sorted(range(len(scores)), key=lambda i: (-scores[i], gains[i]))


def graded_model_loss(scores, gains, k=None):
    return graded_loss([gains[i] for i in graded_ranking(scores, gains)], k)


def direct_graded(scores, gains, epsilon, sign, k=None):
    """(value, gradients of all maximisers) by trying every order of the items.

    F(y) = sum_i s_i T(rank of i) times the largest gain over the ideal one, T cut at k too.
    """
    n, factor = len(scores), max(gains) / discounted_gain(sorted(gains, reverse=True), k)

    def slopes(order):
        at = [0.0] * n
        for r, i in enumerate(order, 1):
            at[i] = factor / math.log2(1 + r) if k is None or r <= k else 0.0
        return at

    objectives = {}
    for order in itertools.permutations(range(n)):
        score = math.fsum(a * s for a, s in zip(slopes(order), scores))
        objectives[order] = score + sign * epsilon * graded_loss([gains[i] for i in order], k)
    near = max(objectives.values()) - 1e-12 * max(epsilon, *map(abs, scores))
    before = slopes(graded_ranking(scores, gains))
    gradients = [
        [sign * (a - b) / epsilon for a, b in zip(slopes(order), before)]
        for order, reached in objectives.items()
        if reached >= near
    ]
    return graded_model_loss(scores, gains, k), gradients


def over_lists(value, label=bool):
    """The oracle of a batch (R, n) from the value of a row; no row is void."""

    def batch(x, target, *, reduction="mean", epsilon=None, direction=None, **options):
        values = [
            value(row, [label(y) for y in labels], **options) for row, labels in zip(x, target)
        ]
        return (
            values
            if reduction == "none"
            else sum(values) / (len(values) if reduction == "mean" else 1)
        )

    return batch
