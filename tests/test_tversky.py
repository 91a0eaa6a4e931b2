"""Dice and Tversky: the metrics against counting by hand and against scikit-learn, and what holds
of the Lovász losses that follow them.
"""

import itertools
import math

import oracles
import pytest
import sklearn.metrics
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_lovasz_many_pixels import in_two_precisions

import evalgrad as eg
from evalgrad import metrics
from evalgrad.lovasz.extension import extend

JACCARD, DICE = (1.0, 1.0), (0.5, 0.5)
WEIGHTS = (JACCARD, DICE, (0.7, 0.3), (0.3, 0.7), (1.0, 0.2), (2.0, 0.5), (0.99, 3.0))
every_weights = pytest.mark.parametrize("weights", WEIGHTS, ids=str)


def named(weights):
    return dict(zip(("misses", "false_alarms"), weights, strict=True))


# ---- the metrics ---------------------------------------------------------------------------------


def index_by_hand(prediction, target, c, weights):
    """Of one class by sets of pixels; None for 0/0."""
    predicted = {i for i, v in enumerate(prediction) if v == c}
    true = {i for i, v in enumerate(target) if v == c}
    hits = len(predicted & true)
    size = hits + weights[0] * len(true - predicted) + weights[1] * len(predicted - true)
    return hits / size if size else None


@pytest.fixture
def maps():
    # class 3 is predicted but never true
    return torch.randint(4, (5, 6, 7)), torch.randint(3, (5, 6, 7))


@every_weights
def test_over_dataset_batch_and_image_by_hand(maps, weights):
    pixels = [(p.flatten().tolist(), t.flatten().tolist()) for p, t in zip(*maps)]
    batches = [pixels[:2], pixels[2:4], pixels[4:]]
    for over, groups in (
        ("dataset", [pixels]),
        ("batch", batches),
        ("image", [[image] for image in pixels]),
    ):
        means = []
        for group in groups:
            prediction, target = (sum(part, []) for part in zip(*group))
            indices = [index_by_hand(prediction, target, c, weights) for c in sorted({*target})]
            means.append(sum(indices) / len(indices))
        options = {"num_classes": 4, "over": over, "batch_size": 2}
        found = metrics.tversky_index(*maps, **options, **named(weights)).item()
        assert found == pytest.approx(sum(means) / len(means))
        if weights == JACCARD:
            assert found == metrics.jaccard_index(*maps, **options).item()
        if weights == DICE:
            assert found == metrics.dice(*maps, **options).item()


@given(seed=st.integers(0, 2**32 - 1), zero_division=st.sampled_from([0.0, 1.0]))
def test_dice_is_the_f1_of_scikit_learn(seed, zero_division):
    generator = torch.Generator().manual_seed(seed)
    prediction, target = torch.randint(4, (2, 1, 6), generator=generator)
    found = metrics.dice(
        prediction, target, num_classes=5, classes="all", zero_division=zero_division
    )
    expected = sklearn.metrics.f1_score(
        target[0], prediction[0], labels=range(5), average="macro", zero_division=zero_division
    )
    assert found.item() == pytest.approx(expected, abs=1e-12)


def test_counts_add_up(maps):
    counts = metrics.jaccard_counts(*maps, num_classes=4).sum(0, keepdim=True)
    weights = named((0.7, 0.3))
    assert metrics.tversky_from_counts(counts, **weights) == metrics.tversky_index(
        *maps, num_classes=4, **weights
    )


def test_hard_cases_are_those_of_the_jaccard_index(maps):
    prediction, target = maps
    target[1], prediction[2, 0], target[2, 0] = 255, 77, 255
    for options in (
        {"classes": "all", "over": "image"},
        {"classes": [3], "zero_division": math.nan},
        {"classes": "all", "zero_division": 0.0},
    ):
        options |= {"num_classes": 5, "ignore_index": 255}
        for found in (
            metrics.tversky_index(prediction, target, **options, **named(JACCARD)),
            metrics.jaccard_index(prediction, target, **options),
        ):
            torch.testing.assert_close(
                found, metrics.jaccard_index(prediction, target, **options), equal_nan=True
            )
    empty = torch.full((1, 3), 255)
    assert metrics.dice(torch.zeros_like(empty), empty, num_classes=2, ignore_index=255).isnan()


# ---- the losses ----------------------------------------------------------------------------------


