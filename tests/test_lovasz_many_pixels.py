"""Maps of many pixels, which the float32 kernels of the Lovász losses count in bins instead of
sorting, against float64.
"""

import pytest
import torch

import evalgrad as eg


def in_two_precisions(loss, logits, target, **options):
    """Value and gradient of the kernel, and in float64, where torch sorts."""
    for dtype in (torch.float32, torch.float64):
        x = logits.to(dtype, copy=True).requires_grad_()
        value = loss(x, target, **options)
        value.backward()
        yield value.item(), x.grad.double()


@pytest.mark.parametrize("confidence", [0, 3, 8, 15])
@pytest.mark.parametrize("pixels", [2**16, 2**17 + 250])
@pytest.mark.parametrize("ignored", [False, True])
def test_softmax_of_many_pixels(confidence, pixels, ignored):
    """Of classes with many errors to bring into order the kernel counts them in bins instead of
    sorting.
    """
    target = torch.randint(3, (1, pixels))
    logits = (1 + 0.2 * confidence) * torch.randn(1, 3, pixels)
    logits += confidence * torch.nn.functional.one_hot(target, 3).movedim(-1, 1)
    if ignored:
        target[0, ::9], logits[:, :, ::18] = 255, torch.nan
    (value, gradient), (expected, expected_gradient) = in_two_precisions(
        eg.lovasz_softmax_loss, logits, target, ignore_index=255
    )
    assert value == pytest.approx(expected, rel=5e-7)
    # Errors of one bin share their weights.
    assert (gradient - expected_gradient).norm() <= 3e-5 * expected_gradient.norm()


@pytest.mark.parametrize("levels", [2, 40, 1000])
@pytest.mark.parametrize("share", [0.01, 1.0])
def test_softmax_of_many_equal_pixels(levels, share):
    """From a few equal errors in a bin to more than it can count."""
    target = torch.randint(2, (1, 2**16))
    logits = torch.randn(1, 2, 2**16)
    equal = logits[:, :, : int(share * 2**16)]
    equal.copy_((equal * levels / 4).round() * 4 / levels)
    expected, value = (eg.lovasz_softmax_loss(x, target).item() for x in (logits.double(), logits))
    assert value == pytest.approx(expected, rel=5e-7)


@pytest.mark.parametrize("logit", [-0.3, 0.0, 0.2])
def test_softmax_with_one_heap_of_equal_pixels(logit):
    """More than their bin can count, and nowhere else a sign of it."""
    target, logits = torch.randint(2, (1, 2**16)), 0.3 * torch.randn(1, 2, 2**16)
    target[0, :600], logits[0, 0, :600], logits[0, 1, :600] = 0, logit, 0.1
    expected, value = (eg.lovasz_softmax_loss(x, target).item() for x in (logits.double(), logits))
    assert value == pytest.approx(expected, rel=5e-7)


@pytest.mark.parametrize("pixels", [2**17, 2**17 + 250, 2**18 + 1])
@pytest.mark.parametrize("foreground", [4e-5, 0.2, 0.999])
@pytest.mark.parametrize("ignored", [None, 2.0, torch.nan])
@pytest.mark.parametrize("scale", [0.03, 0.3, 2.0])
def test_untrained_hinge_of_many_pixels(pixels, foreground, ignored, scale):
    """Most losses are above 0: the kernel then counts them in bins instead of sorting."""
    logits = scale * torch.randn(1, pixels)
    target = (torch.rand(1, pixels) < foreground).long()
    target[0, [5, -1]] = 1
    if ignored is not None:
        target[0, ::7] = 255
        logits[0, ::14] *= ignored
    ignore_index = None if ignored is None else 255
    (value, gradient), (expected, expected_gradient) = in_two_precisions(
        eg.lovasz_hinge_loss, logits, target, ignore_index=ignore_index
    )
    assert value == pytest.approx(expected, rel=2e-7)
    # Pixels of one bin share their weights, the sum of which is exact.
    assert (gradient - expected_gradient).norm() <= 3e-5 * expected_gradient.norm()
    assert gradient.abs().sum().item() == pytest.approx(
        expected_gradient.abs().sum().item(), rel=1e-6
    )


@pytest.mark.parametrize("width", [0.25, 1.9])
def test_pixels_more_than_a_slot_apart_are_ranked_exactly(width):
    """Evenly spread losses, each in a bin of its own."""
    pixels = 2**16
    target = (torch.rand(1, pixels) < 0.4).long()
    losses = 1 + width * (torch.randperm(pixels) / pixels - 0.5)
    logits = torch.where(target == 1, 1 - losses, losses - 1)
    (value, gradient), (expected, expected_gradient) = in_two_precisions(
        eg.lovasz_hinge_loss, logits, target
    )
    assert value == pytest.approx(expected, rel=2e-7)
    assert (gradient - expected_gradient).norm() <= 1e-6 * expected_gradient.norm()


