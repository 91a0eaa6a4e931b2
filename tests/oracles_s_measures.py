"""Independent oracles: linear programs by HiGHS, the projection by a QP solver, metrics by loops
over thresholds.

Written from docs/maths.md ("S-measures") and the definitions of the metrics; imports nothing of
the package.
"""

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog, nnls


def projection(tau: np.ndarray, epsilon: float, rho: float) -> tuple[np.ndarray, float]:
    """min (e - epsilon)^2 + rho |t - tau|^2 s.t. t_i <= e, e >= 0: a cone, so its QP dual is
    non-negative least squares.
    """
    n, root = len(tau), np.sqrt(rho)
    cone = np.zeros((n + 1, n + 1))  # rows g with g . (e, root t) <= 0
    cone[0, 0] = -1
    cone[1:, 0], cone[1:, 1:] = -1, np.eye(n) / root
    point = np.concatenate([[epsilon], root * tau])
    dual, _ = nnls(cone.T, point, maxiter=50 * (n + 1))
    e, *t = point - cone.T @ dual
    return np.array(t) / root, e


def fbeta_program(x: np.ndarray, y: np.ndarray, beta: float) -> float | None:
    """V* of the F-beta LP over w, tau, phi, epsilon."""
    p, m = x[y], x[~y]
    n, k, d = len(p), len(m), x.shape[1]
    cost = np.r_[np.zeros(d + n), np.full(k, 1 / n), beta**2]
    below = sp.bmat(
        [
            [-p, sp.eye(n), None, sp.csr_matrix((n, 1))],
            [sp.csr_matrix((n, d)), sp.eye(n), None, -np.ones((n, 1))],
            [m, None, -sp.eye(k), np.ones((k, 1))],
        ]
    )
    equal = np.r_[np.zeros(d), np.full(n, 1 / n), np.zeros(k + 1)][None]
    bounds = [(None, None)] * (d + n) + [(0, None)] * (k + 1)
    result = linprog(cost, below, np.zeros(2 * n + k), equal, [1.0], bounds=bounds, method="highs")
    return result.fun if result.status == 0 else None


def anchored_program(
    x: np.ndarray, y: np.ndarray, kind: str, anchors: list[float], shares: list[float], free: bool
) -> float | None:
    """min sum share * cost over w and, if `free`, one threshold per anchor.

    kind: "precision@recall" | "recall@precision" | "tpr@fpr".
    """
    p, m = x[y], x[~y]
    n, k, d, rows = len(p), len(m), x.shape[1], len(anchors)
    cost, blocks, right, bounds = [np.zeros(d)], [], [], [(None, None)] * d
    width = n + k + 1  # tau, phi, threshold of one anchor
    for r, (a, share) in enumerate(zip(anchors, shares, strict=True)):
        before, after = sp.csr_matrix((1, r * width)), sp.csr_matrix((1, (rows - r - 1) * width))

        def place(w, tau, phi, b, before=before, after=after):
            height = w.shape[0]
            pad = [sp.csr_matrix((height, z.shape[1])) for z in (before, after)]
            return sp.hstack([w, pad[0], tau, phi, b, pad[1]])

        blocks.append(place(-p, sp.eye(n), sp.csr_matrix((n, k)), np.ones((n, 1))))
        right.append(np.zeros(n))  # tau <= x w - b
        blocks.append(place(m, sp.csr_matrix((k, n)), -sp.eye(k), -np.ones((k, 1))))
        right.append(-np.ones(k))  # phi >= 1 + x w - b
        hit, alarm = np.full((1, n), 1 / n), np.full((1, k), 1 / n)
        row, limit, price = {
            "precision@recall": ((-hit, 0 * alarm), -a, (0 * hit, alarm)),
            "recall@precision": ((-(1 - a) * hit, a * alarm), 0.0, (-hit, 0 * alarm)),
            "tpr@fpr": ((0 * hit, alarm * n / k), a, (-hit, 0 * alarm)),
        }[kind]
        blocks.append(place(np.zeros((1, d)), *row, np.zeros((1, 1))))
        right.append([limit])
        cost += [share * price[0][0], share * price[1][0], [0.0]]
        bounds += [(None, 1)] * n + [(0, None)] * k + [(None, None) if free else (0, 0)]
    result = linprog(
        np.concatenate(cost),
        sp.vstack(blocks),
        np.concatenate(right),
        bounds=bounds,
        method="highs",
    )
    return result.fun if result.status == 0 else None


def curve(scores: np.ndarray, y: np.ndarray) -> list[tuple[int, int]]:
    """(tp, fp) of every threshold, items at the threshold included."""
    return [
        (int((y & (scores >= t)).sum()), int((~y & (scores >= t)).sum()))
        for t in np.unique(scores)[::-1]
    ]


def precision_at_recall(scores: np.ndarray, y: np.ndarray, recall: float) -> float:
    return max(
        (tp / (tp + fp) for tp, fp in curve(scores, y) if tp >= recall * y.sum() - 1e-9),
        default=0.0,
    )


def recall_at_precision(scores: np.ndarray, y: np.ndarray, precision: float) -> float:
    return max(
        (tp / y.sum() for tp, fp in curve(scores, y) if tp >= precision * (tp + fp) - 1e-9),
        default=0.0,
    )


def sensitivity_at_specificity(scores: np.ndarray, y: np.ndarray, specificity: float) -> float:
    most = (1 - specificity) * (~y).sum() + 1e-9
    return max((tp / y.sum() for tp, fp in curve(scores, y) if fp <= most), default=0.0)


def partial_roc_auc(scores: np.ndarray, y: np.ndarray, max_fpr: float) -> float:
    """A step down from each positive that outranks a negative, ties against the model; McClish."""
    n, area = (~y).sum(), 0.0
    for place, b in enumerate(np.sort(scores[~y])[::-1]):  # [place / n, (place + 1) / n]
        width = np.clip(max_fpr - place / n, 0, 1 / n)
        area += width * np.mean(scores[y] > b)
    least = max_fpr**2 / 2
    return float(0.5 * (1 + (area - least) / (max_fpr - least)))


def roc_auc(scores: np.ndarray, y: np.ndarray) -> float:
    return float(np.mean([a > b for a in scores[y] for b in scores[~y]]))


def pr_auc(scores: np.ndarray, y: np.ndarray) -> float:
    """Exact integral of the staircase r -> precision_at_recall(r): recall moves in steps of 1/n."""
    n = int(y.sum())
    return sum(precision_at_recall(scores, y, i / n) for i in range(1, n + 1)) / n


def fbeta(scores: np.ndarray, y: np.ndarray, beta: float) -> float:
    tp, fn, fp = (
        int((y & (scores > 0)).sum()),
        int((y & (scores <= 0)).sum()),
        int((~y & (scores >= 0)).sum()),
    )
    return (1 + beta**2) * tp / ((1 + beta**2) * tp + beta**2 * fn + fp)
