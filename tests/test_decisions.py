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
    image = (p * 255).byte()
    for saved, error in ((image, TypeError), (image.float(), ValueError)):
        with pytest.raises(error, match=r"8-bit values by 255: `probabilities / 255`"):
            decide(saved)
    decide(image / 255)
    with pytest.raises(ValueError, match=r"`probabilities\[None\]` for one image"):
        decide(p[0])


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


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_thresholds_between_neighbours_of_a_dtype(dtype):
    """Whatever the midpoint rounds to; also below infinite scores."""
    one = torch.tensor(1.0, dtype=dtype)
    for low in (one, one + torch.finfo(dtype).eps, one / 3, -one):
        high = low + low.abs() * torch.finfo(dtype).eps
        for upper in (high, one * math.inf):
            scores = torch.stack([upper, low])
            threshold = decisions.best_threshold(scores, torch.tensor([1, 0]))
            assert (scores > threshold).tolist() == [True, False]
    largest = torch.finfo(dtype).max
    scores = torch.tensor([math.inf, largest, largest * 0.75, -math.inf], dtype=dtype)
    threshold = decisions.best_threshold(scores, torch.tensor([1, 1, 0, 0]))
    assert (scores > threshold).tolist() == [True, True, False, False]


def test_thresholds_of_nan():
    scores, target = torch.tensor([0.9, math.nan, 0.1]), torch.tensor([1, 0, 0])
    with pytest.raises(ValueError, match=r"`scores` must be without NaN; .*mask=~scores.isnan"):
        decisions.best_threshold(scores, target)
    threshold = decisions.best_threshold(scores, target, mask=~scores.isnan())
    assert threshold.item() == pytest.approx(0.5)


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


@pytest.mark.parametrize(
    "decide", [decisions.dataset_jaccard_labels, decisions.greedy_jaccard_labels]
)
def test_what_does_not_count_changes_no_label(decide):
    logits, _ = drawn_maps(0, n=200)
    p = logits.softmax(1)
    mask = torch.arange(200).unsqueeze(0) < 120
    found = decide(p, mask=mask)
    assert torch.equal(found[:, :120], decide(p[..., :120]))
    assert torch.equal(found[:, 120:], p[..., 120:].argmax(1))
    assert torch.equal(decide(p, mask=mask.long()), found)
    assert decide(p[..., :0]).shape == (1, 0)
    with pytest.raises(ValueError, match="For one class use jaccard_mask"):
        decide(p[:, :1])


@pytest.mark.parametrize(
    "decide", [decisions.dataset_jaccard_labels, decisions.greedy_jaccard_labels]
)
def test_labels_are_of_probabilities(decide):
    logits, _ = drawn_maps(0, n=50)
    for wrong in (logits, torch.full_like(logits, math.nan)):
        with pytest.raises(ValueError, match=r"`probabilities` must be in \[0, 1\].*softmax\(1\)"):
            decide(wrong)
    p = logits.softmax(1)
    mask = torch.arange(50).unsqueeze(0) < 40
    garbage = torch.where(mask.unsqueeze(1), p, 7.0)
    assert torch.equal(decide(garbage, mask=mask)[:, :40], decide(p, mask=mask)[:, :40])
    assert torch.equal(decide(p.requires_grad_()), decide(p.detach()))


def ratios(p, label):
    """The mean of E[intersection] / E[union] of a labelling, in loops."""
    total = 0.0
    for c in range(len(p[0])):
        hits = sum(q[c] for q, y in zip(p, label) if y == c)
        union = sum(q[c] for q in p) + sum(y == c for y in label) - hits
        total += hits / union if union else 0.0
    return total / len(p[0])


def check_no_single_change_is_better(decide, p):
    """Law of the greedy rule: a local maximum, not below argmax."""
    rows, found = p[0].T.tolist(), decide(p)[0].tolist()
    value = ratios(rows, found)
    assert value >= ratios(rows, p[0].argmax(0).tolist()) - 1e-12
    for i, c in itertools.product(range(len(found)), range(len(rows[0]))):
        assert value >= ratios(rows, [*found[:i], c, *found[i + 1 :]]) - 1e-9
    return value


@given(seed=seeds)
def test_greedy_ends_where_no_single_change_is_better(seed):
    logits, _ = drawn_maps(seed, n=8, classes=3)
    check_no_single_change_is_better(decisions.greedy_jaccard_labels, logits.softmax(1))


def test_greedy_is_close_to_the_best_of_all_labellings():
    """Of 40 drawn sets of six pixels it finds the best labelling of most, and 95 % at least."""
    found, best = [], []
    for seed in range(40):
        p = drawn_maps(seed, n=6, classes=3)[0].softmax(1)
        rows = p[0].T.tolist()
        found.append(ratios(rows, decisions.greedy_jaccard_labels(p)[0].tolist()))
        best.append(max(ratios(rows, y) for y in itertools.product(range(3), repeat=6)))
    shares = [value / top for value, top in zip(found, best)]
    assert max(shares) <= 1 + 1e-12
    assert min(shares) > 0.95
    assert sum(share > 1 - 1e-9 for share in shares) >= 30


def test_masks_that_cannot_be_read_are_bool():
    """A decision has no NaN to say that the mask held other values than 0 and 1."""
    p = torch.rand(1, 2, 4)
    for decide, x in (
        (decisions.jaccard_mask, p[0]),
        (decisions.dice_mask, p[0]),
        (decisions.dataset_jaccard_labels, p),
        (decisions.greedy_jaccard_labels, p),
    ):
        mask = torch.full((len(x), 4), 2)
        with pytest.raises(ValueError, match="`mask` must be 0 or 1"):
            decide(x, mask=mask)
        run = torch.vmap(lambda x, m, decide=decide: decide(x, mask=m))
        with pytest.raises(TypeError, match=r"`mask` must be bool if .*mask > 0"):
            run(x.unsqueeze(0), mask.unsqueeze(0))


