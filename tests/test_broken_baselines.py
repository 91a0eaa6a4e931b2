"""Wrong versions of the soft overlaps and of the focal loss, each of them in use somewhere, that
the laws must reject.
"""

from dataclasses import replace

import pytest
import test_laws
import torch
import torch.nn.functional as F
from cases import CASES
from test_broken import fails, rejected

import evalgrad as eg

ROWS = {case.name: case for case in CASES}
ORACLE = test_laws.test_equals_oracle


def overlap(
    *,
    costs=(1.0, 1.0),
    squares=False,
    all_classes=False,
    pooled=False,
    constant=0.0,
    masked_late=False,
):
    """A soft index straight from its formula, with one mistake if asked for."""
    misses, alarms = costs

    def loss(x, target, ignore_index=None, **_):
        valid = (target != ignore_index) if ignore_index is not None else target >= 0
        y = F.one_hot(target.where(valid, 0), x.shape[1]).movedim(-1, 1).to(x)
        p = x.softmax(1)
        if not masked_late:
            p = torch.where(valid.unsqueeze(1), p, 0.0)
        y = y * valid.unsqueeze(1)
        axes = (0, 1, 2) if pooled else (0, 2)
        hits = (p * y).sum(axes)
        size = (p * p).sum(axes) if squares else p.sum(axes)
        wrong = misses * (y.sum(axes) - hits) + alarms * (size - hits)
        losses = 1 - (hits + constant) / (hits + wrong + constant)
        present = y.sum(axes) > 0
        return losses.mean() if all_classes or pooled else losses[present].mean()

    return loss


WRONG = {
    "squares in the denominator": ("soft_jaccard", {"squares": True}),
    "classes that do not occur in the mean": ("soft_jaccard", {"all_classes": True}),
    "all classes in one fraction": ("soft_jaccard", {"pooled": True}),
    "a constant that nobody asked for": ("soft_dice", {"costs": (0.5, 0.5), "constant": 1.0}),
    "Jaccard for Dice": ("soft_dice", {"costs": (1.0, 1.0)}),
    "misses and false alarms exchanged": ("soft_tversky", {"costs": (0.4, 1.5)}),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_overlaps_are_rejected(what):
    name, mistake = WRONG[what]
    assert rejected(replace(ROWS[name], loss=overlap(**mistake)), ORACLE, options=-1)


@pytest.mark.parametrize(
    ("name", "costs"),
    [("soft_jaccard", (1.0, 1.0)), ("soft_dice", (0.5, 0.5)), ("soft_tversky", (1.5, 0.4))],
)
def test_the_formula_itself_is_right(name, costs):
    """So that what is rejected is rejected for its mistake."""
    assert not rejected(replace(ROWS[name], loss=overlap(costs=costs)), ORACLE, options=-1)


def test_predictions_of_ignored_pixels_are_no_false_alarms():
    law = test_laws.test_ignored_items_are_as_if_absent
    for late in (False, True):
        case = replace(ROWS["soft_jaccard"], loss=overlap(masked_late=late))
        assert fails(law, case, 0.0, torch.float64) == late


def test_the_product_is_wrong_for_soft_labels():
    """sum p y, which is right for hard labels, is not smallest where p = y."""

    def product(logits, target, **_):
        p = logits.sigmoid()
        hits = (p * target).sum()
        return 1 - hits / (p.sum() + target.sum() - hits)

    y = torch.tensor([[0.2, 0.7, 0.5, 0.9]], dtype=torch.float64)
    assert product(y.logit(), y) > product((4 * y - 2).sign() * 3, y)
    assert eg.soft_jaccard_loss(y.logit(), y, mode="binary").abs() < 1e-12


def focal(*, power=None, of_loss=False, plain_mean=False):
    def loss(x, target, gamma=2.0, weight=None, **_):
        log_p = x.log_softmax(1).gather(1, target.unsqueeze(1)).squeeze(1)
        p = log_p.exp()
        scale = p**gamma if power == "p" else (1 - p) ** (1 if power == "one" else gamma)
        losses = -log_p * scale if not of_loss else (-log_p) ** gamma
        w = torch.ones_like(losses) if weight is None else weight[target]
        return (w * losses).sum() / (len(losses.flatten()) if plain_mean else w.sum())

    return loss


def test_wrong_focal_losses_are_rejected():
    """The probability itself; a fixed power; a power of the loss; a mean without the weights."""
    case = ROWS["focal"]
    weighted = next(i for i, o in enumerate(case.options) if [*o] == ["weight"])

    def with_weights(loss):
        return lambda x, target, weight=None, **o: loss(
            x, target, weight=None if weight is None else weight[: x.shape[1]], **o
        )

    for options in (-1, weighted):
        right = replace(case, loss=with_weights(focal()))
        assert not rejected(right, ORACLE, options=options)
    for mistake in ({"power": "p"}, {"power": "one"}, {"of_loss": True}):
        assert rejected(replace(case, loss=with_weights(focal(**mistake))), ORACLE, options=-1)
    forgetful = replace(case, loss=with_weights(focal(plain_mean=True)))
    assert rejected(forgetful, ORACLE, options=weighted)
