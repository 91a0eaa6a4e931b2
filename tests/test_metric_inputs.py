"""Every metric takes the tensors that users have, and never counts a label that nobody declared."""

from functools import partial

import numpy as np
import pytest
import torch

from evalgrad import metrics

LISTS = {
    "average_precision": metrics.average_precision,
    "ndcg": metrics.ndcg,
    "roc_auc": metrics.roc_auc,
    "pr_auc": metrics.pr_auc,
    "precision_at_recall": partial(metrics.precision_at_recall, recall=0.5),
    "recall_at_precision": partial(metrics.recall_at_precision, precision=0.5),
    "fbeta_score": metrics.fbeta_score,
    "reciprocal_rank": metrics.reciprocal_rank,
    "precision_at_k": partial(metrics.precision_at_k, k=3),
    "recall_at_k": partial(metrics.recall_at_k, k=3),
}
CLASSES = {
    "fbeta_score": metrics.fbeta_score,
    "topk_error": partial(metrics.topk_error, k=2),
    "jaccard_index": lambda x, y, **o: metrics.jaccard_index(x.argmax(1), y, num_classes=4, **o),
}
lists = pytest.mark.parametrize("name", LISTS)
classes = pytest.mark.parametrize("name", CLASSES)


class Image(torch.Tensor):
    """A subclass that keeps itself, as MONAI's and fastai's do."""


def list_batch():
    generator = torch.Generator().manual_seed(1)
    scores = torch.randint(5, (3, 8), generator=generator).float() - 2
    target = torch.randint(2, (3, 8), generator=generator)
    target[:, :2] = torch.tensor([0, 1])
    return scores, target


def class_batch():
    generator = torch.Generator().manual_seed(2)
    return torch.randn(3, 4, 5, generator=generator), torch.randint(4, (3, 5), generator=generator)


@lists
def test_lists_of_every_kind(name):
    metric, (scores, target) = LISTS[name], list_batch()
    expected = metric(scores, target)
    mask = torch.ones_like(scores)
    given = [
        (scores.as_subclass(Image), target.as_subclass(Image)),
        (torch.nn.Parameter(scores), target.bool()),
        (scores, target.float()),
        (scores, target.to(torch.uint8)),
        (scores.half(), target.to(torch.float64)),
        (scores.bfloat16(), target),
        (scores.double().T.contiguous().T, target),
        (scores.unsqueeze(1), target),
    ]
    for x, y in given:
        found = metric(x, y)
        assert type(found) is torch.Tensor
        assert torch.equal(found, expected)
        assert not found.requires_grad
    assert torch.equal(metric(scores, target, mask=mask), expected)


@classes
def test_class_maps_of_every_kind(name):
    metric, (logits, target) = CLASSES[name], class_batch()
    expected = metric(logits, target)
    given = [
        (logits.as_subclass(Image), target.as_subclass(Image)),
        (torch.nn.Parameter(logits), target),
        (logits, target.unsqueeze(1)),
        (logits, target.to(torch.uint8)),
        (logits.double(), target.short()),
    ]
    for x, y in given:
        found = metric(x, y)
        assert type(found) is torch.Tensor
        assert torch.equal(found, expected)
        assert not found.requires_grad
    ignored = torch.where(target == 1, -100, target)
    assert torch.equal(
        metric(logits, ignored, ignore_index=-100), metric(logits, target, ignore_index=1)
    )
    unsigned = torch.where(target == 1, 255, target).to(torch.uint8)
    with pytest.raises(ValueError, match="255"):  # -1 must not wrap to it
        metric(logits, unsigned, ignore_index=-1)


