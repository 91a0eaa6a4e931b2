"""Shapes and labels that would silently mean something else are refused, with advice that is right
when followed: these tests follow it.
"""

import inspect
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from signatures import CLASS_MAPS, LIST_METRICS, RANKINGS, SAMPLES, names

import evalgrad as eg
from evalgrad import metrics

torch.manual_seed(0)
LOGITS, LABELS = torch.randn(2, 3, 8, 8), torch.randint(3, (2, 8, 8))
SCORES, BITS = torch.randn(4, 6, 6), torch.randint(2, (4, 6, 6))
LISTS, RELEVANT = torch.randn(3, 8), torch.tensor([[1, 0] * 4] * 3)


def learns(loss, scores, *args, **options):
    """The gradient of the loss is finite and not all zero: the advice trains something."""
    x = scores.detach().clone().requires_grad_()
    value = loss(x, *args, **options)
    value.backward()
    return bool(value.isfinite() and x.grad.isfinite().all() and (x.grad != 0).any())


def advice(match, call, **tensors):
    """The message of a call says this; what its last words in code evaluate to."""
    with pytest.raises(ValueError, match=match) as error:
        call()
    return eval(str(error.value).split("`")[-2], {"F": F, "torch": torch, **tensors})


# ---- axes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [*RANKINGS, *LIST_METRICS], ids=names)
def test_lists_of_one_item_need_an_explicit_axis(loss):
    scores, target = torch.randn(6, 1), torch.tensor([[1], [0], [1], [0], [1], [0]])
    with pytest.raises(ValueError, match=r"`scores` must be lists of items; got .* pass dim=0"):
        loss(scores, target)
    assert loss(scores, target, dim=0) == loss(scores[:, 0], target[:, 0])
    loss(scores, target, dim=-1)
    if loss in RANKINGS:
        assert loss(scores[:1], target[:1]) >= 0  # one list by itself stays what it is
    several = torch.stack([scores, -scores])
    with pytest.raises(
        ValueError, match=r"the 6 items in dim -2 pass dim=-2; .* all 12 .* flatten"
    ):
        loss(several, target.expand(2, -1, -1))
    labels = target[:, 0].expand(2, -1)
    assert loss(several, labels.unsqueeze(-1), dim=-2) == loss(several[..., 0], labels)


def test_images_of_one_pixel_need_an_explicit_group():
    """Of a table of items, (N,) or (N, 1), the hinge would make N groups of one pixel."""
    scores, target = torch.randn(6), torch.tensor([1, 0, 1, 0, 1, 0])
    whole = eg.lovasz_hinge_loss(scores.unsqueeze(0), target.unsqueeze(0))
    for x, y in ((scores, target), (scores.unsqueeze(1), target), (scores, target.unsqueeze(1))):
        for loss in (eg.lovasz_hinge_loss, eg.LovaszHingeLoss()):
            with pytest.raises(ValueError, match=r"6 images of one pixel.* pass per_image=False"):
                loss(x, y)
        assert eg.lovasz_hinge_loss(x, y, per_image=False) == whole
        each = eg.lovasz_hinge_loss(x, y, per_image=True, reduction="none")
        assert torch.equal(each, (1 - scores * (2 * target - 1)).relu())
    with pytest.raises(ValueError, match=r"6 images of one pixel"):
        eg.lovasz_hinge_loss(torch.randn(6, 3), torch.ones(6, 3), per_class=True)


@pytest.mark.parametrize("loss", [*CLASS_MAPS, *SAMPLES, metrics.topk_error], ids=names)
def test_channels_on_the_last_axis(loss):
    """As Hugging Face's token logits (N, T, C), and images (N, H, W, C)."""
    options = {} if loss in CLASS_MAPS else {"k": 2}
    for shape in ((2, 10, 5), (2, 8, 6, 4)):
        x, target = torch.randn(shape), torch.randint(4, shape[:-1])
        moved = advice(
            "in the last dimension", lambda x=x, y=target: loss(x, y, **options), logits=x, scores=x
        )
        assert loss(moved, target, **options) == loss(x.movedim(-1, 1), target, **options)


def test_a_channel_on_the_last_axis_of_a_binary_map():
    logits, target = torch.randn(2, 8, 6, 1), torch.randint(2, (2, 8, 6))
    moved = advice(
        "in the last dimension", lambda: eg.lovasz_hinge_loss(logits, target), logits=logits
    )
    assert eg.lovasz_hinge_loss(moved, target) == eg.lovasz_hinge_loss(logits[..., 0], target)


