"""The stand-in for the direct loss's table 2: boxes, suppression, VOC's AP, pasted objects."""

import pytest
import torch
from test_papers_direct_loss import verdicts

import evalgrad as eg
from evalgrad_lab.data.dataset import Part
from evalgrad_lab.runs import Runs
from evalgrad_lab.store import Store
from reproductions.direct_loss import boxes, detection, objects
from reproductions.direct_loss.boxes import Objects
from reproductions.sizes import SkippedError

SQUARE = torch.tensor([[0.0, 0.0, 10.0, 10.0]])


def shifted(*sideways):
    return torch.cat([SQUARE + torch.tensor([[by, 0.0, by, 0.0]]) for by in sideways])


def on_image(some, difficult):
    image = torch.zeros(len(some), dtype=torch.int64)
    return Objects(some, image, image, torch.tensor(difficult))


def test_overlaps_are_intersection_over_union():
    found = boxes.overlaps(SQUARE, shifted(0.0, 5.0, 10.0, 30.0))[0]
    torch.testing.assert_close(found, torch.tensor([1.0, 5 / 15, 0.0, 0.0]))


def test_the_best_box_suppresses_its_neighbours_and_no_others():
    # 3 and 6 pixels from the best: overlaps of 7/13 and 4/16; the third is suppressed by nobody
    # though the second, itself suppressed, would have covered it
    some, scores = shifted(3.0, 0.0, 6.0), torch.tensor([0.5, 0.9, 0.4])
    image = torch.zeros(3, dtype=torch.int64)
    (kept,) = boxes.detections(some, image, scores[None])
    assert kept.tolist() == [1, 2]
    # boxes of other images do not suppress; all images are ranked together
    (kept,) = boxes.detections(some, torch.tensor([1, 0, 0]), scores[None])
    assert kept.tolist() == [1, 0, 2]


def test_a_second_box_on_an_object_is_an_error_and_a_difficult_one_is_ignored():
    there = on_image(shifted(0.0, 100.0), [False, True])
    ranked = shifted(1.0, 0.0, 100.0, 101.0, 50.0)
    image = torch.zeros(5, dtype=torch.int64)
    assert boxes.hits(ranked, image, there) == [True, False, None, None, False]
    # the same boxes on another image find nothing
    assert boxes.hits(ranked, image + 1, there) == [False] * 5
    assert boxes.hits(ranked, image, there.take(there.label == 7)) == [False] * 5


@pytest.mark.parametrize("seed", range(5))
def test_ap_by_area_is_the_envelope_of_every_ranking(seed):
    generator = torch.Generator().manual_seed(seed)
    right = (torch.rand(30, generator=generator) < 0.4).tolist()
    positives = sum(right) + 3
    precision = [sum(right[: n + 1]) / (n + 1) for n in range(30)]
    recall = [sum(right[: n + 1]) / positives for n in range(30)]

    def best(level):
        return max((p for p, r in zip(precision, recall) if r >= level - 1e-9), default=0.0)

    steps = [(recall[n] - (recall[n - 1] if n else 0.0), recall[n]) for n in range(30)]
    found = boxes.average_precision([*right[:7], None, *right[7:]], positives)
    assert found["area"] == pytest.approx(100 * sum(width * best(r) for width, r in steps))
    assert found["11-point"] == pytest.approx(100 * sum(best(n / 10) for n in range(11)) / 11)


def test_ap_of_a_perfect_ranking_is_100_and_of_nothing_0():
    assert boxes.average_precision([True, True, False], 2) == {"area": 100.0, "11-point": 100.0}
    assert boxes.average_precision([], 2)["area"] == 0.0


