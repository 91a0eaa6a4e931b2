"""Symmetric polynomials, marginals and predictions against the oracle and against their own
sums.
"""

import math

import oracles_smooth_topk as topk_oracles
import pytest
import torch
from test_smooth_topk import KINDS, draw
from torchmetrics.functional.classification import multiclass_accuracy

import evalgrad as eg
from evalgrad import metrics


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "k"), [(1, 1), (5, 5), (9, 2), (65, 1), (100, 16), (60, 59)])
def test_log_sigma_equals_oracle(n, k, kind, dtype):
    x = draw(kind, n, k, 1.0).to(dtype)
    expected = torch.tensor(
        topk_oracles.log_elementary_symmetric(x.tolist(), k), dtype=torch.float64
    )
    scale = max(1.0, x.abs().max().item(), expected.abs().max().item())
    error = (eg.log_elementary_symmetric(x, k=k).double() - expected).abs().max().item()
    assert error <= (1e-13 if dtype == torch.float64 else 1e-6) * scale


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "k"), [(3, 2), (9, 5), (65, 1), (100, 16), (60, 59)])
def test_probabilities_equal_oracle_and_sum_to_k(n, k, kind, dtype):
    for temperature in (10.0, 1.0, 1e-3):
        x = draw(kind, n, k, temperature).to(dtype)
        p = eg.topk_probabilities(x, k=k, temperature=temperature).double()
        expected = torch.tensor(
            topk_oracles.topk_probabilities(x.tolist(), k, temperature), dtype=torch.float64
        )
        tolerance = 1e-13 if dtype == torch.float64 else 1e-6
        assert (p - expected).abs().max() <= tolerance
        assert abs(p.sum().item() - k) <= tolerance * k


@pytest.mark.parametrize(("n", "k"), [(6, 2), (6, 6), (40, 3)])
def test_derivatives_of_every_order(n, k):
    x = torch.randn(2, n, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: eg.log_elementary_symmetric(t, k=k), x)
    assert torch.autograd.gradgradcheck(lambda t: eg.log_elementary_symmetric(t, k=k), x)
    assert torch.autograd.gradcheck(lambda t: eg.topk_probabilities(t, k=k, temperature=0.7), x)


def test_probabilities_are_the_derivative_of_log_sigma():
    x = torch.randn(3, 4, 50, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(eg.log_elementary_symmetric(x, k=7)[..., 7].sum(), x)
    torch.testing.assert_close(eg.topk_probabilities(x.detach(), k=7), slope)
    torch.testing.assert_close(eg.topk_probabilities(x, k=1), x.softmax(-1))


def test_a_shorter_call_is_a_prefix():
    x = torch.randn(4, 60, dtype=torch.float64)
    full = eg.log_elementary_symmetric(x, k=20)
    for k in range(1, 20):
        torch.testing.assert_close(
            eg.log_elementary_symmetric(x, k=k), full[:, : k + 1], rtol=1e-14, atol=1e-14
        )


@pytest.mark.parametrize("function", [eg.log_elementary_symmetric, eg.topk_probabilities])
def test_half_is_computed_in_float32(function):
    x = torch.randn(3, 30).half()
    assert function(x, k=4).dtype == torch.float16
    assert torch.equal(function(x, k=4), function(x.float(), k=4).half())


@pytest.mark.parametrize("function", [eg.log_elementary_symmetric, eg.topk_probabilities])
def test_nan_propagates(function):
    x = torch.randn(2, 30)
    x[1, 20] = torch.nan
    result = function(x, k=2)
    assert result[0].isfinite().all()
    assert result[1].isnan().any()


@pytest.mark.parametrize("function", [eg.log_elementary_symmetric, eg.topk_probabilities])
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_engines(function):
    x = torch.randn(5, 3, 40)
    torch.testing.assert_close(torch.vmap(lambda t: function(t, k=4))(x), function(x, k=4))
    compiled = torch.compile(lambda t: function(t, k=4), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), function(x, k=4))
    weights = torch.randn_like(function(x, k=4))
    _, tangent = torch.func.jvp(lambda t: function(t, k=4), (x,), (torch.ones_like(x),))
    gradient = torch.func.grad(lambda t: (function(t, k=4) * weights).sum())(x)
    torch.testing.assert_close((tangent * weights).sum(), gradient.sum(), rtol=1e-4, atol=1e-4)


def test_crops_are_averaged_as_probabilities_not_as_scores():
    """One very sure crop must not outvote two that agree."""
    crops = torch.tensor([[0.0, 20.0, 1.0, 2.0], [3.0, 0.0, 0.5, 2.0], [3.0, 0.0, 0.5, 2.0]])
    p = [topk_oracles.topk_probabilities(row.tolist(), 2, 1.0) for row in crops]
    mean = [sum(column) / 3 for column in zip(*p)]
    expected = sorted(range(4), key=lambda i: -mean[i])[:2]
    assert eg.topk_predict(crops, k=2, crop_dim=0).tolist() == expected == [3, 0]
    assert crops.mean(0).topk(2).indices.tolist() == [1, 3]
    two = torch.stack([crops, crops.flip(1)])
    for scores, axis in ((two, -2), (two, 1), (two.movedim(1, 0), 0)):
        assert eg.topk_predict(scores, k=2, crop_dim=axis).tolist() == [[3, 0], [0, 3]]


def test_one_view_predicts_the_largest_scores():
    x = torch.randn(20, 30)
    assert torch.equal(eg.topk_predict(x, k=5), x.topk(5).indices)
    assert torch.equal(eg.topk_predict(x[0], k=5), x[0].topk(5).indices)


def test_topk_error_by_hand_and_by_torchmetrics():
    x, y = torch.randn(200, 10), torch.randint(10, (200,))
    for k in (1, 3, 9, 10):
        accuracy = multiclass_accuracy(x, y, num_classes=10, average="micro", top_k=k)
        assert metrics.topk_error(x, y, k=k).item() == pytest.approx(1 - accuracy.item(), abs=1e-6)
        wrong = [sum(s >= row[c] for s in row) > k for row, c in zip(x.tolist(), y.tolist())]
        assert metrics.topk_error(x, y, k=k).item() == pytest.approx(sum(wrong) / 200)


def test_topk_error_in_the_hard_cases():
    constant, y = torch.zeros(4, 6), torch.tensor([0, 1, 2, 3])
    assert metrics.topk_error(constant, y, k=5) == 1  # ties count against the model
    assert metrics.topk_error(constant, y, k=6) == 0
    assert metrics.topk_error(constant.fill_(math.nan), y, k=2) == 1
    sure = torch.eye(6)[y]
    assert metrics.topk_error(sure, y, k=1) == 0
    assert metrics.topk_error(
        sure, torch.tensor([0, 1, 255, 4]), k=1, ignore_index=255
    ).item() == pytest.approx(1 / 3)
    assert metrics.topk_error(sure, torch.full((4,), 255), k=1, ignore_index=255).isnan()
    pixels, labels = sure.T.reshape(1, 6, 2, 2), y.reshape(1, 2, 2)
    assert metrics.topk_error(pixels, labels, k=1) == 0
