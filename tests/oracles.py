"""Slow oracles: loops and brute force written from the maths, importing nothing from evalgrad.
Lists of floats in, floats out.
"""

import itertools
import math

import mpmath
from scipy.optimize import minimize


def jaccard_loss(wrong, foreground):
    """Set function: items in `wrong` are mispredicted. 1 - IoU = |wrong| / |foreground union
    wrong|, 0/0 = 0.
    """
    union = sum(1 for w, f in zip(wrong, foreground) if w or f)
    return sum(wrong) / union if union else 0.0


def tversky_loss(wrong, foreground, misses, false_alarms):
    """1 - hits / (hits + misses x missed + false_alarms x false alarms), 0/0 = 0 loss."""
    hits = sum(f and not w for w, f in zip(wrong, foreground))
    missed = sum(f and w for w, f in zip(wrong, foreground))
    false = sum(w and not f for w, f in zip(wrong, foreground))
    size = hits + misses * missed + false_alarms * false
    return 1 - hits / size if size else 0.0


def set_loss(metric):
    """The set function of a loss by the name of its metric, or by its two weights."""
    if metric == "jaccard":
        return jaccard_loss
    misses, false_alarms = (0.5, 0.5) if metric == "dice" else metric
    return lambda wrong, foreground: tversky_loss(wrong, foreground, misses, false_alarms)


def extension(errors, foreground, loss=jaccard_loss):
    """Lovász extension from its definition: the integral of the set function over the level sets of
    the errors.
    """
    order = sorted(range(len(errors)), key=lambda i: -errors[i])
    value, before, wrong = 0.0, 0.0, [False] * len(errors)
    for i in order:
        wrong[i] = True
        after = loss(wrong, foreground)
        value += errors[i] * (after - before)
        before = after
    return value


def softmax(logits):
    """Probabilities of one pixel; +inf takes all."""
    if math.inf in logits:
        hits = logits.count(math.inf)
        return [1 / hits if x == math.inf else 0.0 for x in logits]
    top = max(logits)
    exps = [math.exp(x - top) for x in logits]
    return [e / sum(exps) for e in exps]


def lovasz_softmax(
    x,
    target,
    *,
    classes="present",
    per_image=False,
    ignore_index=None,
    weight=None,
    reduction="mean",
    bins=None,
    metric="jaccard",
):
    """x: (N, C, S), target: (N, S) nested lists."""
    images = [
        [(softmax([row[i] for row in logits]), y[i]) for i in range(len(y)) if y[i] != ignore_index]
        for logits, y in zip(x, target)
    ]
    groups = images if per_image else [sum(images, [])]
    num_classes = len(x[0])
    table, means = [], []
    for pixels in groups:
        row, weights = [], []
        for c in range(num_classes):
            chosen = (
                {"present": any(y == c for _, y in pixels), "all": True}[classes]
                if isinstance(classes, str)
                else c in classes
            )
            w = (1.0 if weight is None else weight[c]) if chosen and pixels else 0.0
            errors = [1 - p[c] if y == c else p[c] for p, y in pixels]
            front = [y == c for _, y in pixels]
            value = (
                binned(
                    errors, front, [min(int(e * bins), bins - 1) for e in errors], set_loss(metric)
                )
                if bins
                else extension(errors, front, set_loss(metric))
            )
            row.append(w * value)
            weights.append(w)
        table.append(row)
        if sum(weights):
            means.append(sum(row) / sum(weights))
    if reduction == "none":
        return table
    return (
        sum(map(sum, table)) if reduction == "sum" else (sum(means) / len(means) if means else 0.0)
    )


def binned(errors, foreground, number, loss):
    """Errors of a bin are tied: the mean over "foreground first" and "background first" of the
    exact extension's weights.
    """
    value = 0.0
    for front_first in (True, False):
        order = sorted(range(len(errors)), key=lambda i: (-number[i], foreground[i] != front_first))
        weights, before, wrong = {}, 0.0, [False] * len(errors)
        for i in order:
            wrong[i] = True
            after = loss(wrong, foreground)
            weights[i], before = after - before, after
        for kind in itertools.product(set(number), (True, False)):
            items = [i for i in weights if (number[i], foreground[i]) == kind]
            mean = sum(weights[i] for i in items) / max(len(items), 1)
            value += sum(errors[i] * mean for i in items) / 2
    return value