@pytest.mark.parametrize("loss", CLASS_MAPS, ids=names)
def test_one_channel_is_no_softmax(loss):
    has_mode = "mode" in inspect.signature(loss).parameters
    for target in (BITS, torch.zeros_like(BITS)):
        use = 'pass mode="binary"' if has_mode else "use lovasz_hinge_loss"
        with pytest.raises(ValueError, match=f"[Ff]or one channel {use}"):
            loss(SCORES.unsqueeze(1), target)
    other = partial(loss, mode="binary") if has_mode else eg.lovasz_hinge_loss
    assert learns(other, SCORES.unsqueeze(1), BITS)


@pytest.mark.parametrize("loss", CLASS_MAPS, ids=names)
def test_one_hot_targets(loss):
    one_hot = F.one_hot(LABELS, 3)
    if loss.__name__.startswith("soft_"):  # these take them
        torch.testing.assert_close(loss(LOGITS, one_hot.movedim(-1, 1)), loss(LOGITS, LABELS))
        return
    for dtype in (torch.int64, torch.float32, torch.bool, torch.uint8):
        target = one_hot.movedim(-1, 1).to(dtype)
        indices = advice("It is one-hot", lambda t=target: loss(LOGITS, t), target=target)
        assert loss(LOGITS, indices) == loss(LOGITS, LABELS)
        last = one_hot.to(dtype)
        indices = advice("If it is one-hot", lambda t=last: loss(LOGITS, t), target=last)
        assert loss(LOGITS, indices) == loss(LOGITS, LABELS)
    logits = LOGITS.movedim(1, -1)
    match = r"in the last dimension: pass `target\.int\(\)\.argmax\(-1\)`"
    moved = advice(match, lambda: loss(logits, one_hot), logits=logits)
    assert loss(moved, one_hot.int().argmax(-1)) == loss(LOGITS, LABELS)


def test_one_hot_samples():
    scores, target = torch.randn(4, 9), torch.arange(4)
    one_hot = F.one_hot(target, 9).bool()
    indices = advice("one-hot", lambda: eg.smooth_topk_loss(scores, one_hot), target=one_hot)
    assert torch.equal(indices, target)
    row = one_hot[2]
    index = advice("one-hot", lambda: eg.smooth_topk_loss(scores[2], row), target=row)
    assert torch.equal(index, target[2])
    with pytest.raises(ValueError, match=r"one sample is a tensor of shape \(\)"):
        eg.smooth_topk_loss(scores[2], target)


def test_several_classes_per_item_are_not_one_hot():
    several = torch.randint(2, LOGITS.shape)
    several[:, :, 0] = 1
    with pytest.raises(ValueError, match=r"not one-hot.* lovasz_hinge_loss\(per_class=True\)"):
        eg.lovasz_softmax_loss(LOGITS, several)
    assert learns(eg.lovasz_hinge_loss, LOGITS, several, per_class=True)
    with pytest.raises(ValueError, match=r"not one-hot.* a ranking loss with dim=0"):
        eg.smooth_topk_loss(torch.randn(6, 2), torch.tensor([[1, 1], [0, 1], [1, 0]] * 2), k=1)
    labels = torch.tensor([[1, 1], [0, 1], [1, 0]] * 2)
    assert learns(eg.average_precision_hinge_loss, torch.randn(6, 2), labels, dim=0)


@pytest.mark.parametrize("loss", [*CLASS_MAPS, eg.lovasz_hinge_loss], ids=names)
def test_small_logits_are_interpolated(loss):
    binary = loss is eg.lovasz_hinge_loss
    small = torch.randn(2, 1 if binary else 3, 4, 4)
    target = (LABELS > 0).long() if binary else LABELS
    for labels in (target, target.unsqueeze(1)):
        logits = advice("`target` must be of shape", lambda t=labels: loss(small, t), logits=small)
        assert logits.shape[2:] == target.shape[1:]
        assert learns(loss, logits, target)


