"""Wrong versions that the laws must reject: a law that rejects none of them proves nothing.

Each wrong loss takes the place of the right one in its row of the table; the law it breaks must
then fail.
"""

from dataclasses import replace

import pytest
import test_laws
import test_lovasz
import torch
from cases import CASES

ROWS = {case.name: case for case in CASES}


def fails(law, *args, **kwargs):
    try:
        law(*args, **kwargs)
    except AssertionError:
        return True
    return False


def rejected(case, law, seeds=range(20), **kwargs):
    """Whether a law with drawn inputs fails for one of the seeds."""
    inner = getattr(law, "hypothesis", None)
    function = inner.inner_test if inner else law
    return any(fails(function, case, seed=seed, **kwargs) for seed in seeds)


def class_loop(weigh, *, mask_by_product=False):
    """Lovász-Softmax as a class loop over a wrong function `weigh(errors, foreground, labels)` of
    one class.
    """

    def loss(x, target, ignore_index=None, **_):
        valid = (
            torch.ones_like(target, dtype=torch.bool)
            if ignore_index is None
            else target != ignore_index
        )
        p = x.softmax(1).movedim(1, -1)
        y = target.where(valid, 0)
        losses = []
        for c in range(x.shape[1]):
            errors = ((y == c).to(x) - p[..., c]).abs()
            if mask_by_product:
                errors, front, labels = (errors * valid).flatten(), (y == c).flatten(), y.flatten()
            else:
                errors, front, labels = errors[valid], (y == c)[valid], y[valid]
            if front.any():
                losses.append(weigh(errors, front, labels))
        return torch.stack(losses).mean()

    return loss


def differenced(errors, foreground, labels=None):
    """The paper's Algorithm 1: right in exact arithmetic, ruinous in float32."""
    values, order = errors.sort(descending=True)
    front = foreground[order].to(errors)
    jaccard = 1 - (front.sum() - front.cumsum(0)) / (front.sum() + (1 - front).cumsum(0))
    return (values * torch.cat([jaccard[:1], jaccard.diff()])).sum()


def labels_for_indicators(errors, foreground, labels):
    values, order = errors.sort(descending=True)
    front = labels[order].to(errors)  # the class index where 0 or 1 belongs
    jaccard = 1 - (front.sum() - front.cumsum(0)) / (front.sum() + (1 - front).cumsum(0))
    return (values * torch.cat([jaccard[:1], jaccard.diff()])).sum()


def ascending(errors, foreground, labels):
    values, order = errors.sort()
    front = foreground[order].to(errors)
    jaccard = 1 - (front.sum() - front.cumsum(0)) / (front.sum() + (1 - front).cumsum(0))
    return (values * torch.cat([jaccard[:1], jaccard.diff()])).sum()


def overlap_curve(misses, false_alarms):
    """Algorithm 1 for the Tversky index with these weights."""

    def weigh(errors, foreground, labels=None):
        values, order = errors.sort(descending=True)
        front = foreground[order].to(errors)
        missed, false = front.cumsum(0), (1 - front).cumsum(0)
        hits = front.sum() - missed
        loss = 1 - hits / (hits + misses * missed + false_alarms * false)
        return (values * torch.cat([loss[:1], loss.diff()])).sum()

    return weigh


SOFTMAX = ROWS["lovasz_softmax"]


def test_the_loop_itself_is_right():
    """So that what is rejected below is rejected for its mistake."""
    case = replace(SOFTMAX, loss=class_loop(differenced))
    assert not rejected(case, test_laws.test_ties_have_one_value)


@pytest.mark.parametrize("wrong", [labels_for_indicators, ascending])
def test_wrong_weights_are_rejected(wrong):
    case = replace(SOFTMAX, loss=class_loop(wrong))
    assert rejected(case, test_laws.test_equals_oracle, options=-1)
    assert rejected(case, test_laws.test_follows_metric_at_hard_predictions)


def test_a_green_gradcheck_proves_little():
    """Labels in place of indicators pass the gradient check all the same."""
    case = replace(SOFTMAX, loss=class_loop(labels_for_indicators))
    x, target = test_laws.drawn(case, 0)
    assert torch.autograd.gradcheck(lambda z: case(z, target), (x.requires_grad_(),))


def test_differenced_gradients_are_rejected():
    assert fails(test_lovasz.check_background_digits, differenced)


def test_masking_by_multiplication_is_rejected():
    case = replace(SOFTMAX, loss=class_loop(differenced, mask_by_product=True))
    assert fails(
        test_laws.test_ignored_items_are_as_if_absent,
        case,
        garbage=float("nan"),
        dtype=torch.float64,
    )
    assert fails(
        test_laws.test_ignored_items_are_as_if_absent, case, garbage=1e4, dtype=torch.float64
    )


def test_half_precision_inside_is_rejected():
    case = replace(SOFTMAX, loss=class_loop(differenced))
    assert fails(test_laws.test_half_precision_is_float32_inside, case, dtype=torch.bfloat16)


def test_soft_iou_is_not_the_extension():
    """The loss many call Lovász's equal agrees at hard predictions and nowhere else."""

    def soft_iou(x, target, **_):
        p = x.softmax(1).movedim(1, -1)
        front = torch.nn.functional.one_hot(target, x.shape[1]).to(x)
        present = front.flatten(0, -2).any(0)
        axes = tuple(range(p.ndim - 1))
        return (1 - (p * front).sum(axes) / (p + front - p * front).sum(axes))[present].mean()

    case = replace(SOFTMAX, loss=soft_iou)
    assert not rejected(case, test_laws.test_follows_metric_at_hard_predictions)
    assert rejected(case, test_laws.test_equals_oracle, options=-1)


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("lovasz_softmax_dice", (0.5, 0.5), (1.0, 1.0)),  # the Jaccard index by the name of Dice
        ("lovasz_softmax_tversky", (2.0, 0.3), (0.3, 2.0)),  # the weights swapped
    ],
)
def test_the_weights_of_another_metric_are_rejected(name, right, wrong):
    for weights, expected in ((right, False), (wrong, True)):
        case = replace(ROWS[name], loss=class_loop(overlap_curve(*weights)), fixed={})
        assert rejected(case, test_laws.test_ties_have_one_value) == expected
        assert rejected(case, test_laws.test_follows_metric_at_hard_predictions) == expected


def test_soft_dice_is_not_the_extension():
    """It agrees with Dice at hard predictions and nowhere else."""

    def soft_dice(x, target, **_):
        p = x.softmax(1).movedim(1, -1)
        front = torch.nn.functional.one_hot(target, x.shape[1]).to(x)
        present = front.flatten(0, -2).any(0)
        axes = tuple(range(p.ndim - 1))
        return (1 - 2 * (p * front).sum(axes) / (p + front).sum(axes))[present].mean()

    case = replace(ROWS["lovasz_softmax_dice"], loss=soft_dice, fixed={})
    assert not rejected(case, test_laws.test_follows_metric_at_hard_predictions)
    assert rejected(case, test_laws.test_equals_oracle, options=-1)
