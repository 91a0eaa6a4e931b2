"""Soft Jaccard, Dice and Tversky losses beyond the laws: soft labels, masks, and peers."""

from functools import partial

import oracles
import pytest
import torch
import torch.nn.functional as F
from test_coming_from import losses_of_smp

import evalgrad as eg

LOSSES = {
    eg.soft_jaccard_loss: (1.0, 1.0),
    eg.soft_dice_loss: (0.5, 0.5),
    eg.soft_tversky_loss: (0.7, 0.3),
}
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
every_mode = pytest.mark.parametrize("mode", ["multiclass", "binary", "multilabel"])

LOGITS = torch.randn(2, 3, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
LABELS = torch.randint(3, (2, 10), generator=torch.Generator().manual_seed(1))


def drawn(mode, seed=2):
    """Logits and soft labels, some of them 0, some 1, some equal to the prediction."""
    x = LOGITS[:, 0] if mode == "binary" else LOGITS
    p = x.softmax(1) if mode == "multiclass" else x.sigmoid()
    y = torch.rand(x.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    y[..., :2], y[..., 2:4], y[..., 4] = 0.0, 1.0, p[..., 4]
    return x, y, p


@every_loss
def test_one_channel_is_binary(loss):
    """A softmax over one channel is 1 everywhere: a loss without a gradient."""
    x, y, _ = drawn("binary")
    for shape in ((2, 1, 10), (20, 1)):
        x, y = x.reshape(shape), y.reshape(shape)
        with pytest.raises(ValueError, match=r'`logits` must be .* C >= 2.*pass mode="binary"'):
            loss(x, y)
        loss(x.requires_grad_(), y, mode="binary").backward()
        assert x.grad.abs().sum() > 0
        x = x.detach()
    with pytest.raises(ValueError, match="Put the classes in dim 1"):
        loss(x[:, :0], y[:, :0])


@every_loss
@every_mode
@pytest.mark.parametrize("per_image", [False, True])
def test_soft_labels_equal_the_oracle(loss, mode, per_image):
    x, y, _ = drawn(mode)
    misses, false_alarms = LOSSES[loss]
    expected = oracles.soft_overlap(
        x.tolist(),
        y.tolist(),
        misses=misses,
        false_alarms=false_alarms,
        mode=mode,
        per_image=per_image,
    )
    assert loss(x, y, mode=mode, per_image=per_image).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("loss", "cost"), [(eg.soft_jaccard_loss, 1.0), (eg.soft_dice_loss, 0.5)])
def test_a_table_of_items_is_one_group(loss, cost):
    """Logits (N,), without an axis behind: the smallest of the shapes (N, *)."""
    logits = torch.randn(12, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([1.0, 0.0, 0.0] * 4)
    p = logits.sigmoid()
    hits = (p * target).sum()
    errors = cost * (target.sum() + p.sum() - 2 * hits)
    expected = errors / (hits + errors)
    value = loss(logits, target, mode="binary")
    torch.testing.assert_close(value, expected)
    gradients = [torch.autograd.grad(x, logits)[0] for x in (value, expected)]
    torch.testing.assert_close(*gradients)
    with pytest.raises(ValueError, match="`target` must be of shape"):
        loss(logits, target[:4], mode="binary")
    for mode in ("multiclass", "multilabel"):
        with pytest.raises(ValueError, match="`logits` must be a tensor with at least 2 dimension"):
            loss(logits, target, mode=mode)


@every_loss
@every_mode
def test_zero_exactly_at_equality(loss, mode):
    """The product form, sum p y, is not: it wants the prediction harder than a soft label."""
    x, _, p = drawn(mode)
    x = x.clone().requires_grad_()
    value = loss(x, p, mode=mode)
    value.backward()
    assert value == 0
    assert (x.grad == 0).all()
    for shift in (0.05, -0.05):
        assert loss(x, (p + shift).clamp(0, 1), mode=mode) > 0
    hits, total = (p * p).sum(), (p + p - p * p).sum()
    assert 1 - hits / total > 0.1


@every_loss
def test_one_hot_targets_are_class_indices(loss):
    one_hot = F.one_hot(LABELS, 3).movedim(-1, 1)
    expected = loss(LOGITS, LABELS, per_image=True)
    for target in (one_hot, one_hot.bool(), one_hot.double(), one_hot.to(torch.uint8)):
        torch.testing.assert_close(loss(LOGITS, target, per_image=True), expected)


@every_loss
@every_mode
@pytest.mark.parametrize("garbage", [0.3, float("nan"), float("inf"), 255.0])
def test_masked_items_are_as_if_absent(loss, mode, garbage):
    x, y, _ = drawn(mode)
    mask = torch.ones(2, 10, dtype=torch.bool)
    mask[:, 7:] = False
    expected = loss(x[..., :7], y[..., :7], mode=mode)
    x, y = x.clone(), y.clone()
    x[..., 7:] = y[..., 7:] = garbage
    x.requires_grad_()
    for given in (
        mask,
        mask.double(),
        (mask if mode == "binary" else mask.unsqueeze(1).expand_as(x)),
    ):
        x.grad = None
        value = loss(x, y, given, mode=mode)
        value.backward()
        torch.testing.assert_close(value, expected)
        assert (x.grad[..., 7:] == 0).all()
        assert x.grad.isfinite().all()
    module = {
        eg.soft_jaccard_loss: eg.SoftJaccardLoss,
        eg.soft_dice_loss: eg.SoftDiceLoss,
        eg.soft_tversky_loss: eg.SoftTverskyLoss,
    }[loss](mode=mode)
    assert module(x, y, mask) == module(x, y, mask=mask) == loss(x, y, mask, mode=mode)


def test_a_class_of_which_nothing_counts_is_left_out():
    mask = torch.ones(2, 3, 10, dtype=torch.bool)
    mask[:, 1] = False
    given = partial(eg.soft_dice_loss, mode="multilabel", classes="all")
    x, y, _ = drawn("multilabel")
    torch.testing.assert_close(given(x, y, mask), given(x[:, ::2], y[:, ::2]))


def test_wrong_shares_are_nan_where_they_cannot_be_read():
    x, y, _ = drawn("binary")
    for wrong in (1.5, -0.1, float("nan")):
        bad = y.clone()
        bad[1, 3] = wrong
        loss = partial(eg.soft_dice_loss, mode="binary", per_image=True, reduction="none")
        with pytest.raises(ValueError, match=r"`target` must be soft labels in \[0, 1\]"):
            loss(x, bad)
        traced = torch.vmap(loss)(x.unsqueeze(0), bad.unsqueeze(0))[0, :, 0]
        assert traced.isnan().tolist() == [False, True]
    mask = torch.ones_like(x)
    mask[1, 3] = 0.5
    with pytest.raises(ValueError, match="`mask` must be 0 or 1, or bool"):
        loss(x, y, mask)
    traced = torch.vmap(loss)(x.unsqueeze(0), y.unsqueeze(0), mask.unsqueeze(0))[0, :, 0]
    assert traced.isnan().tolist() == [False, True]


@every_loss
def test_smooth_is_on_both_sides_of_the_fraction(loss):
    p = torch.tensor([0.75, 0.5, 0.25])
    y = torch.tensor([1.0, 0.0, 0.0])
    misses, false_alarms = LOSSES[loss]
    hits, wrong = 0.75, misses * 0.25 + false_alarms * 0.75
    value = loss(p.logit().unsqueeze(0), y.unsqueeze(0), mode="binary", smooth=2.0)
    assert value.item() == pytest.approx(1 - (hits + 2) / (hits + wrong + 2))


# ---- what peers compute, written as formulas, and by the peers themselves where installed --------


def test_dice_of_products():
    """The usual form: 2 sum p y / (sum p + sum y), here of hard labels over the batch."""
    y = F.one_hot(LABELS, 3).movedim(-1, 1).double()
    p = LOGITS.softmax(1)
    dice = 2 * (p * y).sum((0, 2)) / (p.sum((0, 2)) + y.sum((0, 2)))
    torch.testing.assert_close(eg.soft_dice_loss(LOGITS, LABELS), (1 - dice).mean())


@pytest.mark.parametrize("mode", ["multiclass", "binary"])
def test_equals_smp(mode):
    losses = losses_of_smp().losses
    x = LOGITS.unsqueeze(-1).float()
    x, y = (x, LABELS) if mode == "multiclass" else (x[:, :1], (LABELS > 0).long())
    for peer, ours in (
        (losses.DiceLoss(mode), eg.soft_dice_loss),
        (losses.JaccardLoss(mode), eg.soft_jaccard_loss),
        (losses.TverskyLoss(mode, alpha=0.3, beta=0.7), eg.soft_tversky_loss),
    ):
        torch.testing.assert_close(
            ours(x, y.unsqueeze(1).unsqueeze(-1), mode=mode), peer(x, y.unsqueeze(-1))
        )


@pytest.mark.parametrize("per_image", [False, True])
def test_equals_monai(per_image):
    losses = pytest.importorskip("monai.losses")
    x, y = LOGITS.unsqueeze(-1), LABELS.unsqueeze(1).unsqueeze(-1)
    usual = {"softmax": True, "to_onehot_y": True, "batch": not per_image}
    exact = {"smooth_nr": 0.0, "smooth_dr": 0.0}
    for peer, ours in (
        (losses.DiceLoss(**usual, **exact), eg.soft_dice_loss),
        (losses.DiceLoss(**usual, **exact, jaccard=True), eg.soft_jaccard_loss),
        (losses.TverskyLoss(**usual, **exact, alpha=0.3, beta=0.7), eg.soft_tversky_loss),
    ):
        torch.testing.assert_close(ours(x, y, per_image=per_image, classes="all"), peer(x, y))


def test_soft_labels_of_eight_bits():
    x, y = torch.randn(3, 6), torch.tensor([[0.0, 0.25, 0.5, 1.0, 0.0, 0.75]] * 3)
    eight = y.to(torch.float8_e4m3fn)
    for mode in ("multilabel", "multiclass", "binary"):
        found = eg.soft_dice_loss(x, eight, mode=mode)
        assert torch.equal(found, eg.soft_dice_loss(x, y, mode=mode))