@pytest.mark.parametrize("step", [2**-16, 2**-12, 2**-8, 4.0])
@pytest.mark.parametrize("share", [0.001, 0.1, 1.0])
@pytest.mark.parametrize("pixels", [2**16, 2**18])
def test_hinge_of_many_equal_pixels(step, share, pixels):
    """From a few equal losses in a bin to more than it can count, and to two values in all."""
    logits = 0.3 * torch.randn(1, pixels)
    equal = logits[:, : int(share * pixels)]
    equal.copy_((equal / step).round() * step)
    target = (torch.rand(1, pixels) < 0.3).long()
    (value, gradient), (expected, expected_gradient) = in_two_precisions(
        eg.lovasz_hinge_loss, logits, target
    )
    assert value == pytest.approx(expected, rel=5e-7)
    assert gradient.abs().sum().item() == pytest.approx(
        expected_gradient.abs().sum().item(), rel=2e-6
    )


@pytest.mark.parametrize("foreground", [5e-5, 1e-3, 0.03])
def test_few_foreground_pixels_among_many(foreground):
    """Each weighs much, and one background pixel more or less ahead of it shows: the order must be
    exact. No two losses 1 - x and 1 + y are equal: of those either may come first.
    """
    logits = torch.linspace(-0.9, 1.0, 2**17)[torch.randperm(2**17)].unsqueeze(0)
    target = (torch.rand(1, 2**17) < foreground).long()
    (_, gradient), (_, expected) = in_two_precisions(eg.lovasz_hinge_loss, logits, target)
    assert (gradient - expected).norm() <= 1e-6 * expected.norm()


@pytest.mark.parametrize("start", [300, 2**16 - 10])
@pytest.mark.parametrize("logit", [3.0, 11.0, 1e5, torch.inf, torch.nan])
@pytest.mark.parametrize("foreground", [1e-4, 0.4])
def test_large_losses_among_many_pixels(start, logit, foreground):
    """Larger than a sample of the pixels lets expect, and first in the order."""
    logits, target = 0.3 * torch.randn(1, 2**16), (torch.rand(1, 2**16) < foreground).long()
    place = slice(start, start + 10)
    logits[0, place], target[0, place] = logit * torch.linspace(0.9, 1.0, 10), 0
    (value, gradient), (expected, expected_gradient) = in_two_precisions(
        eg.lovasz_hinge_loss, logits, target
    )
    assert value == pytest.approx(expected, rel=1e-6, nan_ok=True)
    if logit < torch.inf:
        assert (gradient - expected_gradient)[0, place].norm() <= 1e-6 * expected_gradient.norm()


@pytest.mark.parametrize("loss", [0.2, 1e-3])
def test_small_losses_among_many_pixels(loss):
    """Smaller than a sample of the pixels lets expect, and last in the order."""
    logits, target = 0.03 * torch.randn(1, 2**16), (torch.rand(1, 2**16) < 0.4).long()
    place = slice(300, 310)
    logits[0, place], target[0, place] = 1 - loss, 1
    (value, gradient), (expected, expected_gradient) = in_two_precisions(
        eg.lovasz_hinge_loss, logits, target
    )
    assert value == pytest.approx(expected, rel=1e-6)
    torch.testing.assert_close(gradient[0, place], expected_gradient[0, place], rtol=1e-4, atol=0)


def test_many_pixels_without_foreground():
    logits = 0.3 * torch.randn(1, 2**16)
    (value, gradient), (expected, expected_gradient) = in_two_precisions(
        eg.lovasz_hinge_loss, logits, torch.zeros(1, 2**16, dtype=torch.long)
    )
    assert value == pytest.approx(expected, rel=1e-7)
    assert gradient.equal(expected_gradient)


def spread(kind, shape):
    """Evenly, or in two heaps: many pixels are then near the largest loss, where a rank that is off
    by one shows most.
    """
    return (
        2 * torch.rand(shape) - 1
        if kind == "even"
        else (torch.rand(shape) < 0.5).float() - 0.5 + 0.1 * torch.randn(shape)
    )


@pytest.mark.parametrize("kind", ["even", "heaps"])
@pytest.mark.parametrize("foreground", [0.02, 0.05, 0.1, 0.3])
@pytest.mark.parametrize("loss", [eg.lovasz_hinge_loss, eg.lovasz_softmax_loss])
def test_ties_do_not_show(kind, foreground, loss):
    """The fewer the foreground, the more a tie shows: bins must be more, or pixels sorted after
    all.
    """
    target = (torch.rand(1, 2**18) < foreground).long()
    logits = spread(kind, (1, 2**18) if loss is eg.lovasz_hinge_loss else (1, 2, 2**18))
    (_, gradient), (_, expected) = in_two_precisions(loss, logits, target)
    assert (gradient - expected).norm() <= 3.5e-5 * expected.norm()