def test_small_binary_maps_without_a_channel_and_of_several_classes():
    small, target = torch.randn(2, 4, 4), (LABELS > 0).long()
    logits = advice("to the labels: ", lambda: eg.lovasz_hinge_loss(small, target), logits=small)
    assert learns(eg.lovasz_hinge_loss, logits, target)
    several, labels = torch.randn(2, 3, 4, 4), torch.randint(2, (2, 3, 8, 8))
    call = partial(eg.lovasz_hinge_loss, several, labels, per_class=True)
    logits = advice("to the labels: ", call, logits=several)
    assert learns(eg.lovasz_hinge_loss, logits, labels, per_class=True)


def test_several_channels_are_no_binary_map():
    target = (LABELS > 0).long()
    for labels in (target, target.unsqueeze(1)):
        with pytest.raises(
            ValueError, match="3 channels but one label map: use a multi-class loss"
        ):
            eg.lovasz_hinge_loss(LOGITS, labels)
    assert learns(eg.lovasz_softmax_loss, LOGITS, LABELS)


def test_class_indices_are_for_another_mode_of_the_focal_loss():
    for mode in ("binary", "multilabel"):
        for target in (LABELS, LABELS.unsqueeze(1)):
            with pytest.raises(ValueError, match='For class indices pass mode="multiclass"'):
                eg.focal_loss(LOGITS, target, mode=mode)
    assert learns(eg.focal_loss, LOGITS, LABELS, mode="multiclass")


@pytest.mark.parametrize("loss", [eg.direct_jaccard_loss, eg.DirectJaccardLoss], ids=names)
def test_class_indices_are_one_map_per_channel_of_a_direct_loss(loss):
    options = {"dim": (0, 2, 3), "empty": "skip"}
    iou = loss(**options) if isinstance(loss, type) else partial(loss, **options)
    maps = advice("3 channels but one label map", lambda: iou(LOGITS, LABELS), target=LABELS)
    each = [((LOGITS[:, c] > 0) & (c == LABELS)).sum() for c in range(3)]
    union = [((LOGITS[:, c] > 0) | (c == LABELS)).sum() for c in range(3)]
    expected = 1 - sum(a / b for a, b in zip(each, union, strict=True)) / 3
    torch.testing.assert_close(iou(LOGITS, maps), expected)


def test_labels_of_embeddings_are_not_one_hot():
    embeddings, labels = torch.randn(12, 4), torch.arange(12) % 3
    one_hot = F.one_hot(labels)
    for call in (eg.retrieval_average_precision_loss, metrics.retrieval_lists):
        indices = advice("one-hot", lambda f=call: f(embeddings, one_hot), labels=one_hot)
        torch.testing.assert_close(indices.long(), labels)


def test_another_batch_is_not_interpolated():
    for loss in (eg.lovasz_softmax_loss, eg.lovasz_hinge_loss):
        for target in (LABELS[:1], LABELS[:, :, :4].movedim(0, 1)):
            with pytest.raises(ValueError, match="`target` must be of shape") as error:
                loss(LOGITS, target)
            assert "interpolate" not in str(error.value)
    with pytest.raises(ValueError, match="`target` needs one entry per item"):
        eg.lovasz_hinge_loss(SCORES, torch.ones(4, 5, 6))


# ---- scores of classes where there are lists, or predictions -------------------------------------


@pytest.mark.parametrize("loss", [metrics.roc_auc, eg.average_precision_hinge_loss], ids=names)
def test_scores_of_classes_are_no_lists(loss):
    two, target = torch.randn(8, 2), torch.tensor([1, 0] * 4)
    scores = advice("pass their difference", lambda: loss(two, target), scores=two)
    assert loss(scores, target) == loss(two[:, 1] - two[:, 0], target)
    four, target = torch.randn(8, 4), torch.arange(8) % 4
    labels = advice("per class.* and dim=0", lambda: loss(four, target), target=target)
    each = torch.stack([loss(four[:, c], target == c) for c in range(4)])
    torch.testing.assert_close(loss(four, labels, dim=0), each.mean())


def test_masks_of_lists_are_spread():
    kept = torch.tensor([1, 0, 1]) > 0
    for mask, whole in (
        (kept, kept.unsqueeze(1).expand(3, 8)),
        (kept.unsqueeze(1), kept.unsqueeze(1).expand(3, 8)),
        (RELEVANT[0] > 0, (RELEVANT[0] > 0).expand(3, 8)),
    ):
        call = partial(metrics.ndcg, LISTS, RELEVANT, mask=mask)
        spread = advice("`mask` must be of shape", call, mask=mask, scores=LISTS)
        assert torch.equal(spread, whole)
    losses, mask = torch.rand(2, 3, 4), torch.rand(2, 4) < 0.5
    call = partial(eg.loss_max_pooling, losses, mask=mask)
    spread = advice("`mask` must be of shape", call, mask=mask, losses=losses)
    assert torch.equal(spread, mask.unsqueeze(1).expand(2, 3, 4))