def lovasz_hinge(
    x,
    target,
    *,
    per_image=True,
    ignore_index=None,
    empty="max",
    bins=None,
    metric="jaccard",
    reduction="mean",
    gradient="subgradient",
    lam=1.0,
):
    """x, target: (N, S) nested lists, target 0 or 1."""
    images = [
        [
            (max(1 - f * (1 if y == 1 else -1), 0), y == 1)
            for f, y in zip(fs, ys)
            if y != ignore_index
        ]
        for fs, ys in zip(x, target)
    ]
    values, counted = [], []
    for pixels in images if per_image else [sum(images, [])]:
        front = [f for _, f in pixels]
        counts = bool(pixels) and (empty == "max" or any(front))
        errors = [e for e, _ in pixels]
        if not counts:
            values.append(0.0)
        elif bins is None:
            values.append(extension(errors, front, set_loss(metric)))
        else:  # no error at all: a bin of its own below all others
            width = (max(errors) or 1) / bins
            number = [min(int(e / width), bins - 1) if e else -1 for e in errors]
            values.append(binned(errors, front, number, set_loss(metric)))
        counted.append(counts)
    if reduction == "none":
        return values
    return sum(values) if reduction == "sum" else sum(values) / max(sum(counted), 1)


def lovasz_hinge_multilabel(x, target, *, per_image=True, reduction="mean", **options):
    """x, target: (N, C, S) nested lists: every class by itself."""
    columns = [
        lovasz_hinge(
            [row[c] for row in x],
            [row[c] for row in target],
            per_image=per_image,
            reduction="none",
            **options,
        )
        for c in range(len(x[0]))
    ]
    table = [list(row) for row in zip(*columns)]
    if reduction == "none":
        return table
    flat = sum(table, [])
    return sum(flat) if reduction == "sum" else sum(flat) / len(flat)


