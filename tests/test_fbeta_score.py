"""F-beta of binary, multi-label and multi-class decisions: scikit-learn's, absent classes and 0/0
included.
"""

import math

import numpy as np
import pytest
import sklearn.metrics
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchmetrics.functional.classification import multiclass_fbeta_score, multilabel_fbeta_score

from evalgrad import metrics

seeds = st.integers(0, 2**32 - 1)
betas = st.sampled_from([0.5, 1.0, 2.0])
zero_divisions = st.sampled_from([0.0, 1.0, math.nan])
AVERAGES = {"mean": "macro", "micro": "micro", "weighted": "weighted", "none": None}
averages = st.sampled_from(list(AVERAGES))
CLASSES = 5


def assert_same(found, expected):
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12, equal_nan=True)


def check_multi_label(fbeta, seed, beta, zero_division, reduction, levels=3):
    """Scores (N, C) with a list per class; some classes have no positive, or no prediction."""
    draw = np.random.default_rng(seed)
    shape = int(draw.integers(1, 7)), CLASSES
    rates = draw.choice([0.0, 0.3, 1.0], CLASSES)
    target = draw.random(shape) < rates
    scores = draw.integers(-levels, levels + 1, shape) - draw.choice([0.0, 9.0], CLASSES)
    expected = sklearn.metrics.fbeta_score(
        target, scores > 0, beta=beta, average=AVERAGES[reduction], zero_division=zero_division
    )
    options = {"beta": beta, "zero_division": zero_division, "reduction": reduction}
    assert_same(fbeta(torch.tensor(scores), torch.tensor(target), dim=0, **options), expected)


def check_multi_class(fbeta, seed, beta, zero_division, reduction):
    """Scores (N, C) or (N, C, 3) with class indices; few samples, so that classes are absent."""
    draw = np.random.default_rng(seed)
    spatial = [(), (3,)][draw.integers(2)]
    n = int(draw.integers(1, 6))
    target = draw.integers(0, CLASSES - 1, (n, *spatial))
    scores = draw.normal(size=(n, CLASSES, *spatial))
    kept = draw.random(target.shape) < 0.8
    kept.flat[0] = True
    expected = sklearn.metrics.fbeta_score(
        target[kept],
        scores.argmax(1)[kept],
        beta=beta,
        average=AVERAGES[reduction],
        labels=range(CLASSES),
        zero_division=zero_division,
    )
    scores = np.where(np.expand_dims(kept, 1), scores, np.nan)
    labels = torch.tensor(np.where(kept, target, 255), dtype=torch.uint8)
    options = {"beta": beta, "zero_division": zero_division, "reduction": reduction}
    found = fbeta(torch.tensor(scores), labels, ignore_index=255, **options)
    assert_same(found, expected)
    assert_same(fbeta(torch.tensor(scores), labels[:, None], ignore_index=255, **options), expected)


@given(seed=seeds, beta=betas, zero_division=zero_divisions, reduction=averages)
def test_multi_label_is_scikit_learns(seed, beta, zero_division, reduction):
    check_multi_label(metrics.fbeta_score, seed, beta, zero_division, reduction)


@given(seed=seeds, beta=betas, zero_division=zero_divisions, reduction=averages)
def test_multi_class_is_scikit_learns(seed, beta, zero_division, reduction):
    check_multi_class(metrics.fbeta_score, seed, beta, zero_division, reduction)


@given(seed=seeds, threshold=st.sampled_from([0.0, 0.5, 1.0]))
def test_binary_is_scikit_learns(seed, threshold):
    draw = np.random.default_rng(seed)
    target, scores = draw.random(9) < 0.4, draw.choice([0.0, 0.25, 0.5, 1.0], 9)
    expected = sklearn.metrics.fbeta_score(
        target, scores > threshold, beta=1.0, zero_division=math.nan
    )
    found = metrics.fbeta_score(torch.tensor(scores), torch.tensor(target), threshold=threshold)
    assert_same(found, expected)


@given(seed=seeds)
def test_an_average_per_sample_is_scikit_learns(seed):
    draw = np.random.default_rng(seed)
    target, scores = draw.random((6, 4)) < 0.3, draw.normal(size=(6, 4))
    expected = sklearn.metrics.fbeta_score(
        target, scores > 0, beta=1.0, average="samples", zero_division=0.0
    )
    found = metrics.fbeta_score(torch.tensor(scores), torch.tensor(target), zero_division=0.0)
    assert_same(found, expected)


