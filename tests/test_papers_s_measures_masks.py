"""Masks of the S-measures: what their trainings see and measure, and the formulas of the table."""

from math import sqrt

import pytest
import torch
from torch import nn

import evalgrad as eg
from evalgrad_lab.data.dataset import Dataset, Part, Sizes
from evalgrad_lab.data.embedded.digits import digit_scenes
from evalgrad_lab.fit import Hook, scores_of
from evalgrad_lab.tune import Tuned
from reproductions.bases import Base
from reproductions.data_sets import SCENES
from reproductions.s_measures import mask_training, masks, one_class
from reproductions.s_measures.literal import PRIMAL_STEP
from reproductions.s_measures.mask_training import BATCH, course, fine_tune_scenes, pixel_loss
from reproductions.s_measures.sized import Sized, noisy_foreground
from reproductions.s_measures.training import adam, trained
from reproductions.training import seeded

RATE, EPOCHS, IMAGES = 0.01, 2, 40  # two batches, and eight images that fill none


def network():
    """Small, with a trunk that foreground and size share."""
    build = (nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 1, 1), eg.SizeHead(4))
    return Sized(*build)


def drawn():
    """Scenes, and what is a large one."""
    split = noisy_foreground(0, Sizes(IMAGES, 6, 8))
    return split, eg.SizeLabels().fit(split.train.target)


def weights_after(alpha, solver):
    """Those of the trunk and of the head that tells the foreground."""
    model = seeded(0, network)
    course(model, *drawn(), alpha, solver, adam(RATE, seed=0), EPOCHS)
    return [*model.trunk.parameters(), *model.head.parameters()]


def same(some, others):
    return all(torch.equal(one, other) for one, other in zip(some, others, strict=True))


@pytest.mark.parametrize("solver", ["ratio", "lagrangian", "paper"])
def test_the_size_moves_the_network_of_masks_unless_alpha_is_0(solver):
    plain = seeded(0, network)

    def loss(output, batch):
        return pixel_loss(output[0], batch.target)

    trained(plain, loss, (drawn()[0].train, BATCH), adam(RATE, seed=0), EPOCHS, [])
    expected = [*plain.trunk.parameters(), *plain.head.parameters()]
    assert same(weights_after(0.0, solver), expected)
    assert not same(weights_after(0.1, solver), expected)


