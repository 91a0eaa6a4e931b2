"""The Jaccard index against counting by hand, against torchmetrics and against scikit-learn."""

import math

import numpy as np
import pytest
import sklearn.metrics
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchmetrics.functional.classification import multiclass_jaccard_index

from evalgrad import metrics


def iou(prediction, target, c):
    """Jaccard index of one class by sets of pixels; None for 0/0."""
    a = {i for i, v in enumerate(prediction) if v == c}
    b = {i for i, v in enumerate(target) if v == c}
    return len(a & b) / len(a | b) if a | b else None


@pytest.fixture
def maps():
    # class 3 is predicted but never true
    return torch.randint(4, (5, 6, 7)), torch.randint(3, (5, 6, 7))


def test_dataset_index_by_hand(maps):
    prediction, target = (t.flatten().tolist() for t in maps)
    expected = sum(iou(prediction, target, c) for c in range(3)) / 3
    assert metrics.jaccard_index(*maps, num_classes=5).item() == pytest.approx(expected)
    everything = [iou(prediction, target, c) for c in range(5)]
    assert everything[3] == 0
    assert everything[4] is None
    for zero_division in (0.0, 1.0):
        found = metrics.jaccard_index(
            *maps, num_classes=5, classes="all", zero_division=zero_division
        )
        filled = [zero_division if v is None else v for v in everything]
        assert found.item() == pytest.approx(sum(filled) / 5)
    skipped = metrics.jaccard_index(*maps, num_classes=5, classes="all", zero_division=math.nan)
    assert skipped.item() == pytest.approx(sum(v for v in everything if v is not None) / 4)
    assert metrics.jaccard_index(*maps, num_classes=5, classes=[4]) == 1
    assert metrics.jaccard_index(*maps, num_classes=5, classes=[4], zero_division=math.nan).isnan()


def test_image_and_batch_index_by_hand(maps):
    rows = [(p.flatten().tolist(), t.flatten().tolist()) for p, t in zip(*maps)]
    means = [sum(iou(p, t, c) for c in set(t)) / len(set(t)) for p, t in rows]
    assert metrics.jaccard_index(*maps, num_classes=4, over="image").item() == pytest.approx(
        sum(means) / 5
    )
    batches = [
        metrics.jaccard_index(maps[0][i : i + 2], maps[1][i : i + 2], num_classes=4)
        for i in (0, 2, 4)
    ]
    assert metrics.jaccard_index(
        *maps, num_classes=4, over="batch", batch_size=2
    ).item() == pytest.approx(sum(batches).item() / 3)


@given(seed=st.integers(0, 2**32 - 1), zero_division=st.sampled_from([0.0, 1.0]))
def test_all_classes_are_scikit_learns(seed, zero_division):
    draw = np.random.default_rng(seed)
    prediction, target = draw.integers(0, 4, (2, 1, 6))
    found = metrics.jaccard_index(
        torch.tensor(prediction),
        torch.tensor(target),
        num_classes=5,
        classes="all",
        zero_division=zero_division,
    )
    expected = sklearn.metrics.jaccard_score(
        target[0], prediction[0], labels=range(5), average="macro", zero_division=zero_division
    )
    assert found.item() == pytest.approx(expected, abs=1e-12)


def test_equals_torchmetrics(maps):
    prediction, target = maps[0].clamp(max=2), maps[1]
    for ignore_index in (None, 1):
        expected = multiclass_jaccard_index(
            prediction, target, num_classes=3, average="macro", ignore_index=ignore_index
        )
        actual = metrics.jaccard_index(prediction, target, num_classes=3, ignore_index=ignore_index)
        if ignore_index is None:
            assert actual.item() == pytest.approx(expected.item(), abs=1e-6)
        else:  # torchmetrics averages over the ignored class too; ours has no such class
            per_class = multiclass_jaccard_index(
                prediction, target, num_classes=3, average=None, ignore_index=ignore_index
            )
            assert actual.item() == pytest.approx(per_class[[0, 2]].mean().item(), abs=1e-6)


def test_counts_add_up(maps):
    counts = metrics.jaccard_counts(*maps, num_classes=4)
    parts = torch.cat(
        [metrics.jaccard_counts(p[None], t[None], num_classes=4) for p, t in zip(*maps)]
    )
    assert torch.equal(counts, parts)
    whole = metrics.jaccard_from_counts(counts.sum(0, keepdim=True))
    assert whole == metrics.jaccard_index(*maps, num_classes=4)


def test_nothing_to_average_is_nan():
    labels = torch.full((1, 3), 255)
    for zero_division in (0.0, 1.0, math.nan):
        assert metrics.jaccard_index(
            torch.zeros_like(labels),
            labels,
            num_classes=2,
            ignore_index=255,
            zero_division=zero_division,
        ).isnan()


def test_an_image_without_valid_pixels_is_left_out(maps):
    prediction, target = maps
    target[1] = 255
    kept = [0, 2, 3, 4]
    options = {"num_classes": 4, "over": "image", "classes": "all"}
    assert metrics.jaccard_index(
        prediction, target, ignore_index=255, **options
    ) == metrics.jaccard_index(prediction[kept], target[kept], **options)


def test_predictions_where_nothing_counts_may_be_anything(maps):
    prediction, target = maps
    target[:, 0] = 255
    clean = metrics.jaccard_index(prediction, target, num_classes=4, ignore_index=255)
    prediction[:, 0] = 77
    assert metrics.jaccard_index(prediction, target, num_classes=4, ignore_index=255) == clean
