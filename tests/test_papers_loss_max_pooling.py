"""The experiments on loss max-pooling: what the pieces compute, and verdicts that follow the
numbers.
"""

import pytest
import torch
import torch.nn.functional as F

import evalgrad as eg
from evalgrad_lab.data.dataset import Part, Sizes
from evalgrad_lab.data.fetched import mapped
from reproductions.loss_max_pooling.methods import FIGURE_3, FIGURE_4, TABLE_2
from reproductions.loss_max_pooling.sizes import METHODS, PLAIN, WEIGHTED, pooled
from reproductions.loss_max_pooling.sweeps import TABLE_1, methods
from reproductions.loss_max_pooling.training import (
    BATCH,
    IGNORE,
    UPDATE,
    Course,
    class_ious,
    loss_of,
    mean_iou,
)
from reproductions.loss_max_pooling.weightings import FIGURES, concentration


@pytest.fixture
def batch():
    torch.manual_seed(0)
    target = torch.randint(3, (2, 4, 4))
    target[:, 0] = IGNORE
    return torch.randn(2, 3, 4, 4), target


def test_the_losses_leave_void_pixels_out(batch):
    scores, target = batch
    valid = target != IGNORE
    flat, labels = scores.movedim(1, -1)[valid], target[valid]
    assert torch.allclose(loss_of(PLAIN, target, 3)(scores, target), F.cross_entropy(flat, labels))
    weight = eg.median_frequency_weights(target, num_classes=3, ignore_index=IGNORE)
    weighted = (weight[labels] * F.cross_entropy(flat, labels, reduction="none")).mean()
    assert torch.allclose(loss_of(WEIGHTED, target, 3)(scores, target), weighted)
    by_image = [
        F.cross_entropy(scores[i].movedim(0, -1)[valid[i]], target[i][valid[i]], reduction="none")
        for i in range(2)
    ]
    expected = torch.stack(
        [eg.loss_max_pooling(losses[None], p=1.7, support=0.5) for losses in by_image]
    ).mean()
    assert torch.allclose(loss_of(pooled(p=1.7, support=0.5), target, 3)(scores, target), expected)


def test_iou_is_over_the_classes_that_occur():
    counts = torch.tensor([[3, 4, 3], [0, 0, 0], [1, 1, 2], [0, 5, 0]])  # hit, predicted, true
    assert class_ious(counts) == [75.0, None, 50.0, None]
    assert mean_iou(counts) == pytest.approx(62.5)
    assert mean_iou(counts, torch.tensor([False, True, True, False])) == pytest.approx(50.0)


def test_the_sampler_turns_to_the_class_that_does_badly():
    target = torch.zeros(20, 2, 2, dtype=torch.int64)
    target[0] = 1  # one image has class 1
    course = Course(Part(torch.zeros(20, 1, 2, 2), target), 2, 1.0, 0)
    perfect_at_0 = F.one_hot(torch.zeros_like(target), 2).movedim(-1, 1).float()
    batches = list(course.batches(0))
    assert len(batches) == UPDATE
    for _ in batches:
        course.seen(perfect_at_0, target)
    course.update()
    drawn = next(iter(course.batches(1))).index
    assert len(drawn) == BATCH
    # 1 - IoU is 0.05 for class 0 and 1 for class 1; at random it were 0.05
    assert (drawn == 0).float().mean() > 0.6


def test_the_methods_are_the_two_ingredients_apart_and_together():
    ingredients = {
        name: (method["loss"]["kind"] == "pooled", method["blend"] > 0)
        for name, method in METHODS.items()
    }
    assert ingredients["BASE"] == (False, False)
    assert ingredients["BASE+"] == (False, True)
    assert ingredients["proposed loss only"] == (True, False)
    assert ingredients["LMP"] == (True, True)
    assert methods("default")["p", "1.3"] == methods("default")["support", "0.25"] == METHODS["LMP"]


