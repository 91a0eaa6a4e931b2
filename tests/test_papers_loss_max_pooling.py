"""The experiments on loss max-pooling: what the pieces compute, and verdicts that follow the
numbers.
"""

import pytest
import torch
import torch.nn.functional as F

import evalgrad as eg
from evalgrad_lab.data.dataset import Dataset, Part, Sizes
from evalgrad_lab.data.fetched import mapped
from evalgrad_lab.runs import Runs
from evalgrad_lab.store import Store
from reproductions import bases
from reproductions.bases import Base, class_ious
from reproductions.data_sets import SCENES, SHARED
from reproductions.loss_max_pooling import likeness, training
from reproductions.loss_max_pooling.methods import FIGURE_3, FIGURE_4, TABLE_2
from reproductions.loss_max_pooling.sizes import HARDEST, METHODS, PLAIN, SAME, WEIGHTED, pooled
from reproductions.loss_max_pooling.sweeps import TABLE_1, methods
from reproductions.loss_max_pooling.training import UPDATE, Course, loss_of, mean_iou
from reproductions.loss_max_pooling.weightings import FIGURES, concentration


def verdicts(experiment, numbers):
    return [claim.verdict for claim in experiment.judge(numbers)]


def test_the_losses_are_the_papers():
    torch.manual_seed(0)
    target, scores = torch.randint(11, (2, 8, 8)), torch.randn(2, 11, 8, 8)
    pixels = F.cross_entropy(scores, target, reduction="none")
    weight = eg.median_frequency_weights(target, num_classes=11)
    expected = {
        "plain": (PLAIN, pixels.mean()),
        "weighted": (WEIGHTED, (weight[target] * pixels).mean()),
        "hardest": (HARDEST, pixels.flatten(1).topk(16).values.mean()),  # a quarter of each image
        "pooled": (pooled(1.7, 0.5), eg.loss_max_pooling(pixels.flatten(1), p=1.7, support=0.5)),
    }
    for loss, value in expected.values():
        assert torch.allclose(loss_of(loss, target, SCENES)(scores, target), value)


def test_the_losses_leave_out_the_void():
    torch.manual_seed(0)
    target, scores = torch.randint(11, (2, 8, 8)), torch.randn(2, 11, 8, 8)
    void = target.clone()
    void[:, 4:] = 255
    for loss in (PLAIN, WEIGHTED, HARDEST, pooled()):
        whole = loss_of(loss, target[:, :4], SCENES)(scores[:, :, :4], target[:, :4])
        assert torch.allclose(loss_of(loss, void, SHARED)(scores, void), whole)


def test_iou_is_over_the_classes_that_occur():
    counts = torch.tensor([[3, 4, 3], [0, 0, 0], [1, 1, 2], [0, 5, 0]])  # hit, predicted, true
    assert class_ious(counts) == [75.0, None, 50.0, None]
    assert mean_iou(counts) == pytest.approx(62.5)
    assert mean_iou(counts, torch.tensor([False, True, True, False])) == pytest.approx(50.0)


def test_the_sampler_turns_to_the_class_that_does_badly():
    target = torch.zeros(20, 2, 2, dtype=torch.int64)
    target[0] = 1  # one image has class 1
    part = Part(torch.zeros(20, 1, 2, 2), target)
    course = Course(Base(SCENES, Dataset(part, part, part), torch.nn.Identity(), 0), 1.0)
    perfect_at_0 = F.one_hot(torch.zeros_like(target), 11).movedim(-1, 1).float()
    batches = list(course.batches(0))
    assert len(batches) == UPDATE
    for _ in batches:
        course.seen(perfect_at_0, target)
    course.update()
    drawn = next(iter(course.batches(1))).index
    assert len(drawn) == SCENES.batch
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
    good = {"by p": [30.0, 20.0, 10.0], "by support": [50.0, 10.0], "uniform": [1.0, 1.0]}
    good["fewest at m = n/3"] = 34
    assert verdicts(FIGURES, good) == ["found"] * 3
    assert verdicts(FIGURES, good | {"by p": [1.0, 2.0]}) == ["not found", "found", "found"]
    worse = good | {"fewest at m = n/3": 3, "uniform": [2.0]}
    assert verdicts(FIGURES, worse) == ["found", "not found", "not found"]


def scores(mean):
    return [mean, mean + 0.3, mean - 0.1]


LEVEL = {"constant": scores(8.0), "base": scores(70.0), "BASE": scores(70.2)}
LEVEL["likeness"] = [0.9, 0.8, 0.9]
ORDER = ["inverse median frequency", "BASE", "BASE+", "online bootstrapping", "proposed loss only"]


def ranked(step):
    """The methods in the paper's order, `step` points apart; LMP last."""
    return LEVEL | {
        name: [70.2 + step * (at - 1) + noise for noise in (0.0, 0.03, -0.02)]
        for at, name in enumerate([*ORDER, "LMP"])
    }