@pytest.fixture
def sources(monkeypatch):
    """Photographs of one colour each and a black Earth; a box's features are its mean colours."""
    colours = torch.rand(40, 3, 1, 1, generator=torch.Generator().manual_seed(0)) / 2 + 0.5
    part = Part(colours.expand(-1, -1, 32, 32), torch.arange(40) % 10)
    monkeypatch.setattr(objects, "cifar10", lambda: (part, part))
    monkeypatch.setattr(objects, "earth", lambda: (torch.zeros(3, 80, 90), None))
    monkeypatch.setattr(objects, "features_of", lambda images: images.mean((2, 3)))
    for cached in (objects._sources, objects.pasted):
        cached.cache_clear()
    yield part
    for cached in (objects._sources, objects.pasted):
        cached.cache_clear()


def test_boxes_show_the_objects_that_they_are_labelled_with(sources):
    regions, there = objects.pasted(30)
    assert regions.boxes.shape == (30 * objects.BOXES, 4)
    assert regions.boxes.min() >= 0
    assert regions.boxes.max() <= objects.CANVAS
    assert {1, 2, 3} == set(there.image.bincount().tolist())
    showing = (regions.label >= 0) & (regions.label != objects.NOTHING)
    for at in torch.nonzero(showing)[:, 0].tolist():
        own = there.take((there.image == regions.image[at]) & (there.label == regions.label[at]))
        assert boxes.overlaps(regions.boxes[at : at + 1], own.boxes).max() >= boxes.MATCH
    # what shows an object is brighter than what shows the black Earth
    bright = regions.features.mean(1)
    assert bright[showing].mean() > 2 * bright[regions.label == objects.NOTHING].mean()


def test_small_and_covered_objects_are_difficult(monkeypatch):
    monkeypatch.setattr(objects, "SIDES", (14, 15))
    generator = torch.Generator().manual_seed(0)
    found, difficult = objects.paste(torch.zeros(3, 64, 64), torch.ones(3, 3, 32, 32), generator)
    assert difficult.all()
    monkeypatch.setattr(objects, "SIDES", (64, 65))
    canvas = torch.zeros(3, 64, 64)
    found, difficult = objects.paste(canvas, torch.ones(2, 3, 32, 32), generator)
    assert difficult.tolist() == [True, False]  # the first is covered
    assert found.tolist() == [[0.0, 0.0, 64.0, 64.0]] * 2
    assert canvas.min() == 1


def test_ignored_boxes_move_no_loss():
    scores, label = torch.randn(11, 20), torch.arange(20) % 11
    label[[3, 5]] = objects.IGNORED
    kept = label != objects.IGNORED
    for name, rows in (("softmax", 11), ("logistic", 10), ("ours", 10)):
        whole = detection.box_loss(name, scores[:rows], label)
        without = detection.box_loss(name, scores[:rows, kept], label[kept])
        torch.testing.assert_close(whole, without)


def test_detection_runs_and_is_judged_by_its_numbers(sources, monkeypatch, tmp_path):
    monkeypatch.setattr("reproductions.sizes.place", lambda name: name)
    outcome = detection.DETECTION.run("tiny", Runs(Store(tmp_path)))
    assert all(0 <= value <= 100 for some in outcome.numbers.values() for value in some["area"])
    with pytest.raises(SkippedError, match="--full"):
        detection.DETECTION.run("default", Runs(Store(tmp_path)))
    means = {"ours": 48.0, "softmax": 47.0, "logistic": 45.0, "ours, larger": 49.0}
    good = {name: {"area": [m, m + 0.1, m - 0.05]} for name, m in means.items()}
    assert verdicts(detection.DETECTION, good) == ["found"] * 3
    worse = good | {"ours": {"area": [40.0, 40.1, 39.9]}}
    assert verdicts(detection.DETECTION, worse) == ["not found", "not found", "found"]


def test_an_area_without_repeats_is_close_to_the_plain_ap():
    """VOC's envelope only raises it."""
    scores = torch.randn(50, generator=torch.Generator().manual_seed(0))
    target = (torch.arange(50) % 3 == 0).long()
    ranked = target[scores.argsort(descending=True)].bool().tolist()
    plain = 100 * eg.metrics.average_precision(scores, target).item()
    found = boxes.average_precision(ranked, int(target.sum()))["area"]
    assert plain - 1e-4 <= found < plain + 10