def test_binary_maps_of_every_kind():
    logits, target = torch.randn(3, 1, 4, 4), torch.randint(2, (3, 4, 4))
    options = {"num_classes": 2, "classes": [1], "over": "image"}
    expected = metrics.jaccard_index(logits[:, 0] > 0, target, **options)
    for prediction, labels in (
        (logits > 0, target),
        ((logits > 0).float(), target.float()),
        (logits[:, 0] > 0, target.unsqueeze(1).bool()),
        ((logits > 0).half(), target.as_subclass(Image)),
    ):
        assert torch.equal(metrics.jaccard_index(prediction, labels, **options), expected)
    ignored = torch.where(target == 1, 255.0, target.float())
    found = metrics.jaccard_counts(logits[:, 0] > 0, ignored, num_classes=2, ignore_index=255)
    assert (found[:, 1, [0, 2]] == 0).all()
    assert torch.equal(found[:, 0, 2], (target == 0).flatten(1).sum(1))
    mixed = target.float()
    mixed[0, 0, :3] = torch.tensor([0.0, 1.0, 255.0])
    with pytest.raises(ValueError, match=r"items to ignore, pass ignore_index=255\."):
        metrics.jaccard_index(logits[:, 0] > 0, mixed, num_classes=2)
    with pytest.raises(ValueError, match=r"`prediction` must be 0 or 1, or bool; got the label"):
        metrics.jaccard_index(logits.sigmoid(), target, num_classes=2)
    with pytest.raises(TypeError, match=r"`prediction` must be an integer .*`scores.argmax\(1\)`"):
        metrics.jaccard_index(logits.sigmoid(), target, num_classes=3)


@lists
def test_arrays_get_a_sentence(name):
    scores, target = list_batch()
    with pytest.raises(TypeError, match=rf"{name}: `scores` must be a tensor.*torch.as_tensor"):
        LISTS[name](scores.numpy(), target)
    with pytest.raises(TypeError, match=rf"{name}: `target` must be a tensor.*torch.as_tensor"):
        LISTS[name](scores, target.numpy())


@classes
def test_arrays_beside_class_maps_get_a_sentence(name):
    logits, target = class_batch()
    with pytest.raises(TypeError, match=rf"{name}: `target` must be a tensor.*torch.as_tensor"):
        CLASSES[name](logits, np.asarray(target))


@lists
def test_undeclared_labels_of_lists_are_nan_where_they_cannot_be_read(name):
    metric, (scores, target) = LISTS[name], list_batch()
    target[1, 3] = -1
    with pytest.raises(ValueError, match=r"got the (label|grade) -1"):
        metric(scores, target)
    each = torch.vmap(metric)(scores, target)
    assert each.isnan().tolist() == [False, True, False]
    both = torch.vmap(metric)(scores[None], target[None])
    assert both.isnan().all(), "a mean over a list that is NaN"
    mask = torch.ones_like(target, dtype=torch.bool)
    mask[1, 3] = False
    assert not torch.vmap(lambda *a: metric(*a[:2], mask=a[2]))(scores, target, mask).isnan().any()


@classes
@pytest.mark.parametrize("label", [4, 255, -1])
def test_undeclared_classes_are_nan_where_they_cannot_be_read(name, label):
    metric, (logits, target) = CLASSES[name], class_batch()
    target[1, 3] = label
    with pytest.raises(ValueError, match=f"got the label {label}"):
        metric(logits, target)
    each = torch.vmap(metric)(logits.unsqueeze(1), target.unsqueeze(1))
    assert each.isnan().tolist() == [False, True, False]
    assert not torch.vmap(partial(metric, ignore_index=label))(logits[None], target[None]).isnan()


@pytest.mark.filterwarnings("ignore")  # the compiler's own
@pytest.mark.parametrize("name", ["roc_auc", "jaccard_index"])
def test_undeclared_labels_are_nan_in_a_compiled_metric(name):
    metric = {**LISTS, **CLASSES}[name]
    scores, target = class_batch() if name in CLASSES else list_batch()
    compiled = torch.compile(metric, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(scores, target), metric(scores, target))
    target[0, 0] = 9
    assert compiled(scores, target).isnan()


@pytest.mark.parametrize("over", ["dataset", "image"])
def test_undeclared_predictions_are_nan_where_they_cannot_be_read(over):
    prediction, target = torch.tensor([[[0, 1]], [[1, 9]]]), torch.tensor([[[0, 1]], [[1, 1]]])
    index = partial(metrics.jaccard_index, num_classes=2, over=over)
    assert torch.vmap(index)(prediction, target).isnan().tolist() == [False, True]
    counts = torch.vmap(partial(metrics.jaccard_counts, num_classes=2))(prediction, target)
    assert (counts[1] < 0).all()
    assert metrics.jaccard_from_counts(counts.sum((0, 1))[None]).isnan()