def test_scores_are_no_prediction():
    expected = metrics.jaccard_index(LOGITS.argmax(1), LABELS, num_classes=3)
    for scores in (LOGITS, LOGITS.movedim(1, -1)):
        call = partial(metrics.jaccard_index, scores, LABELS, num_classes=3)
        prediction = advice("pass the best class", call, prediction=scores)
        assert metrics.jaccard_index(prediction, LABELS, num_classes=3) == expected
    with pytest.raises(ValueError, match=r"Resize the scores to \(8, 8\) before"):
        metrics.jaccard_index(LABELS[:, :4, :4], LABELS, num_classes=3)
    binary, options = SCORES.unsqueeze(1), {"num_classes": 2}
    expected = metrics.jaccard_index(SCORES > 0, BITS, **options)
    for scores in (binary, binary.sigmoid()):
        call = partial(metrics.jaccard_index, scores, BITS, **options)
        prediction = advice("apply a threshold", call, prediction=scores)
        assert metrics.jaccard_index(prediction, BITS, **options) == expected


# ---- labels --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("low", "high"), [(0, 255), (-1, 1), (0, 7)])
def test_masks_of_two_other_values(low, high):
    target = torch.where(BITS == 1, high, low)
    for dtype in (torch.int64, torch.int16, torch.float32):
        with pytest.raises(ValueError, match="`target > 0`"):
            eg.lovasz_hinge_loss(SCORES, target.to(dtype))
    assert eg.lovasz_hinge_loss(SCORES, target > 0) == eg.lovasz_hinge_loss(SCORES, BITS)
    two = torch.stack([-SCORES, SCORES], 1)
    with pytest.raises(ValueError, match=r"`\(target > 0\)\.long\(\)`"):
        eg.lovasz_softmax_loss(two, target)
    assert eg.lovasz_softmax_loss(two, (target > 0).long()) == eg.lovasz_softmax_loss(two, BITS)


READINGS = (
    ((-1, 1), r"; got the label -1\. The labels are -1 and 1: pass `\(?target > 0"),
    ((-1, -1), "If -1 marks items to ignore, .*; if the labels are -1 and 1, pass `.*> 0"),
    ((-1, 0), "If -1 marks items to ignore, [^;]*$"),
    ((-1, 0, 1), "If -1 marks items to ignore, [^;]*$"),
    ((-100, 0), "If -100 marks items to ignore, [^;]*$"),
    ((0, 255), "If 255 (means|is) .*> 0.*; if it marks items to ignore, "),
    ((255, 255), "If 255 (means|is) .*> 0.*; if it marks items to ignore, "),
    ((0, 1, 255), "If 255 marks items to ignore, "),
)


@pytest.mark.parametrize(("values", "message"), READINGS, ids=str)
def test_labels_that_may_mean_to_leave_out(values, message):
    """Padding must not be trained as negatives: both readings are named unless there is one."""
    target = torch.tensor(values * 12)[:24].reshape(2, 12)
    scores = torch.randn(2, 12)
    with pytest.raises(ValueError, match=message) as error:
        eg.lovasz_hinge_loss(scores, target)
    out = int(str(error.value).split("the label ")[1].split(". ")[0])
    if "ignore," in message:
        assert f"pass ignore_index={out}" in str(error.value)
        eg.lovasz_hinge_loss(scores, target, ignore_index=out)
    with pytest.raises(ValueError, match=message):
        eg.lovasz_softmax_loss(torch.randn(2, 2, 12), target)
    ranking = message.replace("[^;]*$", r"pass a `mask`\.$")
    with pytest.raises(ValueError, match=ranking):
        metrics.average_precision(scores, target)


