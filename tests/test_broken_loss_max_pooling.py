"""Wrong versions of loss max-pooling that the laws must reject."""

import math
from dataclasses import replace

import pytest
import test_laws
import test_loss_max_pooling
import torch
from cases import CASES, Perceptron
from test_broken import fails, rejected

import evalgrad as eg

ROW = next(case for case in CASES if case.name == "loss_max_pooling")


def textbook(losses, p=1.3, support=0.25, *, round_m=float, unit="rho"):
    """The sorted algorithm of one row by autograd: right in exact arithmetic; its variants below
    are not.
    """
    n = losses.numel()
    m, q = max(round_m(support * n), 1.0), p / (p - 1)
    tau = n ** (-1 / q) * m ** (-1 / p)
    if (losses > 0).sum() < m:
        return tau * losses.sum()
    ordered = losses.sort(descending=True).values
    x = ordered / (ordered[0] if unit == "maximum" else ordered[max(-int(-m // 1), 1) - 1])
    tails = (x**q).flip(0).cumsum(0).flip(0)
    c = m - torch.arange(n, dtype=losses.dtype)
    saturated = int(((c * x**q > tails) & (c > 0)).sum())
    alpha = (tails[min(saturated, n - 1)] / (m - saturated)) ** (1 / q)
    return (tau * (x / alpha).clamp(max=1) ** (q - 1) * ordered).sum()


def in_row(**variant):
    """The table's row with the textbook version of the given variant in place of ours."""

    def loss(x, target, ignore_index=None, p=1.3, support=0.25, **_):
        valid = (
            torch.ones_like(target, dtype=torch.bool)
            if ignore_index is None
            else target != ignore_index
        )
        losses = Perceptron()(x, target)
        return torch.stack(
            [textbook(row[keep], p, support, **variant) for row, keep in zip(losses, valid)]
        ).mean()

    return replace(ROW, loss=loss, options=({"p": 1.3},))


def test_the_textbook_itself_is_right():
    assert not rejected(in_row(), test_laws.test_equals_oracle, options=-1)


def test_zeroing_ignored_pixels_is_rejected():
    def zeroed(x, target, ignore_index=None, **options):
        losses = Perceptron()(x, target)
        return eg.loss_max_pooling(
            losses if ignore_index is None else torch.where(target != ignore_index, losses, 0),
            **options,
        )

    case = replace(ROW, loss=zeroed)
    assert fails(
        test_laws.test_ignored_items_are_as_if_absent, case, garbage=0.0, dtype=torch.float64
    )


def test_division_by_the_maximum_is_rejected():
    """q = 101: in float32 all powers but a few underflow, and what should be saturated gets next to
    nothing.
    """

    def weigh(losses, p, support):
        losses = losses.clone().requires_grad_()
        textbook(losses[0], p, support, unit="maximum").backward()
        return losses.grad.nan_to_num()

    assert fails(test_loss_max_pooling.check_against_bisection, weigh, "trained", 1.01, 1e-2)


@pytest.mark.parametrize("wrong", [math.floor, math.ceil, lambda m: max(m, 2)])
def test_m_clamped_wrongly_is_rejected(wrong):
    """m is a real number, at least 1. (Below 1 it would not matter: no weight can exceed gamma.)"""
    assert rejected(in_row(round_m=wrong), test_laws.test_equals_oracle, options=-1)


def test_weights_that_are_not_detached_are_rejected():
    """Through the weights autograd comes out the same where all is smooth, but NaN at a loss of 0,
    and it goes on to derive.
    """

    def loss(x, p):
        return torch.stack([textbook(row, p) for row in x]).sum()

    losses = torch.rand(2, 30)
    check = test_loss_max_pooling.check_gradient_is_the_maximiser
    assert not fails(check, loss, losses, 3.0)
    assert fails(check, loss, torch.where(losses < 0.3, 0, losses), 3.0)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_laws.test_second_derivative_is_refused(in_row())
