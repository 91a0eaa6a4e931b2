"""Direct IoU of several classes that are decided one by one: exact class by class."""

import itertools
import random
from fractions import Fraction

import oracles_direct_loss as oracles
import pytest
import torch
from hypothesis import given
from test_direct_loss import SIGNS, directions, every_direction, seeds, value_and_gradient
from torchmetrics.functional.classification import multilabel_jaccard_index

import evalgrad as eg
from evalgrad import metrics
from evalgrad.direct_loss import jaccard


def mean_iou_loss(labelling, target):
    """1 - mean IoU of labellings (classes, items)."""
    losses = [oracles.jaccard_of(y, t) for y, t in zip(labelling, target)]
    return sum(losses) / len(losses)


def joint_gradients(scores, target, epsilon, sign):
    """Gradients of all maximisers of F + s eps Delta over the labellings of all classes together;
    F and Delta are means over the classes.
    """
    classes, n = len(scores), len(scores[0])
    model = tuple(tuple(s > 0 for s in row) for row in scores)
    rows = list(itertools.product([False, True], repeat=n))
    objectives = {}
    for y in itertools.product(rows, repeat=classes):
        score = sum(Fraction(s) for row, c in zip(scores, y) for s, on in zip(row, c) if on)
        objectives[y] = Fraction(score, n * classes) + sign * Fraction(epsilon) * mean_iou_loss(
            y, target
        )
    top = max(objectives.values())
    unit = sign / (n * classes * epsilon)
    return [
        [[unit * (a - b) for a, b in zip(*pair)] for pair in zip(y, model)]
        for y, reached in objectives.items()
        if reached == top
    ]


@given(seed=seeds, direction=directions)
def test_meets_every_joint_labelling(seed, direction):
    """Two classes of four pixels, (N, C, *) = (2, 2, 2), decided together by brute force."""
    rng = random.Random(seed)
    scores = torch.tensor([rng.gauss(0, 1) for _ in range(8)], dtype=torch.float64).view(2, 2, 2)
    scores = scores.round() if rng.random() < 0.3 else scores
    target = torch.tensor([rng.random() < 0.5 for _ in range(8)]).view(2, 2, 2)
    epsilon = rng.choice([0.1, 0.5, 2.0])
    value, gradient = value_and_gradient(
        eg.direct_jaccard_loss, scores, target, dim=(0, 2), epsilon=epsilon, direction=direction
    )
    by_class, labels = (x.movedim(1, 0).flatten(1).tolist() for x in (scores, target))
    model = [[s > 0 for s in row] for row in by_class]
    assert value.item() == pytest.approx(float(mean_iou_loss(model, labels)))
    expected = torch.tensor(
        joint_gradients(by_class, labels, epsilon, SIGNS[direction]), dtype=torch.float64
    )
    found = gradient.movedim(1, 0).flatten(1)
    assert (found - expected).abs().flatten(1).amax(1).min() * epsilon < 1e-12


def test_the_value_is_torchmetrics_macro_iou():
    scores, target = torch.randn(6, 3, 5, 4), torch.rand(6, 3, 5, 4) < 0.4
    per_class = eg.direct_jaccard_loss(scores, target, dim=(0, 2, 3), reduction="none")
    expected = multilabel_jaccard_index(scores.sigmoid(), target.long(), 3, average="none")
    torch.testing.assert_close(1 - per_class, expected)
    torch.testing.assert_close(
        1 - eg.direct_jaccard_loss(scores, target, dim=(0, 2, 3)), expected.mean()
    )


def test_axes_of_the_items():
    scores, target = torch.randn(2, 3, 4, 5), torch.rand(2, 3, 4, 5) < 0.3
    mask = torch.rand(2, 3, 4, 5) < 0.9
    for dim, rows in (
        ((0, 2, 3), lambda x: x.movedim(1, 0).flatten(1)),
        ((-1, 0, -2), lambda x: x.movedim(1, 0).flatten(1)),
        ((2, 3), lambda x: x.flatten(2)),
        ((1,), lambda x: x.movedim(1, -1)),
    ):
        found = eg.direct_jaccard_loss(scores, target, mask=mask, dim=dim, reduction="none")
        args = (rows(x) for x in (scores, target, mask))
        expected = eg.DirectJaccardLoss(reduction="none")(*args)
        assert torch.equal(found, expected)
    module = eg.DirectJaccardLoss(dim=(0, 2, 3), empty="skip")
    assert "dim=(0, 2, 3)" in repr(module)
    assert module(scores, target) == eg.direct_jaccard_loss(scores, target, dim=(0, 2, 3))


@pytest.mark.parametrize("dim", [(0, 0), (0, -2), (), (0, 5)])
def test_axes_must_exist_and_differ(dim):
    match = (
        r"direct_jaccard_loss: `dim` must be one or more different dimensions, each a dimension in"
    )
    with pytest.raises(ValueError, match=match):
        eg.direct_jaccard_loss(torch.randn(3, 4), torch.ones(3, 4), dim=dim)
    with pytest.raises(
        TypeError, match=r"`dim` must be an integer, a tuple of integers or None; got 1\.5"
    ):
        eg.DirectJaccardLoss(dim=1.5)


@every_direction
def test_classes_without_foreground(engine, direction):
    """ "max": 0 if nothing is predicted, else 1; "skip": out of the mean, as in the mean IoU of the
    classes that are present.
    """
    scores = torch.tensor([[2.0, 1.0, -1.0], [-1.0, -2.0, -3.0], [1.0, -1.0, 2.0]])
    target = torch.tensor([[0, 0, 0], [0, 0, 0], [1, 1, 0]])
    options = {"direction": direction, "epsilon": 2.0}
    value, gradient = value_and_gradient(
        eg.direct_jaccard_loss, scores, target, reduction="none", **options
    )
    assert value.tolist() == [1, 0, pytest.approx(2 / 3)]
    assert gradient[0].any() == (direction == "negative")
    mean, skipping = value_and_gradient(
        eg.direct_jaccard_loss, scores, target, empty="skip", **options
    )
    assert mean.item() == pytest.approx(2 / 3)
    assert torch.equal(skipping[2], gradient[2])
    assert not skipping[:2].any()
    present = metrics.jaccard_index((scores[2:] > 0).long(), target[2:], num_classes=2, classes=[1])
    assert mean.item() == pytest.approx(1 - present.item())
    with pytest.raises(ValueError, match="`empty` must be one of 'max', 'skip'; got 'mean'"):
        eg.DirectJaccardLoss(empty="mean")


def test_no_warning_of_strides_without_the_kernels():
    """torch warns of searchsorted's strides once a process: here it has to warn every time."""
    rows = torch.randn(8, 3, dtype=torch.float64).t()
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        jaccard._pure(rows, rows > 0.5, rows < 9, 0.1, 1)
    finally:
        torch.set_warn_always(always)