def test_concentration_of_uniform_weights_is_a_tenth():
    assert concentration([0.01] * 100) == pytest.approx(10)
    assert concentration([0.0] * 99 + [1.0]) == pytest.approx(100)


def test_figures_1_and_2_are_judged_by_their_numbers():
    good = {
        "by p": [30.0, 20.0, 10.0],
        "by support": [50.0, 10.0],
        "fewest at m = n/3": 34,
        "uniform": [1.0, 1.0],
    }
    assert FIGURES.verdict(good).direction == "same"
    assert FIGURES.verdict(good | {"by p": [10.0, 20.0, 30.0]}).direction == "partly"
    assert (
        FIGURES.verdict(
            {"by p": [1.0, 2.0], "by support": [1.0], "fewest at m = n/3": 3, "uniform": [2.0]}
        ).direction
        == "other"
    )


def test_table_1_is_judged_by_its_numbers():
    good = {
        "BASE+": {"": [50.0, 51.0]},
        "p": {"1": [54.0, 55.0], "1.3": [56.0, 57.0], "2.3": [52.0, 53.0]},
        "support": {"0.1": [54.0, 54.0], "0.25": [56.0, 57.0], "0.5": [53.0, 53.0]},
    }
    assert TABLE_1.verdict(good).direction == "same"
    assert TABLE_1.verdict(good | {"BASE+": {"": [53.0, 55.0]}}).direction == "partly"
    reversed_numbers = {
        "BASE+": {"": [60.0, 61.0]},
        "p": {"1": [50.0], "2.3": [55.0]},
        "support": {"0.1": [9.0], "0.25": [8.0]},
    }
    assert TABLE_1.verdict(reversed_numbers).direction == "other"


def test_table_2_is_judged_by_its_numbers():
    order = ["inverse median frequency", "BASE", "BASE+", "proposed loss only", "LMP"]
    rising = {name: [50.0 + 2 * step, 51.0 + 2 * step] for step, name in enumerate(order)}
    falling = {name: [50.0 - 2 * step, 51.0 - 2 * step] for step, name in enumerate(order)}
    assert TABLE_2.verdict({"short": rising, "long": rising}).direction == "same"
    assert (
        TABLE_2.verdict({"short": rising | {"BASE+": [40.0, 41.0]}, "long": rising}).direction
        == "partly"
    )
    assert TABLE_2.verdict({"short": falling, "long": rising}).direction == "other"


def test_figures_3_and_4_are_judged_by_their_numbers():
    assert FIGURE_3.verdict({"pixels": [1, 2, 3], "gains": [3.0, 2.0, 1.0]}).direction == "same"
    assert FIGURE_3.verdict({"pixels": [1, 2, 3], "gains": [1.0, 2.0, 3.0]}).direction == "partly"
    assert FIGURE_3.verdict({"pixels": [1, 2, 3], "gains": [-3.0, -2.0, -1.0]}).direction == "other"
    assert FIGURE_4.verdict({"LMP": [5.0, 6.0], "BASE+": [4.0, 5.0]}).direction == "same"
    assert FIGURE_4.verdict({"LMP": [4.0, 5.0], "BASE+": [5.0, 6.0]}).direction == "other"


def test_land_tiles_are_apart_and_leave_out_what_has_no_label(monkeypatch):
    numbers = torch.arange(64 * 70, dtype=torch.float32).view(64, 70)
    classes = (numbers % 7).long()
    classes[:32, :32] = IGNORE
    monkeypatch.setattr(mapped, "landsat", lambda: (torch.stack([numbers, -numbers]), classes))
    split = mapped.land_tiles(0, Sizes(1, 1, 1))  # of four whole tiles one has no label
    parts = (split.train, split.validation, split.test)
    images, labels = (
        torch.cat([getattr(part, name) for part in parts]) for name in ("inputs", "target")
    )
    assert torch.equal(images[:, 0], -images[:, 1])
    assert torch.equal(images[:, 0] % 7, labels.float())
    assert len(images[:, 0].unique()) == 3 * 32 * 32
