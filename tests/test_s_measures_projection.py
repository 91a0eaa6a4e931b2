"""The projection against a QP solver, and its derivative."""

import numpy as np
import oracles_s_measures as oracles
import pytest
import torch

from evalgrad import project_onto_ceiling


def random_points(count: int):
    draw = np.random.default_rng(0)
    for i in range(count):
        n = int(draw.integers(1, 12))
        tau = draw.normal(size=n) * draw.choice([0.1, 1, 10])
        if i % 4 == 0:
            tau = np.round(tau)  # ties
        yield tau, float(draw.normal()), float(10 ** draw.uniform(-3, 3))


def error(project, tau, epsilon, rho):
    expected_tau, expected_epsilon = oracles.projection(tau, epsilon, rho)
    got_tau, got_epsilon = project(tau, epsilon)
    return max(
        np.abs(np.asarray(got_tau) - expected_tau).max(), abs(float(got_epsilon) - expected_epsilon)
    )


def test_equals_the_quadratic_program():
    for tau, epsilon, rho in random_points(1000):

        def ours(t, e, rho=rho):
            return project_onto_ceiling(
                torch.tensor(t), torch.tensor(e, dtype=torch.float64), rho=rho
            )

        assert error(ours, tau, epsilon, rho) < 1e-8 * max(1, np.abs(tau).max())


def test_batched_rows_equal_single_rows_and_are_feasible():
    tau, epsilon = torch.randn(3, 4, 9, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)
    t, e = project_onto_ceiling(tau, epsilon, rho=0.3)
    assert (t <= e.unsqueeze(-1)).all()
    assert (e >= 0).all()
    single = project_onto_ceiling(tau[1, 2], epsilon[1, 2], rho=0.3)
    torch.testing.assert_close((t[1, 2], e[1, 2]), single)


@pytest.mark.parametrize("rho", [0.1, 1.0, 7.0])
def test_gradcheck(rho):
    torch.manual_seed(1)
    tau, epsilon = (
        torch.randn(4, 6, dtype=torch.float64, requires_grad=True),
        torch.randn(4, dtype=torch.float64, requires_grad=True),
    )
    assert torch.autograd.gradcheck(
        lambda t, e: project_onto_ceiling(t, e, rho=rho), (tau, epsilon)
    )


def test_edges():
    t, e = project_onto_ceiling(torch.zeros(0), torch.tensor(-2.0))
    assert t.shape == (0,)
    assert e == 0
    t, e = project_onto_ceiling(
        torch.tensor([3.0, 1.0], dtype=torch.bfloat16), torch.tensor(1.0, dtype=torch.bfloat16)
    )
    assert t.dtype == e.dtype == torch.bfloat16
    assert e == 2
    assert project_onto_ceiling(torch.tensor([torch.nan, 1.0]), torch.tensor(0.0))[1].isnan()
