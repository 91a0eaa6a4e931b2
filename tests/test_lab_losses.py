"""The losses by name: each does what its kind of task asks, and the plain ones equal their
formulas.
"""

import pytest
import torch
import torch.nn.functional as F

from evalgrad_lab import loss_factories
from evalgrad_lab.data.batches import Batch
from evalgrad_lab.data.dataset import Part
from evalgrad_lab.errors import UserError
from evalgrad_lab.given import Given
from evalgrad_lab.loss_factories import make
from evalgrad_lab.losses import KINDS, LOSSES
from evalgrad_lab.phases import on_batches

LABELS = torch.tensor([1, 0, 0, 1, 0, 1, 0, 0])
MARKS = torch.stack([LABELS, 1 - LABELS], 1)
NEEDED = {"weight": [1.0, 2.0, 0.5, 1.0, 1.0, 3.0], "labels": LABELS}
GIVEN = {
    "recall_at_precision": {"precision": 0.9},
    "precision_at_recall": {"recall": 0.8},
    "sensitivity_at_specificity": {"specificity": 0.8},
    "partial_roc_auc": {"max_fpr": 0.3},
}
ROWS = [(name, kind) for name, loss in LOSSES.items() for kind in loss.kinds]


def example(kind):
    """Small scores of random sign, scores that are right with certainty, and targets."""
    if kind == "ranking":
        return 0.01 * torch.randn(8), 20.0 * LABELS - 10, LABELS
    if kind == "multilabel":
        return 0.01 * torch.randn(8, 2), 20.0 * MARKS - 10, MARKS
    shape = (2,) if kind == "classification" else (2, 4, 5)
    if kind == "binary segmentation":
        target = torch.randint(2, shape)
        return 0.01 * torch.randn(shape), 20.0 * target - 10, target
    target = torch.randint(6, shape)
    right = 20.0 * F.one_hot(target, 6).movedim(-1, 1)
    return 0.01 * torch.randn(right.shape), right, target


def loss_of(name, **options):
    needs = LOSSES[name].needs
    return make(
        name, {**({needs: NEEDED[needs]} if needs else {}), **GIVEN.get(name, {}), **options}
    )


@pytest.mark.parametrize(("name", "kind"), ROWS)
def test_every_loss_takes_its_kind_of_task_and_prefers_the_right_side(name, kind):
    unsure, right, target = example(kind)
    unsure.requires_grad_()
    loss = loss_of(name)
    extra = {"index": torch.arange(8)} if LOSSES[name].takes_index else {}
    if kind == "multilabel":
        given = Given(Part(torch.zeros(8, 1), MARKS), 2)
        ours = on_batches(name, GIVEN.get(name, {}), kind, given)
        extra, index = {}, torch.arange(8)

        def loss(scores, target):
            return ours(scores, Batch(scores, target, index))

    value = loss(unsure, target, **extra)
    value.backward()
    assert value.shape == ()
    assert unsure.grad.isfinite().all()
    assert unsure.grad.any()
    assert loss(right, target, **extra) < value.detach()


@pytest.mark.parametrize("name", [name for name, kind in ROWS if kind == "multilabel"])
def test_every_label_is_a_task_of_its_own(name):
    """The loss of a multilabel task is the mean of those of its columns, as of rankings."""
    scores = torch.randn(8, 2)
    given = Given(Part(torch.zeros(8, 1), MARKS), 2)
    options, index = GIVEN.get(name, {}), torch.arange(8)
    whole = on_batches(name, options, "multilabel", given)(scores, Batch(scores, MARKS, index))
    if name == "lovasz_hinge":
        parts = [make(name, {"per_image": False})(s, t) for s, t in zip(scores.T, MARKS.T)]
    else:
        parts = []
        for s, t in zip(scores.T, MARKS.T):
            given = Given(Part(torch.zeros(8, 1), t), 2)
            one = on_batches(name, options, "ranking", given)
            parts.append(one(s.contiguous(), Batch(s, t, index)))
    torch.testing.assert_close(whole, torch.stack(parts).mean())


@pytest.mark.parametrize(("name", "kind"), [row for row in ROWS if "segmentation" in row[1]])
def test_ignored_pixels_are_as_if_absent(name, kind):
    scores, _, target = example(kind)
    target[:, 2:] = 255
    loss, changed = loss_of(name, ignore_index=255), scores.clone()
    changed[..., 2:, :] = 9.0
    torch.testing.assert_close(loss(scores, target), loss(changed, target))
    assert loss(scores, torch.full_like(target, 255)) == 0


def test_cross_entropy_is_torchs():
    scores, target, weight = torch.randn(3, 4, 5), torch.randint(4, (3, 5)), [0.5, 1.0, 2.0, 0.0]
    expected = F.cross_entropy(scores, target, weight=torch.tensor(weight), ignore_index=2)
    torch.testing.assert_close(
        loss_factories.cross_entropy(weight=weight, ignore_index=2)(scores, target), expected
    )


def test_binary_losses_equal_their_formulas():
    scores, target = torch.randn(50), torch.randint(2, (50,))
    y = 2.0 * target - 1
    torch.testing.assert_close(
        loss_factories.hinge()(scores, target), torch.relu(1 - y * scores).mean()
    )
    logistic = torch.log1p(torch.exp(-y * scores))
    torch.testing.assert_close(
        loss_factories.bce(positive_weight=3.0)(scores, target),
        (logistic * (1 + 2 * target)).mean(),
    )
    p = torch.sigmoid(scores)
    iou = (p * target).sum() / (p + target - p * target).sum()
    torch.testing.assert_close(
        loss_factories.binary_soft_jaccard()(scores[None], target[None]), 1 - iou
    )


def test_a_sum_weighs_its_parts_and_passes_the_index_on():
    scores, _, target = example("segmentation")
    both = make(
        "cross_entropy+lovasz_softmax", {"share": 0.25, "lovasz_softmax": {"per_image": True}}
    )(scores, target)
    parts = (
        make("cross_entropy", {})(scores, target),
        make("lovasz_softmax", {"per_image": True})(scores, target),
    )
    torch.testing.assert_close(both, 0.75 * parts[0] + 0.25 * parts[1])
    scores, _, target = example("ranking")
    loss = make("bce+f_beta", {"f_beta": {"labels": LABELS}})
    loss(scores, target, index=torch.arange(8))
    assert loss.losses[1].diagnostics()["source"].startswith("cache")
    assert loss.state_dict()  # its cache is saved with the run


def test_every_kind_has_a_baseline_and_a_loss_of_ours():
    for kind in KINDS:
        metrics = {loss.metric for loss in LOSSES.values() if kind in loss.kinds}
        assert "accuracy" in metrics
        assert metrics - {"accuracy", "mean class accuracy"}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("lovas_softmax", {}, "got 'lovas_softmax'. Did you mean lovasz_softmax"),
        ("qqq", {}, "See `evalgrad losses`"),
        ("lovasz_softmax+f_beta", {}, "must be of losses for the same task"),
        ("lovasz_softmax", {"temperature": 1}, "lovasz_softmax does not take the options"),
        ("cross_entropy+lovasz_softmax", {"share": 2}, r"`share` must be in \[0, 1\]"),
        ("cross_entropy+lovasz_softmax", {"per_image": True}, "options of a sum are given by loss"),
    ],
)
def test_a_wrong_name_or_option_is_told(name, options, message):
    with pytest.raises(UserError, match=message):
        make(name, options)
