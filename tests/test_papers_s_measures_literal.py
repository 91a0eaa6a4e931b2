"""What the paper prints of its algorithm, shown for what it is: the library's corrections against
the letter.
"""

import numpy as np
import pytest
import torch
from test_s_measures_projection import random_points
from training_s_measures import linear_problem, train

import evalgrad as eg
from reproductions.s_measures.literal import (
    LAMBDA_STEP,
    MU_STEP,
    PRIMAL_STEP,
    LiteralF1,
    rule_for_two,
    sinkhorn_sort,
    sketched_projection,
    soft_projection,
)


def test_the_loss_is_equation_4():
    labels, index = torch.tensor([1, 0, 1, 0, 0]), torch.arange(5)
    measure, f = LiteralF1(labels), torch.tensor([0.3, -0.2, 2.0, 0.4, -3.0])
    measure.lam += torch.tensor([0.5, 0.25])
    measure.mu += 0.7
    hit = f[labels == 1]
    expected = (
        2 * 0.5
        + sum(max(0.0, 0.5 + x) for x in (-0.2, 0.4, -3.0))
        + 0.7 * (0.5 + 0.5 - 1)
        + 0.5 * (0.5 - hit[0])
        + 0.25 * (0.5 - hit[1])
    )
    torch.testing.assert_close(measure(f, labels, index=index), torch.as_tensor(expected))
    measure.project_()
    measure.ascend(0.25, 0.25)
    torch.testing.assert_close(
        measure.lam, torch.tensor([0.5, 0.25]) + 0.25 * (torch.tensor([0.5, 0.5]) - hit)
    )
    assert measure.mu == pytest.approx(0.7)


def test_the_dual_steps_of_algorithm_1_are_c_over_the_epoch():
    """At the same residuals for E epochs the multipliers move c (1 + 1/2 + ... + 1/E) times these:
    from its start at 0 towards -V <= -1, mu comes 4.3 c times the residual in the paper's 40.
    """
    measure, steps = LiteralF1(torch.tensor([1, 1, 0])), (0.9, 0.3)
    with torch.no_grad():
        measure.tau.copy_(torch.tensor([0.1, 0.4]))
    measure(torch.tensor([0.5, 0.2, 0.0]), torch.tensor([1, 1, 0]), index=torch.arange(3))
    for epoch in range(1, 41):
        measure.ascend(*steps, epoch=epoch)
    harmonic = sum(1 / epoch for epoch in range(1, 41))
    assert measure.mu == pytest.approx(steps[1] * harmonic * (0.1 + 0.4 - 1), rel=1e-5)
    torch.testing.assert_close(
        measure.lam, steps[0] * harmonic * torch.tensor([0.1 - 0.5, 0.4 - 0.2])
    )


def test_the_letter_certifies_less_than_the_correction():
    """Section 4's step sizes with Adam on a linear problem, against `FBeta`."""
    x, y = linear_problem(1)
    features, target = torch.tensor(x, dtype=torch.float32), torch.tensor(y)
    weight, measure = torch.zeros(features.shape[1], requires_grad=True), LiteralF1(target)
    optimiser = torch.optim.Adam([weight, *measure.parameters()], lr=PRIMAL_STEP)
    for _ in range(40):
        for index in torch.randperm(len(x)).split(30):
            optimiser.zero_grad()
            measure(features[index] @ weight, target[index], index=index).backward()
            optimiser.step()
        measure.project_()
        measure.ascend(LAMBDA_STEP, MU_STEP)
    judge, corrected = eg.FBeta(labels=target), eg.FBeta(labels=target)
    train(corrected, x, y, steps=320, batches=8)
    judge(features @ weight.detach(), target, index=torch.arange(len(x)))
    assert judge.diagnostics()["certificate"] < 0.9 * corrected.diagnostics()["certificate"]


def test_the_rule_for_two_is_the_projection_only_where_epsilon_is_positive():
    draw = np.random.default_rng(0)
    points = torch.tensor(draw.normal(size=(400, 2)))
    right = [
        torch.allclose(torch.stack(rule_for_two(tau, epsilon)), torch.stack(exact))
        for tau, epsilon in points
        for exact in [[x.squeeze() for x in eg.project_onto_ceiling(tau[None], epsilon)]]
    ]
    positive = points[:, 1] >= 0
    assert torch.tensor(right)[positive].all()
    assert 0.15 < 1 - np.mean(right) < 0.35