def test_table_2_is_judged_by_its_numbers():
    assert verdicts(TABLE_2, ranked(0.9)) == ["found"] * 5
    assert verdicts(TABLE_2, ranked(-0.9)) == ["not found"] * 5
    for change in ({"base": scores(60.0)}, {"constant": scores(70.2)}):
        assert set(verdicts(TABLE_2, ranked(0.9) | change)) == {"not testable here"}


def test_table_1_is_judged_by_its_numbers():
    good = {
        "tests": LEVEL,
        "BASE+": {"": scores(70.5)},
        "p": {"1": scores(72.0), "1.3": scores(74.0), "2.3": scores(71.5)},
        "support": {"0.1": scores(72.0), "0.25": scores(74.0), "0.5": scores(71.0)},
    }
    assert verdicts(TABLE_1, good) == ["found"] * 5
    turned = good | {"p": {"1": scores(76.0), "1.3": scores(69.0), "2.3": scores(71.5)}}
    assert verdicts(TABLE_1, turned) == ["not found", "found", "not found", "found", "found"]


def test_figures_3_and_4_are_judged_by_their_numbers():
    def classes(gains):
        # the last class is found by neither
        others = [[40.0] * len(seed) + [0.0] for seed in gains]
        ours = [[40.0 + gain for gain in seed] + [0.0] for seed in gains]
        return {"pixels": [1, 2, 3, 4, 5], "ours": ours, "others": others, "tests": LEVEL}

    rarest = [[3.0, 2.0, 1.0, 0.1], [3.0, 2.0, 1.0, 0.1], [2.0, 3.0, 1.0, 0.1]]
    assert verdicts(FIGURE_3, classes(rarest)) == ["found"] * 2
    harmed = [[-value for value in seed] for seed in rarest]
    assert verdicts(FIGURE_3, classes(harmed)) == ["not found"] * 2
    generator = torch.Generator().manual_seed(0)
    noise = [torch.randn(3, 11, generator=generator).tolist() for _ in range(200)]
    told = [verdicts(FIGURE_3, classes(gains) | {"pixels": list(range(12))}) for gains in noise]
    ranks = [second for _, second in told]
    assert ranks.count("undecided") >= 0.9 * len(ranks)
    assert sum(first == "found" for first, _ in told) <= 0.05 * len(told)
    for lead, verdict in ((1.0, "found"), (-1.0, "not found")):
        course = {"LMP": scores(50.0 + lead), "BASE+": scores(50.0), "tests": LEVEL}
        assert verdicts(FIGURE_4, course) == [verdict]
    moving = course | {"tests": LEVEL | {"base": scores(60.0)}}
    assert verdicts(FIGURE_4, moving) == ["not testable here"]


def test_a_loss_that_is_cross_entropy_times_a_constant_gets_no_verdict():
    same, untold = {"likeness": [1.0, 0.9999, 1.0]}, "not testable here"
    told = verdicts(TABLE_2, ranked(0.9) | same)
    assert told == [untold, untold, "found", "found", untold]  # sampling and weights are told
    course = {"LMP": scores(51.0), "BASE+": scores(50.0), "tests": LEVEL | same}
    assert verdicts(FIGURE_4, course) == [untold]


@pytest.mark.parametrize(("wrong", "alike"), [(3, True), (200, False)])
def test_the_loss_is_like_cross_entropy_where_few_pixels_are_wrong(wrong, alike):
    target = torch.zeros(1, 16, 16, dtype=torch.long)
    scores = torch.zeros(1, 11, 16, 16)
    scores[:, 0] = 30.0  # sure and right, but for the first pixels, which are wrong by degrees
    scores[:, 0].flatten()[:wrong] = torch.linspace(-3, 1, wrong)
    gradients = [
        likeness.gradient(loss, scores, target)
        for loss in (SCENES.loss("loss_max_pooling", p=1.3, support=0.25), F.cross_entropy)
    ]
    assert (likeness.cosine(*gradients) > SAME) == alike


def test_every_method_starts_from_the_base(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "train", lambda network, *rest: network)
    (start,) = bases.with_bases(Runs(Store(tmp_path / "runs")), SCENES, "tiny", [0])
    how = {"method": dict(METHODS["LMP"]), "rates": [0.1, 0.2], "iterations": 1}
    found = training.fine_tune_methods(start=start, **how, moments=1, tiles=False)
    assert [one["test"] for one in found["tuned"]] == [found["base"]] * 2


def test_land_tiles_are_apart_and_leave_out_what_has_no_label(monkeypatch):
    numbers = torch.arange(64 * 70, dtype=torch.float32).view(64, 70)
    classes = (numbers % 7).long()
    classes[:32, :32] = mapped.IGNORE
    monkeypatch.setattr(mapped, "landsat", lambda: (torch.stack([numbers, -numbers]), classes))
    split = mapped.land_tiles(0, Sizes(1, 1, 1))  # of four whole tiles one has no label
    parts = (split.train, split.validation, split.test)
    images, labels = (
        torch.cat([getattr(part, name) for part in parts]) for name in ("inputs", "target")
    )
    assert torch.equal(images[:, 0], -images[:, 1])
    assert torch.equal(images[:, 0] % 7, labels.float())
    assert len(images[:, 0].unique()) == 3 * 32 * 32
