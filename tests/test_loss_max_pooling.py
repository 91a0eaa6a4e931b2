"""What loss max-pooling promises beyond the laws: every p, every scale, every layout, every
criterion.
"""

import itertools
import math

import oracles
import pytest
import torch
from torch import nn

import evalgrad as eg
from evalgrad import _native

PS = (1.0, 1 + 1e-12, 1.001, 1.001001, 1.01, 1.3, 2.0, 5.0, 1e7, math.inf)
SUPPORTS = (1e-3, 0.1, 0.25, 1 / 3, 0.77, 1.0)
KINDS = {
    "exponential": lambda u: -u.log(),
    "trained": lambda u: (12 * u - 20 * u**0.1).exp(),
    "1e-30 to 1e30": lambda u: 10 ** (60 * u - 30),
    "nearly tied": lambda u: 1 + 1e-4 * u,
    "tied": lambda u: 0.7 * (4 * u).floor(),
    "constant": lambda u: torch.full_like(u, 0.3),
    "sparse": lambda u: torch.where(u < 0.1, -u.log(), 0),
    "zero": torch.zeros_like,
}


def draw(kind, *shape, seed=0):
    u = torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return KINDS[kind](u.clamp(min=1e-9)).float()


def pool(losses, **options):
    """Values (groups,) and the gradient of their sum."""
    losses = losses.detach().clone().requires_grad_()
    value = eg.loss_max_pooling(losses, reduction="none", **options)
    value.sum().backward()
    return value.detach(), losses.grad


def relative_error(actual, expected, floor=1e-30):
    """Largest relative error; entries below `floor` of the largest are compared with that."""
    actual, expected = actual.double(), expected.double()
    scale = (floor * expected.abs().amax()).clamp(min=1e-300)
    return ((actual - expected).abs() / torch.maximum(expected.abs(), scale)).max().item()


def check_against_bisection(weigh, kind, p, tolerance, dtype=torch.float32):
    """`weigh(losses (1, n), p, support)` against 60 digits."""
    for n, support in itertools.product((1, 2, 11), SUPPORTS[:: 1 if p == 1.3 else 3]):
        losses = draw(kind, 1, n, seed=n)
        expected = torch.tensor(
            oracles.pooling_weights(losses[0].tolist(), p, support), dtype=torch.float64
        )
        assert relative_error(weigh(losses.to(dtype), p, support)[0], expected) <= tolerance


@pytest.mark.parametrize("p", PS)
@pytest.mark.parametrize("kind", KINDS)
def test_weights_equal_60_digit_bisection(kind, p, monkeypatch):
    def weigh(losses, p, support):
        return eg.loss_max_pooling_weights(losses, p=p, support=support)

    check_against_bisection(weigh, kind, p, 3e-7)
    # 1 + 1e-12 itself has 4 digits
    check_against_bisection(weigh, kind, p, 2e-12 if p > 1.0001 else 1e-3, torch.float64)
    monkeypatch.setattr(_native, "library", None)
    check_against_bisection(weigh, kind, p, 3e-7)


@pytest.mark.parametrize("p", [1.1, 1.3, 2.0, 4.0])
@pytest.mark.parametrize("support", SUPPORTS)
def test_value_equals_a_convex_solver(p, support):
    for n in (1, 2, 6):
        losses = draw("exponential", 1, n, seed=n)
        assert pool(losses, p=p, support=support)[0].item() == pytest.approx(
            oracles.pool_by_solver(losses[0].tolist(), p, support), rel=1e-6
        )


@pytest.mark.parametrize("p", PS)
@pytest.mark.parametrize("kind", KINDS)
def test_long_rows_equal_float64(kind, p):
    """The kernel's histograms, lists and passes against the sorted float64 core; one thread and two
    give the same bits.
    """
    for n, support, masked in (
        (1023, 0.25, True),
        (1024, 1e-3, False),
        (70_001, 0.25, True),
        (70_001, 0.77, False),
    ):
        losses = draw(kind, 1, n)
        mask = draw("exponential", 1, n, seed=1) < 2.3 if masked else None
        results = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(pool(losses, p=p, support=support, mask=mask))
        torch.set_num_threads(1)
        value, weights = pool(losses.double(), p=p, support=support, mask=mask)
        assert relative_error(results[0][0], value) <= 1e-6
        assert relative_error(results[0][1], weights) <= 1e-6
        assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("p", [1.0, 1.3, math.inf])
