"""Theorem 6 of the paper, a gap of O(1 / sqrt T) after T steps, of the library's Lagrangian on a
linear problem whose optimum HiGHS finds; with one projection per pass, as in the paper's algorithm
3, and with one per step.
"""

import numpy as np
import oracles_s_measures as oracles
import pytest
import torch
from training_s_measures import linear_problem

import evalgrad as eg
from evalgrad.s_measures import lagrangian

DECADES = (10, 100, 1000)


def value(weight: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
    """V = (n + sum_- max(0, 1 + f)) / sum_+ min(1, f), of all items."""
    f = x @ weight
    return (y.sum() + np.maximum(0, 1 + f[~y]).sum()) / np.minimum(1, f[y]).sum()


def averages(
    measure: eg.FBeta, x: np.ndarray, y: np.ndarray, *, batches: int, step: float
) -> dict[int, np.ndarray]:
    """The mean of the first T weights for T of `DECADES`, of plain SGD with a constant step, a
    projection at every `project_every`-th step and one dual step per pass.
    """
    torch.manual_seed(0)
    features, target = torch.tensor(x, dtype=torch.float32), torch.tensor(y)
    weight = torch.zeros(x.shape[1], requires_grad=True)
    optimiser = torch.optim.SGD([{"params": [weight]}, *measure.primal_groups(step)], lr=step)
    path: list[np.ndarray] = []
    while len(path) < max(DECADES):
        for index in torch.randperm(len(x)).chunk(batches):
            optimiser.zero_grad()
            measure(features[index] @ weight, target[index], index=index).backward()
            optimiser.step()
            measure.project_()
            path.append(weight.detach().double().numpy().copy())
        measure.dual_step()
    return {steps: np.mean(path[:steps], axis=0) for steps in DECADES}


def gaps(*, batches: int, step: float, **options: float) -> np.ndarray:
    x, y = linear_problem(1)
    measure = eg.FBeta(labels=torch.tensor(y), solver="lagrangian", **options)
    found = averages(measure, x, y, batches=batches, step=step)
    best = oracles.fbeta_program(x, y, 1.0)
    return np.array([value(weight, x, y) - best for weight in found.values()])


# in eighths tau_i moves by step * 8 * augment of its gap: above 2 it would overshoot
@pytest.mark.parametrize(
    "options",
    [
        {"batches": 1, "step": 0.1},
        {"batches": 8, "step": 0.03},
        {"batches": 8, "step": 0.03, "project_every": 8},
        {"batches": 8, "step": 0.1, "augment": 0},  # the paper's Lagrangian
        {"batches": 8, "step": 0.1, "augment": 0, "project_every": 8},
    ],
)
def test_the_gap_of_the_average_falls_faster_than_one_over_the_root_of_the_steps(options):
    found = gaps(**options)
    assert (found > 0).all()  # no weights are below the program
    assert (found[1:] < found[:-1] / 10**0.5).all()


def test_it_does_not_if_tau_overshoots():
    """0.1 * 8 * 5, at the default `augment`; 0.03 * 8 * 5 is less than 2."""
    found = gaps(batches=8, step=0.1)
    assert found[-1] > found[-2]


@pytest.mark.parametrize(
    "options", [{"batches": 1, "step": 0.1}, {"batches": 8, "step": 0.1, "augment": 0}]
)
def test_it_does_not_without_projections(options):
    found = gaps(**options, project_every=10**6)
    assert not (found[1:] < found[:-1] / 10**0.5).all()


def test_it_does_not_with_a_projection_in_another_metric(monkeypatch):
    """The broken version: Euclidean, for steps of tau and epsilon that are not the same."""
    monkeypatch.setattr(
        lagrangian,
        "project_onto_ceiling",
        lambda tau, epsilon, rho: eg.project_onto_ceiling(tau, epsilon),
    )
    found = gaps(batches=1, step=0.1)
    assert not (found[1:] < found[:-1] / 10**0.5).all()