def unweighted(tau, epsilon, *, sample, rho, generator):
    """Section 7.5 to the letter: the projection of the sample."""
    drawn = tau[torch.randperm(len(tau), generator=generator)[:sample]]
    level = eg.project_onto_ceiling(drawn, epsilon, rho=rho)[1]
    return tau.minimum(level), level


def sketch_error(tau, sample, rho, project=sketched_projection, draws=200):
    """Root of the mean square of all draws, of the ceiling; tau follows from it."""
    draw, epsilon = torch.Generator().manual_seed(0), tau.new_zeros(())
    exact = eg.project_onto_ceiling(tau, epsilon, rho=rho)[1]
    errors = []
    for _ in range(draws):
        near, level = project(tau, epsilon, sample=sample, rho=rho, generator=draw)
        assert near.equal(tau.clamp(max=level))
        errors.append(level - exact)
    return torch.stack(errors).square().mean().sqrt().item()


def midpoints(n):
    return (torch.arange(n, dtype=torch.float64) + 0.5) / n


@pytest.mark.parametrize("n", [2000, 20000])
@pytest.mark.parametrize("sample", [50, 200, 800])
def test_a_sketched_threshold_errs_as_a_mean_of_the_sample_does(n, sample):
    """tau uniform in [0, 1], epsilon = 0, rho = 1 / n: the ceiling c is the mean of max(0, tau - c)
    = (1 - c)^2 / 2, so c = 2 - sqrt 3, and moves by 1 / (1 + P(tau > c)) of an error of the mean.
    """
    c = 2 - 3**0.5
    deviation = ((1 - c) ** 3 / 3 - c**2) ** 0.5 * (1 - sample / n) ** 0.5  # without replacement
    expected = deviation / sample**0.5 / (1 + (1 - c))
    assert sketch_error(midpoints(n), sample, 1 / n) == pytest.approx(expected, rel=0.15)
    assert sketch_error(midpoints(n), sample, 1 / n, unweighted) > 5 * expected


def test_a_sketch_of_all_is_the_projection():
    tau, epsilon = torch.randn(300, dtype=torch.float64), torch.tensor(0.1, dtype=torch.float64)
    for rho in (1.0, 0.02):
        torch.testing.assert_close(
            sketched_projection(tau, epsilon, sample=300, rho=rho),
            eg.project_onto_ceiling(tau, epsilon, rho=rho),
        )


def test_only_for_some_distributions_does_the_sample_not_grow_with_the_data():
    """The paper's own distance, rho = 1: the values above the ceiling are those whose excesses add
    up to its rise, a few of a tail, which a sample of fixed size misses, but all of those that a
    projection has put at the same value.
    """
    few, many = midpoints(1000), midpoints(20000)
    tail = [sketch_error(torch.special.ndtri(u), 200, 1.0, draws=50) for u in (few, many)]
    assert tail[1] > 2 * tail[0]
    tied = [sketch_error(u.clamp(max=0.5), 200, 1.0, draws=50) for u in (few, many)]
    assert max(tied) < 1e-3


def test_the_soft_projection_tends_to_the_exact_one():
    gaps = {temperature: [] for temperature in (1.0, 0.1, 0.01)}
    for tau, epsilon, _ in random_points(12):
        if not 2 <= len(tau) <= 12:
            continue
        point = torch.tensor(tau), torch.tensor(epsilon, dtype=torch.float64)
        exact = torch.cat([x.reshape(-1) for x in eg.project_onto_ceiling(*point)])
        for temperature, found in gaps.items():
            soft = torch.cat(
                [x.reshape(-1) for x in soft_projection(*point, temperature=temperature)]
            )
            found.append((soft - exact).abs().max().item())
    means = [np.mean(found) for found in gaps.values()]
    assert means[0] > means[1] > means[2]
    assert means[2] < 0.15  # the smoothing of the sort remains


def test_the_soft_projection_is_differentiable():
    tau = torch.tensor([1.3, -0.4, 0.9, 0.2], dtype=torch.float64, requires_grad=True)
    epsilon = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda t, e: soft_projection(t, e, temperature=0.3, rounds=20), (tau, epsilon)
    )
    order = sinkhorn_sort(tau, temperature=0.003, rounds=400)
    torch.testing.assert_close(order, tau.sort(descending=True).values, atol=0.02, rtol=0)