@pytest.mark.parametrize("rows", [1, 3])
def test_threads_share_large_inputs(rows, p):
    """Beyond some millions of losses the kernel uses its threads: within a row if there is one, by
    rows otherwise.
    """
    losses = draw("exponential", rows, (2**21 + 2**10) // rows)
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        results.append(pool(losses, p=p, support=0.25, mask=None))
    torch.set_num_threads(1)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("p", [1.0, 1.3, 3.0, math.inf])
@pytest.mark.parametrize("support", SUPPORTS)
def test_weights_are_admissible_and_bound_the_mean(p, support):
    losses = draw("trained", 1, 500).double()
    weights = eg.loss_max_pooling_weights(losses, p=p, support=support)[0]
    n, m = 500, max(500 * support, 1)
    inverse_q = 1 - 1 / p
    assert weights.norm(p) <= n**-inverse_q * (1 + 1e-12)
    assert weights.max() <= n**-inverse_q * m ** (-1 / p) * (1 + 1e-12)
    assert (weights * losses[0]).sum() >= losses.mean() * (1 - 1e-12)


def test_p_1_is_the_mean_of_the_largest():
    losses = draw("exponential", 3, 40)
    largest = losses.sort(descending=True).values
    assert torch.allclose(pool(losses, p=1, support=0.25)[0], largest[:, :10].mean(1))
    fractional = (largest[:, :4].sum(1) + 0.4 * largest[:, 4]) / 4.4
    assert torch.allclose(pool(losses, p=1, support=0.11)[0], fractional)


@pytest.mark.parametrize(
    "losses", [draw("exponential", 2, 30), draw("tied", 2, 30), draw("sparse", 2, 30)]
)
@pytest.mark.parametrize("p", [1.0, 1.3, 3.0])
def test_gradient_is_the_maximiser(losses, p):
    check_gradient_is_the_maximiser(
        lambda x, p: eg.loss_max_pooling(x, p=p, reduction="sum"), losses, p
    )


def check_gradient_is_the_maximiser(loss, losses, p):
    losses = losses.double().requires_grad_()
    loss(losses, p).backward()
    expected = torch.tensor(
        [oracles.pooling_weights(row, p, 0.25) for row in losses.tolist()], dtype=torch.float64
    )
    assert torch.allclose(losses.grad, expected, rtol=1e-9, atol=1e-12)


def test_gradient_is_continuous():
    """C1: across the point where a pixel joins the saturated ones the weights do not jump."""
    start, end = (
        draw("exponential", 1, 20, seed=1).double(),
        draw("exponential", 1, 20, seed=2).double(),
    )
    steps = torch.linspace(0, 1, 20_001, dtype=torch.float64).unsqueeze(1)
    weights = eg.loss_max_pooling_weights(start + steps * (end - start))
    assert weights.diff(dim=0).abs().max() < 1e-4 < (weights[0] - weights[-1]).abs().max()


@pytest.mark.parametrize("n", [6, 6000])
@pytest.mark.parametrize("p", [1.0, 1.1, 1.3, 3.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_infinite_losses_act_as_their_limit(n, p, dtype):
    def row(*losses):
        return torch.nn.functional.pad(torch.tensor([losses], dtype=dtype), (0, n - 6))

    support, tau = 3 / n, n ** -(1 - 1 / p) * 3 ** (-1 / p)
    value, weights = pool(row(math.inf, 2, 1, 0.5, 0, 0), p=p, support=support)
    assert value == math.inf
    assert torch.allclose(
        weights, pool(row(1e30, 2, 1, 0.5, 0, 0), p=p, support=support)[1], rtol=1e-6
    )
    _, weights = pool(row(math.inf, math.inf, math.inf, math.inf, 5, 0), p=p, support=support)
    assert torch.allclose(
        weights[0, :5], torch.tensor([tau * (3 / 4) ** (1 / p)] * 4 + [0], dtype=dtype), rtol=1e-6
    )
    value, weights = pool(row(math.nan, 2, 1, math.inf, 5, 0), p=p, support=support)
    assert value.isnan()
    assert weights.isnan().all()


def test_fewer_positive_losses_than_m_share_nothing():
    _, weights = pool(torch.tensor([[0.0, 3, 0, 0, 0, 2, -0.0, 0]]), p=1.3, support=0.5)
    tau = 8 ** -(1 - 1 / 1.3) * 4 ** (-1 / 1.3)
    assert torch.allclose(weights, torch.tensor([[0, tau, 0, 0, 0, tau, 0, 0]]))


def test_any_axes_can_be_pooled():
    losses = draw("exponential", 3, 4, 5)
    mask = draw("exponential", 3, 4, 5, seed=1) < 2
    for dim, order in (
        (0, (1, 2, 0)),
        (-1, (0, 1, 2)),
        ((0, 2), (1, 0, 2)),
        ((2, 0), (1, 0, 2)),
        ([0, 1, 2], (0, 1, 2)),
    ):
        kept = [
            size
            for axis, size in enumerate(losses.shape)
            if axis not in ({dim % 3} if isinstance(dim, int) else set(dim))
        ]
        rows = losses.permute(order).reshape(math.prod(kept), -1)
        counts = mask.permute(order).reshape(math.prod(kept), -1)
        expected, weights = pool(rows, mask=counts)
        actual, gradient = pool(losses, dim=dim, mask=mask)
        assert torch.equal(actual, expected.reshape(kept))
        assert torch.equal(gradient, eg.loss_max_pooling_weights(losses, dim=dim, mask=mask))
        assert torch.equal(gradient.permute(order).reshape_as(weights), weights)
    assert torch.equal(
        eg.loss_max_pooling_weights(losses), eg.loss_max_pooling_weights(losses, dim=(1, 2))
    )
    assert torch.equal(
        eg.loss_max_pooling_weights(losses, per_image=False),
        eg.loss_max_pooling_weights(losses, dim=(0, 1, 2)),
    )
    # images of one pixel
    assert torch.equal(eg.loss_max_pooling_weights(losses[0, 0]), torch.ones(5))


def test_cross_entropy_leaves_out_what_it_ignores():
    logits, target = torch.randn(2, 5, 6, 7), torch.randint(5, (2, 6, 7))
    target[0, :2], target[1] = 255, 255
    losses = nn.functional.cross_entropy(logits[:1, :, 2:], target[:1, 2:], reduction="none")
    pooled = eg.LossMaxPooling(nn.CrossEntropyLoss(reduction="none", ignore_index=255), p=1.5)
    # the second image is void
    assert torch.allclose(pooled(logits, target), eg.loss_max_pooling(losses, p=1.5))
    keep = torch.zeros(2, 6, 7, dtype=torch.bool)
    keep[:, 4:] = True
    losses = nn.functional.cross_entropy(logits[:1, :, 4:], target[:1, 4:], reduction="none")
    assert torch.allclose(pooled(logits, target, mask=keep), eg.loss_max_pooling(losses, p=1.5))


def focal(logits, target):
    losses = nn.functional.cross_entropy(logits, target, reduction="none")
    return (1 - (-losses).exp()) ** 2 * losses


@pytest.mark.parametrize(
    ("criterion", "x", "target"),
    [
        (nn.BCEWithLogitsLoss(reduction="none"), torch.randn(2, 3, 4), torch.rand(2, 3, 4)),
        (nn.L1Loss(reduction="none"), torch.randn(2, 3, 4), torch.randn(2, 3, 4)),
        (
            nn.CrossEntropyLoss(reduction="none"),
            torch.randn(2, 3, 4),
            torch.rand(2, 3, 4).softmax(1),
        ),
        (focal, torch.randn(2, 3, 4), torch.randint(3, (2, 4))),
    ],
    ids=["bce", "l1", "soft cross-entropy", "function"],
)
def test_any_element_wise_criterion(criterion, x, target):
    x.requires_grad_()
    value = eg.LossMaxPooling(criterion, support=0.5)(x, target)
    assert torch.equal(value, eg.loss_max_pooling(criterion(x, target), support=0.5))
    value.backward()
    assert x.grad.isfinite().all()
    mask = torch.rand(criterion(x, target).shape) < 0.5
    masked = eg.LossMaxPooling(criterion, support=0.5)(x, target, mask=mask)
    assert torch.equal(masked, eg.loss_max_pooling(criterion(x, target), support=0.5, mask=mask))


def test_weights_of_the_criterion_move_with_the_module():
    module = eg.LossMaxPooling(nn.CrossEntropyLoss(torch.ones(3), reduction="none"))
    assert module.double().criterion.weight.dtype == torch.float64
    assert list(module.state_dict()) == ["criterion.weight"]


class CastsItself(nn.Module):
    """A criterion that takes labels of any dtype."""

    ignore_index = -100

    def forward(self, logits, target):
        return nn.functional.cross_entropy(logits, target.long(), reduction="none")


def test_unsigned_labels_are_not_ignored_by_mistake():
    """In uint8 the label 156 is -100."""
    logits, target = torch.randn(2, 200, 3), torch.full((2, 3), 156, dtype=torch.uint8)
    pooled = eg.LossMaxPooling(CastsItself())(logits, target)
    assert torch.equal(pooled, eg.loss_max_pooling(CastsItself()(logits, target)))
    assert pooled > 0


def test_a_mask_beside_an_ignore_index_is_checked():
    criterion = nn.CrossEntropyLoss(reduction="none")
    pooled, losses = eg.LossMaxPooling(criterion), torch.zeros(2, 8, 8)
    logits, target = torch.randn(2, 3, 8, 8), torch.randint(3, (2, 8, 8))
    target[:, 0] = -100
    counts = torch.rand(losses.shape) < 0.5
    expected = eg.loss_max_pooling(criterion(logits, target), mask=counts & (target != -100))
    for mask in (counts, counts.float(), counts.unsqueeze(1)):
        assert pooled(logits, target, mask=mask) == expected
    with pytest.raises(ValueError, match=r"`mask` must be 0 or 1, .* got the label 0\.5"):
        pooled(logits, target, mask=torch.full_like(losses, 0.5))
    with pytest.raises(ValueError, match=r"`mask` must be of shape .* got a bool .* \(2, 8\)"):
        pooled(logits, target, mask=counts[:, 0])