@pytest.mark.parametrize("reduction", ["mean", "micro", "weighted", "none"])
def test_is_torchmetrics(reduction):
    torch.manual_seed(0)
    options = {"beta": 2.0, "average": AVERAGES[reduction] or "none"}
    scores, target = torch.rand(40, 4), torch.randint(4, (40,))
    torch.testing.assert_close(
        metrics.fbeta_score(scores, target, beta=2.0, reduction=reduction).float(),
        multiclass_fbeta_score(scores, target, num_classes=4, **options),
    )
    labels = torch.randint(2, (40, 4))
    torch.testing.assert_close(
        metrics.fbeta_score(
            scores, labels, beta=2.0, threshold=0.5, dim=0, reduction=reduction
        ).float(),
        multilabel_fbeta_score(scores, labels, num_labels=4, **options),
    )


def test_false_alarms_without_positives_are_0_and_silence_is_0_by_0():
    target = torch.zeros(3)
    assert metrics.fbeta_score(torch.ones(3), target) == 0
    assert metrics.fbeta_score(-torch.ones(3), target).isnan()
    assert metrics.fbeta_score(-torch.ones(3), target, zero_division=1.0) == 1


def test_a_score_on_the_threshold():
    """It is not predicted; at worst a positive there is missed, a negative a false alarm."""
    scores, target = torch.tensor([1.0, 0.0, 0.0]), torch.tensor([1, 1, 0])
    assert metrics.fbeta_score(scores, target).item() == pytest.approx(2 / 3)
    assert metrics.fbeta_score(scores, target, ties="worst") == 0.5


def test_nothing_left_is_nan():
    logits, target = torch.randn(2, 3, 4), torch.full((2, 4), -100)
    for reduction in AVERAGES:
        options = {"ignore_index": -100, "zero_division": 0.0, "reduction": reduction}
        assert metrics.fbeta_score(logits, target, **options).isnan().all()
        assert metrics.fbeta_score(logits[:0], target[:0], **options).isnan().all()


@pytest.mark.parametrize("reduction", ["mean", "micro", "weighted", "none"])
def test_a_nan_that_counts_is_not_hidden(reduction):
    logits, target = torch.randn(3, 4), torch.tensor([0, 1, 2])
    logits[1, 3] = math.nan
    assert metrics.fbeta_score(logits, target, reduction=reduction).isnan().all()
    labels = torch.tensor([[0, 1, 0, 0]] * 3)
    assert metrics.fbeta_score(logits, labels, dim=0, reduction=reduction).isnan().any()


LOGITS, LABELS = torch.zeros(4, 3), torch.tensor([0, 1, 2, 0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 0.5}, "`threshold` must be left out with a `target` of class indices"),
        ({"dim": 0}, "`dim` must be left out"),
        ({"mask": LOGITS > 0}, "`mask` must be left out .* `ignore_index`"),
        ({"ties": "worst"}, "`ties` must be left out"),
        ({"ties": "best"}, "`ties` must be one of 'standard', 'worst'; got 'best'"),
        ({"reduction": "sum"}, "`reduction` must be one of 'mean', 'micro', 'weighted', 'none'"),
        ({"zero_division": 2.0}, "`zero_division` must be finite and at least 0 and at most 1"),
        ({"threshold": math.nan}, "`threshold` must be finite; got nan"),
    ],
)
def test_options_that_do_not_apply_are_refused(options, message):
    with pytest.raises(ValueError, match=f"fbeta_score: {message}"):
        metrics.fbeta_score(LOGITS, LABELS, **options)


def test_lists_leave_items_out_by_a_mask():
    scores, target = torch.randn(5), torch.tensor([1, 0, 255, 1, 0])
    with pytest.raises(ValueError, match=r"`ignore_index` must be left out .*`mask=target != 255`"):
        metrics.fbeta_score(scores, target, ignore_index=255)
    kept = target != 255
    found = metrics.fbeta_score(scores, target, mask=kept)
    assert found == metrics.fbeta_score(scores[kept], target[kept])
