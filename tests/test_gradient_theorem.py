"""The General Loss Gradient Theorem: on average, direct gradients are the gradient of the expected
task loss.

The scores are w x + noise with Gaussian noise, so that E[Delta] is smooth in w and its derivative
has a second, unbiased estimate that needs no gradient of ours: E[(Delta - c) noise . x] (the
density's own derivative). The direct gradient must approach it as epsilon shrinks, from both sides.
"""

import math
import runpy
from pathlib import Path

import pytest
import torch

import evalgrad as eg

EXAMPLE = Path(__file__).parents[1] / "docs" / "examples" / "cost_matrix.py"
W, ROWS = 0.5, 500_000


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def average_precision(scores, **options):
    target = torch.tensor([True, True, True, False, False, False]).expand_as(scores)
    return eg.direct_average_precision_loss(scores, target, reduction="none", **options)


def ndcg(scores, **options):
    target = torch.tensor([True, True, True, False, False, False]).expand_as(scores)
    return eg.direct_ndcg_loss(scores, target, k=2, reduction="none", **options)


def graded(scores, **options):
    target = torch.tensor([3, 1, 2, 0, 0, 1]).expand_as(scores)
    return eg.direct_graded_ndcg_loss(scores, target, reduction="none", **options)


def graded_at_2(scores, **options):
    return graded(scores, k=2, gain="exponential", **options)


def jaccard(scores, **options):
    target = torch.tensor([True, True, False, False]).expand_as(scores)
    return eg.direct_jaccard_loss(scores, target, reduction="none", **options)


def zero_one(scores, **options):
    target = torch.tensor([True, False, True]).expand_as(scores)
    return eg.direct_zero_one_loss(scores, target, reduction="none", **options)


def cost_matrix(scores, **options):
    example = runpy.run_path(str(EXAMPLE))
    cost = torch.tensor([[0.0, 1.0, 2.0], [4.0, 0.0, 1.0], [3.0, 1.0, 0.0]])
    target = torch.arange(len(scores)) % 3
    return example["cost_matrix_loss"](scores, target, cost, **options)


FEATURES = {
    average_precision: [0.9, 0.1, -0.4, 0.7, -0.3, -1.0],
    ndcg: [0.9, 0.1, -0.4, 0.7, -0.3, -1.0],
    graded: [0.9, 0.1, -0.4, 0.7, -0.3, -1.0],
    graded_at_2: [0.9, 0.1, -0.4, 0.7, -0.3, -1.0],
    jaccard: [1.0, 0.5, -0.7, 0.3],
    zero_one: [1.0, -0.5, 0.8],
    cost_matrix: [1.0, -0.4, 0.2],
}


def gradients(loss, direction, epsilons, sign=1.0):
    """The true gradient in w and the direct ones, each with its standard error."""
    x = torch.tensor(FEATURES[loss])
    noise = torch.randn(ROWS, len(x), generator=torch.Generator().manual_seed(0))
    value = loss(W * x + noise, epsilon=1.0)
    samples = [(value - value.mean()) * (noise @ x)]
    for epsilon in epsilons:
        scores = (W * x + noise).requires_grad_()
        loss(scores, epsilon=epsilon, direction=direction).sum().backward()
        samples.append(sign * scores.grad @ x)
    return [(s.double().mean().item(), s.double().std().item() / math.sqrt(ROWS)) for s in samples]


def assert_theorem(loss, direction, sign=1.0):
    (truth, noise), (coarse, _), (fine, fine_noise) = gradients(loss, direction, (5.0, 0.1), sign)
    assert abs(truth) > 20 * noise, "the toy must have a gradient"
    assert abs(fine - truth) < 0.05 * abs(truth) + 3 * math.hypot(noise, fine_noise)
    assert abs(coarse - truth) > abs(fine - truth), "the bias must shrink with epsilon"


@pytest.mark.parametrize("loss", FEATURES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("direction", ["positive", "negative"])
def test_direct_gradient_is_the_gradient_of_the_expected_task_loss(loss, direction):
    assert_theorem(loss, direction)


@pytest.mark.parametrize("loss", FEATURES, ids=lambda f: f.__name__)
def test_the_other_sign_is_rejected(loss):
    with pytest.raises(AssertionError):
        assert_theorem(loss, "positive", sign=-1.0)


def test_the_worked_example_lowers_the_cost():
    before, after = runpy.run_path(str(EXAMPLE))["main"]()
    assert after < 0.8 * before
