"""The projections printed in the paper, Algorithms 2 and 4, which the oracle of the projection must
reject.
"""

import numpy as np
import pytest
from test_s_measures_projection import error, random_points


def printed_algorithm_2(tau: np.ndarray, epsilon: float) -> tuple[np.ndarray, float]:
    """Algorithm 2 as printed: k* largest with tau_{k*+1} <= mean of the first k*, divided by k*
    though k* + 1 are summed.
    """
    order = np.argsort(-tau, kind="stable")
    point = np.concatenate([[max(epsilon, 0.0)], tau[order]])
    n = len(tau)
    k = max([k for k in range(1, n + 1) if k == n or point[k + 1] <= point[1 : k + 1].mean()])
    level = point[: k + 1].sum() / k
    out = tau.copy()
    out[order[:k]] = level
    return out, level


def printed_algorithm_4(tau: np.ndarray, epsilon: float) -> tuple[np.ndarray, float]:
    """Algorithm 4 as printed: clamps first, averages gamma_t instead of gamma_{t+1}, writes tau[2 :
    k* - 1].
    """
    order = np.argsort(-tau, kind="stable")
    gamma = np.concatenate([[epsilon], tau[order]])  # gamma[t - 1] is the paper's gamma_t
    level, stop = max(gamma[0], 0.0), len(tau) + 1
    for t in range(1, len(tau) + 1):
        if gamma[t] <= max(level, 0.0):
            stop = t
            break
        level = t / (t + 1) * level + gamma[t - 1] / (t + 1)
    level = max(level, 0.0)
    sorted_out = gamma[1:].copy()
    sorted_out[: max(stop - 2, 0)] = level  # positions 2 .. k* - 1 of the printed vector
    out = tau.copy()
    out[order] = sorted_out
    return out, level


@pytest.mark.parametrize(
    ("printed", "share"), [(printed_algorithm_2, 0.9), (printed_algorithm_4, 0.5)]
)
def test_printed_algorithms_are_rejected(printed, share):
    wrong = [
        error(printed, tau, epsilon, 1.0) > 1e-6
        for tau, epsilon, _ in random_points(400)
        if len(tau) > 1
    ]
    assert np.mean(wrong) > share