@given(seed=seeds)
def test_offsets_never_fall_and_usually_gain(seed):
    logits, label = drawn_maps(seed, n=60)
    shifted = logits + torch.tensor([1.0, 0.0, -1.0, 0.0]).view(-1, 1)
    offsets = decisions.class_offsets(shifted, label)
    before, after = shifted.argmax(1), (shifted + offsets.view(-1, 1)).argmax(1)
    present = label.unique().tolist()
    mean = lambda x: metrics.jaccard_index(x, label, num_classes=4, classes=present)  # noqa: E731
    assert mean(after) >= mean(before) - 1e-12


def test_offsets_never_fall_between_quantiles():
    """With more pixels than quantiles those between two are not taken along."""
    for seed in range(31):
        generator = torch.Generator().manual_seed(seed)
        logits, noise = torch.randn(2, 1, 3, 5000, dtype=torch.float64, generator=generator)
        label = (logits + noise / 5).argmax(1)  # so that there is little to gain
        chosen = (logits + decisions.class_offsets(logits, label).view(-1, 1)).argmax(1)
        before = mean_iou(logits.argmax(1), label, classes=3)
        assert mean_iou(chosen, label, classes=3) >= before - 1e-12


def test_offsets_of_infinite_logits():
    """They decide their pixels, and say nothing of the offset of the others."""
    inf = math.inf
    logits = torch.tensor([[[1.0, 1, 1, 1], [0, 0.8, 0.9, -inf]]])
    label = torch.tensor([[1, 1, 1, 0]])
    for more in ([], [[inf, inf], [-inf, -inf], [inf, 0], [-inf, 0]]):
        x = torch.cat([logits, torch.tensor(more).reshape(1, -1, 2).mT], -1)
        y = torch.cat([label, x[..., 4:].argmax(1)], -1)
        offsets = decisions.class_offsets(x, y)
        assert offsets.isfinite().all()
        assert torch.equal((x + offsets.view(-1, 1)).argmax(1), y)
    only = torch.tensor([[[inf, -inf], [0.0, 0.0]]])
    assert decisions.class_offsets(only, torch.tensor([[0, 0]])).tolist() == [0.0, 0.0]


def test_offsets_of_nan():
    logits, label = drawn_maps(1, n=40)
    logits[0, 1, 3] = math.nan
    with pytest.raises(ValueError, match="`logits` must be without NaN; got NaN in 1 pixels"):
        decisions.class_offsets(logits, label)
    label[0, 3] = -100
    assert decisions.class_offsets(logits, label, ignore_index=-100).isfinite().all()


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


# ---- wrong versions ------------------------------------------------------------------------------


def rejects(check, *args):
    try:
        check(*args)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("mistake", ["half", "expected size", "ratio"])
@pytest.mark.parametrize("dice", [False, True])
def test_other_masks_are_not_the_best(mistake, dice):
    """0.5; the expected size; the best ratio of expectations."""

    def chosen(p):
        p, order = p.sort(descending=True)
        k = torch.arange(1, len(p) + 1)
        hits = p.cumsum(0)
        size = {
            "half": (p > 0.5).sum(),
            "expected size": p.sum().round(),
            "ratio": (2 * hits / (k + p.sum()) if dice else hits / (k + p.sum() - hits)).argmax()
            + 1,
        }[mistake]
        return torch.zeros(len(p)).scatter(0, order[: int(size)], 1.0).int().tolist()

    worse = 0
    for seed in range(40):
        p = torch.rand(6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) ** 2
        every = itertools.product((0, 1), repeat=6)
        best = max(expected(p.tolist(), a, dice) for a in every)
        worse += expected(p.tolist(), chosen(p), dice) < best - 1e-12
    assert worse > 0


@pytest.mark.parametrize("metric", ["fbeta", "jaccard", *GIVEN])
@pytest.mark.parametrize("mistake", ["half", "on the score", "optimistic ties"])
def test_wrong_thresholds_are_rejected(metric, mistake, monkeypatch):
    """A fixed one; the last score that should count itself, which `>` leaves out; a cut through a
    tied group.
    """
    right = decisions.best_threshold

    def wrong(scores, target, **options):
        if mistake == "half":
            return torch.tensor(0.5)
        if mistake == "on the score":
            cut = right(scores, target, **options)
            above = scores[scores > cut]
            return above.min() if len(above) else cut
        return right(scores + 1e-3 * target.double(), target, **options)

    monkeypatch.setattr(decisions, "best_threshold", wrong)
    law = test_no_threshold_is_better.hypothesis.inner_test
    assert any(rejects(law, metric, seed) for seed in range(30))


def test_argmax_is_not_greedy():
    maps = (drawn_maps(seed, n=8, classes=3)[0].softmax(1) for seed in range(20))
    argmax = lambda p: p.argmax(1)  # noqa: E731
    assert any(rejects(check_no_single_change_is_better, argmax, p) for p in maps)


def test_offsets_of_another_sign_are_rejected(monkeypatch):
    right = decisions.class_offsets
    monkeypatch.setattr(decisions, "class_offsets", lambda *a: -right(*a))
    law = test_offsets_never_fall_and_usually_gain.hypothesis.inner_test
    assert any(rejects(law, seed) for seed in range(20))
