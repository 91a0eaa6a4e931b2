"""Bad input to loss max-pooling gets a sentence."""

import pytest
import torch
from torch import nn

import evalgrad as eg

LOSSES = torch.ones(2, 3, 4)


def pool(losses=LOSSES, **options):
    return eg.loss_max_pooling(losses, **options)


BAD = (
    (lambda: pool(LOSSES.long()), TypeError, "`losses` must be a floating-point tensor"),
    (lambda: pool(LOSSES.sum()), ValueError, "`losses` must be one loss per pixel; got"),
    (
        lambda: pool(-LOSSES),
        ValueError,
        "loss_max_pooling: `losses` must be at least 0; got a loss of -1. Pooling is",
    ),
    (lambda: pool(mask=LOSSES + 0.5), ValueError, "`mask` must be 0 or 1, or bool"),
    (lambda: pool(mask=LOSSES[0] > 0), ValueError, r"`mask` must be of shape \(2, 3, 4\)"),
    (
        lambda: pool(p=0.9),
        ValueError,
        "`p` must be finite and at least 1; got 0.9. The paper uses 1.3",
    ),
    (lambda: pool(p="2"), TypeError, "`p` must be a number; got '2'"),
    (lambda: pool(p=float("nan")), ValueError, "`p` must be finite and at least 1; got nan"),
    (
        lambda: pool(support=0),
        ValueError,
        "`support` must be finite and above 0 and at most 1; got 0",
    ),
    (
        lambda: pool(support=1.5),
        ValueError,
        "`support` must be finite and above 0 and at most 1; got 1.5. It is the fraction",
    ),
    (lambda: pool(per_image=None), TypeError, "`per_image` must be True or False; got None"),
    (
        lambda: pool(dim=3),
        ValueError,
        r"`dim` must be one or more different dimensions in \[-3, 2\]; got 3",
    ),
    (
        lambda: pool(dim=(1, -2)),
        ValueError,
        r"`dim` must be one or more different dimensions .*; got \(1, -2\)",
    ),
    (lambda: pool(dim=()), ValueError, r"`dim` must be one or more different dimensions"),
    (
        lambda: pool(dim=1.0),
        TypeError,
        "`dim` must be an integer, a tuple of integers or None; got 1.0",
    ),
    (lambda: pool(dim=("a",)), TypeError, "`dim` must be an integer; got 'a'"),
    (
        lambda: pool(reduction="avg"),
        ValueError,
        "`reduction` must be one of 'mean', 'sum', 'none'; got 'avg'",
    ),
    (
        lambda: eg.loss_max_pooling_weights(-LOSSES),
        ValueError,
        "loss_max_pooling_weights: `losses` must be at least 0",
    ),
    (
        lambda: eg.LossMaxPooling(nn.CrossEntropyLoss()),
        ValueError,
        "`criterion` must be element-wise.*got one with reduction='mean'",
    ),
    (
        lambda: eg.LossMaxPooling("ce"),
        TypeError,
        "`criterion` must be a module or a function; got 'ce'",
    ),
    (
        lambda: eg.LossMaxPooling(nn.functional.cross_entropy)(
            torch.ones(2, 3), torch.tensor([0, 1])
        ),
        ValueError,
        'reduction="none"',
    ),
    (
        lambda: eg.LossMaxPooling(nn.L1Loss(reduction="none"), support=2.0),
        ValueError,
        "`support` must be finite and above 0 and at most 1",
    ),
)


@pytest.mark.parametrize(("call", "error", "message"), BAD)
def test_sentence(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_negative_losses_that_do_not_count_are_fine():
    losses = torch.tensor([[1.0, -1.0]])
    assert pool(losses, mask=losses > 0) == 1
