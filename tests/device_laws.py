"""Laws of a loss on a device other than its home, the CPU, or by other kernels: what it gives there
in float32 against the oracle, and its gradient against float64 on the CPU.
"""

import torch
from cases import IGNORED

# Exact losses take errors as tied where that moves the gradient by less than 3e-5 of its norm.
CLOSE = 6e-5


def devices():
    """The CPU, and what else torch finds."""
    return ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def drawn(case, seed):
    return case.draw(torch.Generator().manual_seed(seed))


def there(case, device, x, target, **options):
    """Value and gradient of float32 scores on the device, back on the CPU."""
    leaf = x.float().to(device).requires_grad_()
    value = case(leaf, target.to(device), **options)
    value.sum().backward()
    return value.detach().cpu().double(), leaf.grad.cpu().double()


def gradient_at_home(case, x, target, **options):
    leaf = x.float().double().requires_grad_()
    case(leaf, target, **options).sum().backward()
    return leaf.grad


def assert_near(found, expected):
    assert (found - expected).norm() <= CLOSE * expected.norm() + 1e-7


def equals_the_oracle(case, device, seed):
    x, target = drawn(case, seed)
    value, gradient = there(case, device, x, target)
    expected = case.expected(x.float().double(), target)
    torch.testing.assert_close(value, expected, rtol=2e-5, atol=2e-5)
    assert_near(gradient, gradient_at_home(case, x, target))


def ties_have_one_value(case, device, seed):
    if case.exact_ties:
        x, target = drawn(case, seed)
        value, _ = there(case, device, x.round(), target)
        torch.testing.assert_close(value, case.expected(x.round(), target), rtol=2e-5, atol=2e-5)


def ignored_items_are_as_if_absent(case, device, seed):
    x, target = drawn(case, seed)
    value, gradient = there(case, device, x, target)
    for garbage in (1e4, torch.nan, torch.inf):
        padded, labels = case.with_ignored(x, target, garbage)
        with_garbage, padded_gradient = there(case, device, padded, labels, ignore_index=IGNORED)
        torch.testing.assert_close(with_garbage, value, rtol=2e-5, atol=2e-5)
        assert_near(padded_gradient[..., :-2], gradient)
        assert not padded_gradient[..., -2:].any()


def nothing_left_is_zero(case, device, seed):
    x, target = drawn(case, seed)
    nothing = torch.full_like(target, IGNORED)
    value, gradient = there(case, device, x, nothing, ignore_index=IGNORED)
    assert value == 0
    assert not gradient.any()


LAWS = (
    equals_the_oracle,
    ties_have_one_value,
    ignored_items_are_as_if_absent,
    nothing_left_is_zero,
)
