"""Wrong versions of smooth top-k that the laws must reject: a law that rejects none of them proves
nothing.
"""

import math
from dataclasses import replace

import test_laws
import test_smooth_topk
import torch
from cases import CASES
from test_broken import fails, rejected

SMOOTH = next(case for case in CASES if case.name == "smooth_topk")


def log_sigma(x, k):
    """The summation algorithm in log-space, one class after the other: right, and slow."""
    sigma = [torch.zeros_like(x[:, 0])] + [torch.full_like(x[:, 0], -math.inf)] * k
    for item in x.unbind(1):
        sigma = [sigma[0]] + [
            torch.logaddexp(sigma[j], item + sigma[j - 1]) for j in range(1, k + 1)
        ]
    return sigma


def written_down(*, shift=0, keep_label=False):
    """The loss straight from its formula, with one mistake if asked for."""

    def loss(x, target, k=2, temperature=1.0, margin=1.0, **_):
        rows, y = x.movedim(1, -1).flatten(0, -2), target.flatten()
        scaled = rows / (k * temperature)
        if not keep_label:
            others = torch.arange(rows.shape[1]) != y[:, None]
            scaled = scaled[others].view(len(y), -1)
        sigma = log_sigma(scaled, k + shift)
        z = (
            margin / temperature
            + sigma[k + shift]
            - sigma[k + shift - 1]
            - rows.gather(1, y[:, None])[:, 0] / (k * temperature)
        )
        return temperature * torch.nn.functional.softplus(z, threshold=80).mean()

    return replace(SMOOTH, loss=loss)


def test_the_formula_itself_is_right():
    """So that what is rejected below is rejected for its mistake."""
    assert not rejected(written_down(), test_laws.test_equals_oracle, options=-1)


def test_off_by_one_k_is_rejected():
    assert rejected(written_down(shift=-1), test_laws.test_equals_oracle, options=-1)
    assert rejected(written_down(shift=1), test_laws.test_equals_oracle, options=-1)


def test_label_among_its_competitors_is_rejected():
    """The label is not its own competitor; where it leads by far, both versions may well order
    samples alike.
    """
    assert rejected(written_down(keep_label=True), test_laws.test_equals_oracle, options=-1)
    assert rejected(written_down(keep_label=True), test_laws.test_zero_at_perfect_prediction)


def approximated(x, label, factor, k, temperature, margin, order=1, threshold=1e-2):
    """The paper's backward: the recursion of Algorithm 2, and where it cancels the p-th order
    approximation (60).
    """
    others = torch.arange(x.shape[1]) != label[:, None]
    rest = x[others].view(len(x), -1) / (k * temperature)
    sigma = torch.stack(log_sigma(rest, k + order), -1)
    z = (
        margin / temperature
        + sigma[:, k]
        - sigma[:, k - 1]
        - x.gather(1, label[:, None])[:, 0] / (k * temperature)
    )
    slope = torch.sigmoid(z)[:, None] / k
    gradient = torch.empty_like(x)
    gradient[others] = (
        slope
        * (
            marginal(rest, sigma, k, order, threshold)
            - marginal(rest, sigma, k - 1, order, threshold)
        )
    ).flatten()
    return temperature * torch.nn.functional.softplus(z, threshold=80), gradient.scatter(
        1, label[:, None], -slope
    )


def marginal(x, sigma, k, order, threshold):
    p, stable = torch.zeros_like(x), torch.ones_like(x, dtype=torch.bool)
    for j in range(1, k + 1):
        stable = stable & (1 - p > threshold)
        p = torch.exp(x + sigma[:, j - 1 : j] - sigma[:, j : j + 1]) * (1 - p)
    terms = [
        (-1) ** j * torch.exp(sigma[:, k + j : k + j + 1] - sigma[:, k : k + 1] - j * x)
        for j in range(order + 1)
    ]
    return torch.where(stable, p, sum(terms))


def test_the_approximated_gradient_is_rejected():
    """In double it is right: what ruins it is float32 at low temperatures, where recursion and
    series both lose their digits.
    """
    for seed in range(3):
        x = test_smooth_topk.draw("unit", 40, 5, 1.0, seed)
        test_smooth_topk.check_row(approximated, x, 3, 5, 1.0)
        test_smooth_topk.check_row(approximated, x, 3, 5, 0.01)
        test_smooth_topk.check_row(test_smooth_topk.ENGINES["kernel"], x.float(), 3, 5, 0.01)
        assert fails(test_smooth_topk.check_row, approximated, x.float(), 3, 5, 0.01)


def test_the_series_alone_is_rejected():
    """The p-th order approximation where its condition, a class far above the rest, does not hold:
    wrong in any precision.
    """
    x = test_smooth_topk.draw("unit", 40, 5, 1.0)
    assert fails(
        test_smooth_topk.check_row, lambda *a: approximated(*a, threshold=0.5), x, 3, 5, 0.1
    )


def test_scaling_before_subtracting_is_rejected():
    """Scores over k tau subtracted in float32, as the formula is printed, lose the digits that the
    margin needs.
    """

    def scaled_first(x, label, factor, k, temperature, margin):
        leaf = x.clone().requires_grad_()
        value = written_down()(
            leaf.unsqueeze(-1), label.unsqueeze(-1), k=k, temperature=temperature, margin=margin
        )
        (gradient,) = torch.autograd.grad(value, leaf)
        return value.detach().unsqueeze(0), gradient

    x = test_smooth_topk.draw("huge", 10, 3, 0.01).float()
    assert fails(test_smooth_topk.check_row, scaled_first, x, int(x.topk(3).indices[-1]), 3, 0.01)