def test_shares_that_are_labels():
    loss = partial(eg.soft_dice_loss, SCORES, mode="binary")
    shares = torch.rand(SCORES.shape)
    for bad, message in (
        (BITS * 255, "If 255 means positive, pass `target > 0`; if it marks items to ignore"),
        (-100 * BITS, "If -100 marks items to ignore, pass ignore_index=-100"),
        (torch.where(BITS > 0, shares, 255.0), "If 255 marks items to ignore, pass ignore_"),
        (torch.where(BITS > 0, shares, -1.0), "If -1 marks items to ignore, pass ignore_"),
        (SCORES, "If these are scores, apply softmax or sigmoid"),
    ):
        with pytest.raises(ValueError, match=message):
            loss(bad)
    assert loss(BITS * 255 > 0) == loss(BITS)
    assert learns(eg.soft_dice_loss, SCORES, (-SCORES).sigmoid(), mode="binary")
    unlabelled, over = torch.where(BITS > 0, shares, torch.nan), shares + 1e-6
    over[0, 0, 0] = 1.0 + 1e-6
    for bad, message in (
        ((shares * 255).byte(), "If they have another scale, divide by it"),
        (100 * shares + 1e-3, "apply softmax or sigmoid first. If they have another scale"),
        (over, "This is rounding"),
    ):
        repaired = advice(message, lambda t=bad: loss(t), target=bad)
        assert learns(eg.soft_dice_loss, SCORES, repaired, mode="binary")
    with pytest.raises(ValueError, match=r"without a label: pass `mask=~target.isnan\(\)`"):
        loss(unlabelled)
    torch.testing.assert_close(loss(unlabelled, ~unlabelled.isnan()), loss(shares, BITS > 0))


@pytest.mark.parametrize("loss", [eg.soft_dice_loss, eg.soft_jaccard_loss, eg.soft_tversky_loss])
def test_targets_of_the_soft_losses_that_are_of_another_mode(loss):
    expected = loss(LOGITS, LABELS)
    for mode in ("binary", "multilabel"):
        for target in (LABELS, LABELS.unsqueeze(1)):
            with pytest.raises(ValueError, match='For class indices pass mode="multiclass"'):
                loss(LOGITS, target, mode=mode)
    for target in (LABELS.float(), LABELS.float().unsqueeze(1)):
        with pytest.raises(TypeError, match=r"class indices with `target.long\(\)`; soft labels"):
            loss(LOGITS, target)
        assert loss(LOGITS, target.long()) == expected
    one_hot = F.one_hot(LABELS, 3)
    for target in (one_hot, one_hot.float()):
        moved = advice("in the last dimension", lambda t=target: loss(LOGITS, t), target=target)
        torch.testing.assert_close(loss(LOGITS, moved), expected)


def test_labels_to_ignore():
    target = BITS.clone()
    target[:, 0] = 255
    with pytest.raises(ValueError, match="pass ignore_index=255"):
        eg.lovasz_hinge_loss(SCORES, target)
    assert learns(eg.lovasz_hinge_loss, SCORES, target, ignore_index=255)
    classes = LABELS.clone()
    classes[:, 0] = 255
    with pytest.raises(ValueError, match="pass ignore_index=255; if it is a class"):
        eg.lovasz_softmax_loss(LOGITS, classes)
    assert learns(eg.lovasz_softmax_loss, LOGITS, classes, ignore_index=255)
    graded = RELEVANT * torch.arange(1, 9)
    with pytest.raises(ValueError, match=r"pass a `mask`\. Graded .* `target >= 2`"):
        eg.direct_average_precision_loss(LISTS, graded)
    assert learns(eg.average_precision_hinge_loss, LISTS, graded >= 2)
    assert learns(eg.direct_graded_ndcg_loss, LISTS, graded, epsilon=1.0)


def test_more_classes_are_declared_where_they_are():
    labels = torch.tensor([[0, 1, 1]])
    for call in (
        lambda **o: metrics.jaccard_index(labels, labels, **o),
        lambda **o: eg.median_frequency_weights(labels, **o),
        lambda **o: eg.class_presence([(None, labels)], progress=False, **o),
    ):
        with pytest.raises(ValueError, match=r"the label 1.* if it is a class, pass num_classes=2"):
            call(num_classes=1)
        call(num_classes=2)
    prediction = torch.tensor([[0, 1, 7]])
    with pytest.raises(
        ValueError, match=r"`prediction`.*mark them in the target and pass `ignore_index`"
    ):
        metrics.jaccard_index(prediction, labels, num_classes=3)
    ignored = torch.tensor([[0, 1, 255]])
    assert metrics.jaccard_index(prediction, ignored, num_classes=3, ignore_index=255) == 1
