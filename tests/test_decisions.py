"""Decisions: best among all by brute force where that can be counted, never worse than usual."""

import itertools
import math

import pytest
import sklearn.metrics
import torch
from hypothesis import given
from hypothesis import strategies as st

from evalgrad import decisions, metrics
from evalgrad.decisions import masks, ratio

seeds = st.integers(0, 2**32 - 1)


def expected(p, chosen, dice):
    """The metric of a mask, over all truths with independent pixels; nothing in both is 1."""
    total = 0.0
    for truth in itertools.product((0, 1), repeat=len(p)):
        chance = math.prod(q if y else 1 - q for q, y in zip(p, truth))
        hits = sum(a * y for a, y in zip(chosen, truth))
        both = sum(chosen) + sum(truth)
        value = (2 * hits / both if dice else hits / (both - hits)) if both else 1.0
        total += chance * value
    return total


@pytest.mark.parametrize("decide", [decisions.jaccard_mask, decisions.dice_mask])
@given(seed=seeds, n=st.integers(1, 6), power=st.sampled_from([0.3, 1.0, 4.0]))
def test_the_best_mask_of_all(decide, seed, n, power):
    generator = torch.Generator().manual_seed(seed)
    p = torch.rand(n, dtype=torch.float64, generator=generator) ** power
    dice = decide is decisions.dice_mask
    best = max(expected(p.tolist(), a, dice) for a in itertools.product((0, 1), repeat=n))
    chosen = decide(p.unsqueeze(0))[0].int().tolist()
    assert expected(p.tolist(), chosen, dice) == pytest.approx(best, abs=1e-12)
    values = (masks.expected_dice if dice else masks.expected_jaccard)(p.sort(descending=True)[0])
    assert values.max().item() == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("decide", [decisions.jaccard_mask, decisions.dice_mask])
@pytest.mark.parametrize("power", [1.0, 3.0, 20.0])
def test_moments_are_close_for_images(decide, power):
    """What is given up for speed, in expected metric, at 700 pixels."""
    p = torch.rand(1, 700, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) ** power
    dice = decide is decisions.dice_mask
    values = (masks.expected_dice if dice else masks.expected_jaccard)(
        p[0].sort(descending=True)[0]
    )
    fast = values[decide(p, exact=False).sum()]
    assert values.max() - fast <= 1e-4 * values.max()
    assert torch.equal(decide(p), decide(p, exact=True))
    # and the usual decision does worse
    assert values[(p > 0.5).sum()] < values.max()


@pytest.mark.parametrize("decide", [decisions.jaccard_mask, decisions.dice_mask])
@pytest.mark.parametrize("exact", [False, True])
def test_edges_of_masks(decide, exact):
    assert decide(torch.zeros(0, 3, 3), exact=exact).shape == (0, 3, 3)
    assert decide(torch.zeros(2, 0), exact=exact).shape == (2, 0)
    assert not decide(torch.zeros(2, 3, 3), exact=exact).any()
    assert decide(torch.ones(2, 3, 3), exact=exact).all()
    sure = torch.tensor([[1.0, 0.0, 1.0, 0.0]])
    assert torch.equal(decide(sure, exact=exact), sure > 0)
    p = torch.rand(3, 8, generator=torch.Generator().manual_seed(1))
    mask = torch.arange(8) < 5
    found = decide(torch.where(mask, p, torch.nan), mask=mask.expand(3, -1), exact=exact)
    assert torch.equal(found[:, :5], decide(p[:, :5], exact=exact))
    assert not found[:, 5:].any()
    with pytest.raises(ValueError, match=r"`probabilities` must be in \[0, 1\]; got .*sigmoid"):
        decide(p + 3)
    with pytest.raises(TypeError, match="floating-point"):
        decide(torch.ones(2, 3, dtype=torch.long))


# ---- thresholds ----------------------------------------------------------------------------------


def rates(predicted, target):
    tp, fp = (predicted & target).sum().item(), (predicted & ~target).sum().item()
    fn, tn = (~predicted & target).sum().item(), (~predicted & ~target).sum().item()
    safe = lambda a, b: a / b if b else 0.0  # noqa: E731
    return {
        "fbeta": safe(5 * tp, 5 * tp + 4 * fn + fp),  # beta = 2
        "jaccard": safe(tp, tp + fp + fn),
        "precision": safe(tp, tp + fp),
        "recall": safe(tp, tp + fn),
        "specificity": tn / (tn + fp) if tn + fp else 1.0,
    }


GIVEN = {
    "precision_at_recall": ("precision", "recall"),
    "recall_at_precision": ("recall", "precision"),
    "sensitivity_at_specificity": ("recall", "specificity"),
}


@pytest.mark.parametrize("metric", ["fbeta", "jaccard", *GIVEN])
@given(seed=seeds)
def test_no_threshold_is_better(metric, seed):
    generator = torch.Generator().manual_seed(seed)
    n = int(torch.randint(1, 12, (), generator=generator))
    scores = torch.randn(n, generator=generator).mul(2).round()  # with ties
    target = torch.rand(n, generator=generator) < 0.5
    aim, held = GIVEN.get(metric, (metric, None))
    options = {"at_least": 0.6} if held else {"beta": 2.0} if metric == "fbeta" else {}
    threshold = decisions.best_threshold(scores, target, metric=metric, **options)
    found = rates(scores > threshold, target)
    every = [rates(scores > t, target) for t in (*scores.tolist(), -math.inf, math.inf)]
    if held:
        every = [r for r in every if r[held] >= 0.6 - 1e-9]
    assert found[aim] == pytest.approx(max((r[aim] for r in every), default=0.0))


