"""The metrics against counting by hand and against torchmetrics where the definitions coincide."""

import pytest
import torch
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
    assert metrics.jaccard_index(*maps, num_classes=5, classes="all").item() == pytest.approx(
        sum(v if v is not None else 1 for v in everything) / 5
    )
    skipped = metrics.jaccard_index(*maps, num_classes=5, classes="all", absent="skip")
    assert skipped.item() == pytest.approx(sum(v for v in everything if v is not None) / 4)


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
    assert metrics.jaccard_index(
        torch.zeros_like(labels), labels, num_classes=2, ignore_index=255
    ).isnan()