@every_weights
def test_extension_equals_the_loss_on_every_set(weights):
    for n in range(1, 6):
        for foreground in itertools.product([False, True], repeat=n):
            sets = torch.tensor(list(itertools.product([0.0, 1.0], repeat=n)), dtype=torch.float64)
            front = torch.tensor(foreground).expand(len(sets), n)
            expected = [
                oracles.tversky_loss([bool(e) for e in row], foreground, *weights)
                for row in sets.tolist()
            ]
            torch.testing.assert_close(
                extend(sets, front, None, *weights), torch.tensor(expected, dtype=torch.float64)
            )


def is_submodular(weights, n=4):
    """Whether what an item adds to the loss never grows with the set that it joins."""
    sets = list(itertools.product([False, True], repeat=n))

    def step(wrong, i, foreground):
        joined = [w or j == i for j, w in enumerate(wrong)]
        return oracles.tversky_loss(joined, foreground, *weights) - oracles.tversky_loss(
            wrong, foreground, *weights
        )

    return all(
        step(small, i, foreground) >= step(large, i, foreground) - 1e-12
        for foreground in sets
        for large in sets
        for small in sets
        if all(a <= b for a, b in zip(small, large))
        for i in range(n)
        if not large[i]
    )


@every_weights
def test_submodular_exactly_if_a_miss_weighs_no_less_than_a_hit(weights):
    assert is_submodular(weights) == (weights[0] >= 1)


@every_weights
def test_convex_only_if_submodular(weights):
    """The extension lies below its chords everywhere, or above one of them."""
    ends = torch.rand(2, 20_000, 4, dtype=torch.float64)
    front = torch.rand(20_000, 4) < 0.6
    values = extend(ends, front.expand(2, -1, -1), None, *weights)
    middle = extend(ends.mean(0), front, None, *weights)
    assert bool((middle <= values.mean(0) + 1e-12).all()) == (weights[0] >= 1)


@pytest.mark.parametrize("bins", [None, 4096])
@pytest.mark.parametrize("confidence", [0, 3, 8])
@pytest.mark.parametrize("weights", [DICE, (2.0, 0.5)], ids=str)
def test_kernels_on_many_pixels(weights, confidence, bins):
    """Where the kernels count in fine bins, they know what ties cost of these metrics too."""
    target = torch.randint(3, (1, 2**17))
    logits = (1 + 0.2 * confidence) * torch.randn(1, 3, 2**17)
    logits += confidence * torch.nn.functional.one_hot(target, 3).movedim(-1, 1)
    metric = eg.Tversky(*weights)
    for loss, scores, labels in (
        (eg.lovasz_softmax_loss, logits, target),
        (eg.lovasz_hinge_loss, logits[:, 0] - logits[:, 1], target == 0),
    ):
        (value, gradient), (expected, expected_gradient) = in_two_precisions(
            loss, scores, labels, metric=metric, bins=bins
        )
        assert value == pytest.approx(expected, rel=1e-6)
        error = (gradient - expected_gradient).norm() / expected_gradient.norm()
        assert error <= (3.5e-5 if bins is None else 3e-3)


@pytest.mark.parametrize("metric", ["jaccard", "dice", eg.Tversky(misses=2.0, false_alarms=0.3)])
def test_the_hinge_at_logits_of_one_is_twice_the_metric(metric):
    """A wrong pixel has loss 2 there."""
    wrong, mask = torch.rand(1, 50) < 0.4, torch.rand(1, 50) < 0.5
    decided = mask ^ wrong
    m, w = {"jaccard": (1.0, 1.0), "dice": (0.5, 0.5)}.get(metric) or metric
    index = metrics.tversky_index(
        decided.long(), mask.long(), num_classes=2, classes=[1], misses=m, false_alarms=w
    )
    loss = eg.lovasz_hinge_loss(2.0 * decided - 1, mask, metric=metric)
    assert loss.item() == pytest.approx(2 * (1 - index.item()), rel=1e-5)


def test_dice_is_tversky_with_halves():
    logits, target = torch.randn(2, 4, 50), torch.randint(4, (2, 50))
    tversky = eg.Tversky(misses=0.5, false_alarms=0.5)
    for bins in (None, 16):
        assert eg.lovasz_softmax_loss(
            logits, target, metric="dice", bins=bins
        ) == eg.lovasz_softmax_loss(logits, target, metric=tversky, bins=bins)


def test_misses_weigh_more_than_false_alarms():
    """Which weight is for what: of a pixel missed and one falsely found, the first costs more."""
    metric = eg.Tversky(misses=2.0, false_alarms=0.5)
    target = torch.tensor([[1, 1, 0]])
    missed = eg.lovasz_hinge_loss(torch.tensor([[-1.0, 1.0, -1.0]]), target, metric=metric)
    found = eg.lovasz_hinge_loss(torch.tensor([[1.0, 1.0, 1.0]]), target, metric=metric)
    assert missed > found