def test_thresholds_agree_with_the_metrics():
    generator = torch.Generator().manual_seed(3)
    scores, target = torch.randn(300, generator=generator), torch.rand(300, generator=generator)
    target = target < (0.2 + 0.2 * scores).clamp(0, 1)
    t = decisions.best_threshold(scores, target, metric="precision_at_recall", at_least=0.8)
    assert rates(scores > t, target)["precision"] == pytest.approx(
        metrics.precision_at_recall(scores, target, recall=0.8).item()
    )
    precision, recall, _ = sklearn.metrics.precision_recall_curve(target, scores)
    best = (2 * precision * recall / (precision + recall).clip(1e-9)).max()
    t = decisions.best_threshold(scores, target)
    assert sklearn.metrics.f1_score(target, scores > t) == pytest.approx(best)


def test_edges_of_thresholds():
    scores = torch.tensor([[0.9, 0.4], [0.3, 0.1]])
    assert decisions.best_threshold(scores, torch.zeros(2, 2)) == math.inf
    assert decisions.best_threshold(scores, torch.ones(2, 2)) == -math.inf
    assert decisions.best_threshold(torch.zeros(0), torch.zeros(0)) == math.inf
    mask = torch.tensor([[True, False], [True, True]])
    target = torch.tensor([[1, 1], [0, 0]])
    assert decisions.best_threshold(scores, target, mask=mask).item() == pytest.approx(0.6)
    high = {"metric": "recall_at_precision", "at_least": 0.9}
    assert decisions.best_threshold(scores, 1 - target, **high) == math.inf
    with pytest.raises(ValueError, match="`at_least` must be a fraction for 'precision_at_recall'"):
        decisions.best_threshold(scores, target, metric="precision_at_recall")
    with pytest.raises(ValueError, match="`at_least` must be None for 'fbeta'"):
        decisions.best_threshold(scores, target, at_least=0.5)
    with pytest.raises(ValueError, match="`metric` must be one of 'fbeta', 'jaccard'"):
        decisions.best_threshold(scores, target, metric="f1")


# ---- several classes -----------------------------------------------------------------------------


def drawn_maps(seed, n=4000, classes=4):
    """Calibrated probabilities of unequal classes, and labels drawn from them."""
    generator = torch.Generator().manual_seed(seed)
    rare = -torch.arange(classes, dtype=torch.float64)
    logits = 1.5 * torch.randn(1, classes, n, dtype=torch.float64, generator=generator)
    logits = logits + rare.unsqueeze(-1)
    label = torch.multinomial(logits.softmax(1)[0].T, 1, generator=generator).T
    return logits, label


def mean_iou(prediction, label, classes=4):
    return metrics.jaccard_index(prediction, label, num_classes=classes).item()


def test_ratio_of_expectations_beats_argmax():
    gains = []
    for seed in range(5):
        logits, label = drawn_maps(seed)
        chosen = decisions.dataset_jaccard_labels(logits.softmax(1))
        gains.append(mean_iou(chosen, label) - mean_iou(logits.argmax(1), label))
    assert min(gains) > 0


@given(seed=seeds)
def test_ratio_of_expectations_never_falls(seed):
    logits, _ = drawn_maps(seed, n=12, classes=3)
    rows = logits.softmax(1)[0].T
    value = lambda label: ratio._mean_ratio(*ratio._expected(rows, label))  # noqa: E731
    chosen = decisions.dataset_jaccard_labels(rows.T.unsqueeze(0))[0]
    assert value(chosen) >= value(rows.argmax(1)) - 1e-12


def test_what_does_not_count_changes_no_label():
    logits, _ = drawn_maps(0, n=200)
    p = logits.softmax(1)
    mask = torch.arange(200).unsqueeze(0) < 120
    found = decisions.dataset_jaccard_labels(p, mask=mask)
    assert torch.equal(found[:, :120], decisions.dataset_jaccard_labels(p[..., :120]))
    with pytest.raises(ValueError, match="For one class use jaccard_mask"):
        decisions.dataset_jaccard_labels(p[:, :1])


@given(seed=seeds)
def test_offsets_never_fall_and_usually_gain(seed):
    logits, label = drawn_maps(seed, n=60)
    shifted = logits + torch.tensor([1.0, 0.0, -1.0, 0.0]).view(-1, 1)
    offsets = decisions.class_offsets(shifted, label)
    before, after = shifted.argmax(1), (shifted + offsets.view(-1, 1)).argmax(1)
    present = label.unique().tolist()
    mean = lambda x: metrics.jaccard_index(x, label, num_classes=4, classes=present)  # noqa: E731
    assert mean(after) >= mean(before) - 1e-12


def test_offsets_carry_over_and_ignore():
    logits, label = drawn_maps(1)
    offsets = decisions.class_offsets(logits, label)
    fresh, truth = drawn_maps(2)
    chosen = (fresh + offsets.view(-1, 1)).argmax(1)
    assert mean_iou(chosen, truth) > mean_iou(fresh.argmax(1), truth)
    padded = torch.cat([logits, torch.full_like(logits[..., :5], 9.0)], -1)
    labels = torch.cat([label, torch.full_like(label[:, :5], 255)], -1)
    assert torch.equal(decisions.class_offsets(padded, labels, ignore_index=255), offsets)
    nothing = decisions.class_offsets(logits[..., :0], label[:, :0])
    assert nothing.tolist() == [0.0] * 4