def test_the_regulariser_sees_the_labels_of_its_images(monkeypatch):
    seen, epochs = [], []

    class Recorder(Hook):
        def __init__(self, labels, alpha, solver):
            assert (labels.tolist(), alpha, solver) == (large.tolist(), 0.1, "paper")

        def loss(self, scores, target, index):
            seen.append((scores.shape, target.tolist(), index.tolist()))
            return 0 * scores.sum()

        def after_epoch(self, training):
            epochs.append(training.epoch)

    monkeypatch.setattr(mask_training, "Regulariser", Recorder)
    split, rule = drawn()
    large = rule(split.train.target)
    course(seeded(0, network), split, rule, 0.1, "paper", adam(RATE, seed=0), EPOCHS)
    assert len(seen) == EPOCHS * (IMAGES // BATCH)
    assert epochs == [1, 2]
    for shape, labels, index in seen:
        assert shape == (BATCH,)
        assert len(set(index)) == BATCH
        assert labels == [large[at] for at in index]
        assert labels != large[:BATCH].tolist()  # or the line above would hold for the first ones


def covered(*shares):
    """Images of eight pixels without anything to see, and masks of these shares."""
    target = torch.stack([(torch.arange(8) < 8 * share).long() for share in shares])
    return Part(torch.ones(len(shares), 1, 1, 8), target[:, None])


def test_validation_test_and_sizes_are_measured_apart():
    """A network that has seen nothing but foreground finds it everywhere, so that the IoU of an
    image is its share.
    """
    split = Dataset(covered(*[1.0] * 4), covered(0.125, 0.375), covered(0.25, 0.75, 0.5, 0.875))

    def rule(target):
        return torch.tensor([0, 1, 0, 1])[: len(target)]

    found = course(seeded(0, network), split, rule, 0.0, "ratio", adam(0.1, seed=0), 30)
    assert found["validation"] == pytest.approx(25.0)
    assert len(found["curve"]) == 30
    assert (
        found["test"] == found["curve"][-1] == pytest.approx(100 * (0.25 + 0.75 + 0.5 + 0.875) / 4)
    )
    assert found["by size"] == pytest.approx([37.5, 81.25])
    assert found["large"] == 0.5


def test_scenes_are_trained_further_as_every_way_says(monkeypatch):
    split = digit_scenes(0, Sizes(12, 4, 6))
    base = Base(SCENES, split, SCENES.build({"width": 4}).eval(), 3)
    monkeypatch.setattr(mask_training, "read_base", {"a": base}.get)
    before = scores_of(base.network, split.test.inputs)
    sizes = torch.zeros(3, 4, 4, dtype=torch.int64)
    sizes[0, :3], sizes[1, 0] = 1, 1  # by hand in `test_sizes_come_from_the_masks`

    def record(model, parts, rule, alpha, solver, pace, epochs):
        assert torch.equal(model.scores_of(split.test.inputs), before)  # a copy of the base
        assert torch.equal(parts.train.inputs, split.train.inputs[:8])
        assert torch.equal(parts.train.target, split.train.target[:8])
        assert (parts.validation, parts.test, epochs) == (split.validation, split.test, 2)
        with torch.no_grad():  # the next way must not start from here
            next(model.head.parameters()).zero_()
        steps = (pace.optimiser, pace.schedule, pace.learning_rate, pace.seed)
        return (*steps, alpha, solver, rule(sizes).tolist())

    monkeypatch.setattr(mask_training, "course", record)
    one, other = ({"alpha": a, "solver": "ratio", "volume": v} for a, v in ((0.1, 0.2), (0, 0.3)))
    theirs = {"alpha": 0.5, "solver": "paper", "volume": 0.3}
    ways = {"ours": {"one": one, "other": other}, "theirs": {"theirs": theirs}}
    found = fine_tune_scenes(start="a", **ways, rates=[0.001, 0.003], images=8, epochs=2)
    assert found["ours"] == {
        "one": [("adam", "poly", rate, 4, 0.1, "ratio", [1, 1, 1]) for rate in (0.001, 0.003)],
        "other": [("adam", "poly", rate, 4, 0, "ratio", [0, 0, 1]) for rate in (0.001, 0.003)],
    }
    constant = ("adam", "constant", PRIMAL_STEP, 4, 0.5, "paper", [0, 0, 1])
    assert found["theirs"] == {"theirs": [constant]}
    target = split.test.target
    background = (target == 0).double().mean().item() / len(target.unique())
    assert found["constant"] == pytest.approx(100 * background)
    same_base = eg.metrics.jaccard_index(before.argmax(1), target, num_classes=11)
    assert found["base"] == pytest.approx(100 * same_base.item())


def test_moved_is_the_gain_of_the_last_quarter_over_the_one_before():
    assert one_class.moved([[0, 0, 4, 8]]) == [4]
    long = [9, 9, 9, 9, 1, 3, 4, 8]  # 6 after 2
    assert one_class.moved([long, long[::-1]]) == [4, 0]
    assert one_class.moved([[9, 9, 9, 9, 9, 9, 7, 4]]) == [5.5 - 9]
    assert one_class.moved([[5]]) == [0]  # one epoch, of a tiny run
    assert one_class.moved([[5, 7]]) == [2]


def test_the_course_is_the_late_swing_and_the_distance_of_the_sizes():
    curves = [[90, 10, 4, 6], [90, 10, 5, 5], [90, 10, 1, 2, 3], [7]]
    sizes = [[60.0, 70.0], [75.0, 70.0], [None, 70.0], [60.0, None]]
    results = [{"curve": c, "by size": s} for c, s in zip(curves, sizes, strict=True)]
    found = masks.course_of({"all": Tuned({}, results, []), "last": Tuned({}, results[-1:], [])})
    assert found["swing"]["all"] == pytest.approx([sqrt(2), 0, 1, 0])
    assert found["large - small"]["all"] == [10, 5, 0, 0]
    assert (found["swing"]["last"], found["large - small"]["last"]) == ([0], [0])