def prox(x, foreground, lam, hinge=False):
    """Proximal point by a general convex solver.

    The extension is the largest of the linear functions of all orders, so for a few items: minimise
    t + lam/2 |u - x|^2 subject to t >= w.v for every order's weights w, and v >= u (v >= 0 too
    under the hinge).
    """
    n = len(x)
    planes = set()
    for order in itertools.permutations(range(n)):
        weights, before, wrong = [0.0] * n, 0.0, [False] * n
        for i in order:
            wrong[i] = True
            after = jaccard_loss(wrong, foreground)
            weights[i], before = after - before, after
        planes.add(tuple(weights))
    constraints = [
        {"type": "ineq", "fun": lambda z, w=w: z[-1] - sum(a * b for a, b in zip(w, z[n : 2 * n]))}
        for w in planes
    ]
    if hinge:
        constraints += [{"type": "ineq", "fun": lambda z, i=i: z[n + i] - z[i]} for i in range(n)]
        constraints += [{"type": "ineq", "fun": lambda z, i=i: z[n + i]} for i in range(n)]
    else:
        constraints += [{"type": "eq", "fun": lambda z, i=i: z[n + i] - z[i]} for i in range(n)]
    start = [*x, *(max(v, 0) if hinge else v for v in x), max(map(abs, x)) + 1]
    solution = minimize(
        lambda z: z[-1] + lam / 2 * sum((z[i] - x[i]) ** 2 for i in range(n)),
        start,
        constraints=constraints,
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    return list(solution.x[:n])


def pooling_constraints(n, p, support):
    """m, gamma and tau of loss max-pooling over n valid items, in mpmath's precision."""
    m = mpmath.mpf(min(max(support * n, 1.0), n))
    inverse_q = 1 - 1 / mpmath.mpf(p)
    gamma = mpmath.mpf(n) ** -inverse_q
    return m, gamma, gamma * m ** (-1 / mpmath.mpf(p))


def pooling_weights(losses, p, support):
    """The maximiser of one row of finite losses: alpha by bisection of sum min(l/alpha, 1)^q = m,
    in 60 digits.
    """
    with mpmath.workdps(60):
        losses = [mpmath.mpf(float(loss)) for loss in losses]
        n = len(losses)
        m, _, tau = pooling_constraints(n, p, support)
        if math.isinf(p):
            return [1.0 / n] * n
        if sum(loss > 0 for loss in losses) < m:
            return [float(tau) if loss > 0 else 0.0 for loss in losses]
        if p == 1:
            return _greedy_weights(losses, m)
        q = mpmath.mpf(p) / (mpmath.mpf(p) - 1)
        alpha = _bisect_alpha(losses, m, q)
        return [float(tau * min(mpmath.mpf(1), loss / alpha) ** (q - 1)) for loss in losses]


def _greedy_weights(losses, m):
    """p = 1: give 1/m to the largest until the total is 1; equal losses share."""
    weights, left = [0.0] * len(losses), m
    for level in sorted(set(losses), reverse=True):
        tied = [i for i, loss in enumerate(losses) if loss == level]
        share = min(left / len(tied), mpmath.mpf(1))
        for i in tied:
            weights[i] = float(share / m)
        left -= share * len(tied)
    return weights


def _bisect_alpha(losses, m, q):
    """Largest alpha with sum min(l/alpha, 1)^q >= m: the sum falls with alpha; bisection of log
    alpha.
    """
    positive = [mpmath.log(loss) for loss in losses if loss > 0]
    low, high = min(positive), max(positive) + mpmath.log(len(losses)) / q + 1
    for _ in range(100):
        middle = (low + high) / 2
        if sum(mpmath.exp(min(mpmath.mpf(0), q * (log - middle))) for log in positive) >= m:
            low = middle
        else:
            high = middle
    return mpmath.exp(low)


def pool(losses, p, support):
    return (
        sum(w * loss for w, loss in zip(pooling_weights(losses, p, support), losses))
        if losses
        else 0.0
    )


def pool_by_solver(losses, p, support):
    """The pooled value of a handful of positive losses from its definition, by a general convex
    solver.
    """
    n, scale = len(losses), max(losses)
    _, gamma, tau = (float(x) for x in pooling_constraints(n, p, support))
    found = minimize(
        lambda w: -sum(a * b for a, b in zip(w, losses)) / scale,
        [0.5 * min(tau, gamma * n ** (-1 / p))] * n,
        jac=lambda w: [-x / scale for x in losses],
        bounds=[(0.0, tau)] * n,
        constraints={
            "type": "ineq",
            "fun": lambda w: 1 - sum((abs(x) / gamma) ** p for x in w),
            "jac": lambda w: [-p * (abs(x) / gamma) ** (p - 1) / gamma for x in w],
        },
        options={"maxiter": 1000, "ftol": 1e-14},
    )
    return -float(found.fun) * scale


def pooled_perceptron(
    x, target, *, p=1.3, support=0.25, per_image=True, dim=None, ignore_index=None, reduction="mean"
):
    """x, target: (N, S) nested lists, target 0 or 1; the loss of an item is max(0, -score) of its
    true side.
    """
    images = [
        [max(0.0, -f if y == 1 else f) for f, y in zip(fs, ys) if y != ignore_index]
        for fs, ys in zip(x, target)
    ]
    groups = (
        [list(column) for column in zip(*images)]
        if dim == 0
        else images
        if per_image
        else [sum(images, [])]
    )
    values = [pool(group, p, support) for group in groups]
    if reduction == "none":
        return values
    return (
        sum(values)
        if reduction == "sum"
        else sum(values) / max(sum(1 for group in groups if group), 1)
    )


def bootstrapped_cross_entropy(
    x,
    target,
    *,
    k=0.25,
    threshold=None,
    per_image=True,
    ignore_index=None,
    weight=None,
    reduction="mean",
):
    """x: (N, C, S), target: (N, S) nested lists: sort the pixels by cross-entropy, take the
    first.
    """
    images = [
        [
            (-math.log(softmax([row[i] for row in logits])[y[i]]), y[i])
            for i in range(len(y))
            if y[i] != ignore_index
        ]
        for logits, y in zip(x, target)
    ]
    values = []
    for pixels in images if per_image else [sum(images, [])]:
        pixels = sorted(pixels, reverse=True)
        count = max(math.floor(k * len(pixels)), 1) if isinstance(k, float) else k
        if threshold is not None:
            count = max(count, sum(1 for loss, _ in pixels if math.exp(-loss) < threshold))
        kept = [(loss, 1.0 if weight is None else weight[y]) for loss, y in pixels[:count]]
        values.append(sum(loss * w for loss, w in kept) / sum(w for _, w in kept) if kept else None)
    if reduction == "none":
        return [value or 0.0 for value in values]
    counted = [value for value in values if value is not None]
    return sum(counted) if reduction == "sum" else sum(counted) / max(len(counted), 1)


def soft_overlap(
    x,
    target,
    *,
    misses=1.0,
    false_alarms=1.0,
    smooth=0.0,
    mode="multiclass",
    classes="present",
    per_image=False,
    ignore_index=None,
    weight=None,
    reduction="mean",
):
    """1 - the Tversky index of probabilities p and shares y for each class.

    x: (N, C, S), target: (N, S) class indices or (N, C, S) shares; binary: both (N, S).
    """
    if mode == "binary":
        x, target = [[row] for row in x], [[row] for row in target]
    channels = range(len(x[0]) if x else 1)
    images = []  # per image and class the pairs (p, y) that count
    for logits, labels in zip(x, target):
        image = [[] for _ in channels]
        for i in range(len(logits[0])):
            column = [row[i] for row in logits]
            p = softmax(column) if mode == "multiclass" else [sigmoid(z) for z in column]
            for c in channels:
                label = labels[c][i] if isinstance(labels[0], list) else labels[i]
                if label != ignore_index:
                    share = label if isinstance(labels[0], list) else float(label == c)
                    image[c].append((p[c], share))
        images.append(image)
    if not per_image:
        images = [[sum((image[c] for image in images), []) for c in channels]]
    table, means = [], []
    for image in images:
        row, weights = [], []
        for c, pairs in enumerate(image):
            hits = sum(min(p, y) for p, y in pairs)
            wrong = sum(misses * max(y - p, 0.0) + false_alarms * max(p - y, 0.0) for p, y in pairs)
            present = any(y > 0 for _, y in pairs)
            chosen = (
                {"present": present, "all": True}[classes]
                if isinstance(classes, str)
                else c in classes
            )
            weights.append((1.0 if weight is None else weight[c]) if chosen and pairs else 0.0)
            total = hits + wrong + smooth
            row.append(weights[-1] * (wrong / total if total else 0.0))
        table.append(row)
        if sum(weights):
            means.append(sum(row) / sum(weights))
    if reduction == "none":
        return table
    if reduction == "sum":
        return sum(map(sum, table))
    return sum(means) / len(means) if means else 0.0


def focal(
    x,
    target,
    *,
    gamma=2.0,
    alpha=None,
    mode="multiclass",
    ignore_index=None,
    weight=None,
    reduction="mean",
):
    """x: (N, C, S), target: (N, S) nested lists; binary: both (N, S)."""
    losses, weights = [], []
    for logits, labels in zip(x, target):
        row = []
        for i, label in enumerate(labels):
            counts = label != ignore_index
            if mode == "binary":
                p = sigmoid(logits[i] if label == 1 else -logits[i])
                share = 1.0 if alpha is None else alpha if label == 1 else 1 - alpha
                weights.append(float(counts))
            else:
                p = softmax([c[i] for c in logits])[label] if counts else 1.0
                share = 1.0 if weight is None or not counts else weight[label]
                weights.append(share if counts else 0.0)
            row.append(share * (1 - p) ** gamma * -math.log(p) if counts else 0.0)
        losses.append(row)
    if reduction == "none":
        return losses
    total = sum(map(sum, losses))
    return total if reduction == "sum" else total / (sum(weights) or 1.0)


def sigmoid(z):
    """1 / (1 + exp(-z)) without overflow."""
    return 1 / (1 + math.exp(-z)) if z >= 0 else math.exp(z) / (1 + math.exp(z))
