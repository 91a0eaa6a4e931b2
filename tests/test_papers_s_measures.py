"""The S-measures experiments: what the pieces compute, and verdicts that follow the numbers."""

import pytest
import torch

import evalgrad as eg
from evalgrad_lab.data.dataset import Dataset, Part, Sizes
from evalgrad_lab.data.embedded import digits
from evalgrad_lab.data.embedded.digits import INK
from evalgrad_lab.data.fetched import mapped
from evalgrad_lab.models.segnet import SegNet
from evalgrad_lab.models.unet import UNet
from reproductions.s_measures import sized, training
from reproductions.s_measures.digits import BASE, DIGITS, PROJECTIONS
from reproductions.s_measures.literal import LAMBDA_STEP, MU_STEP
from reproductions.s_measures.many_classes import AVERAGE, MANY_CLASSES, THEIRS
from reproductions.s_measures.many_sizes import MANY_SIZES, WAYS
from reproductions.s_measures.mask_training import (
    THRESHOLDS,
    by_size,
    constant,
    majority,
    quality,
)
from reproductions.s_measures.one_class import ONE_CLASS
from reproductions.s_measures.regulariser import Regulariser
from reproductions.s_measures.sized import (
    NOISE,
    Sized,
    digits_of_all_sizes,
    noisy_foreground,
    sized_classifier,
    sized_segnet,
    with_size,
)
from reproductions.s_measures.training import train_digits, train_measure

DIGIT_SETTINGS = {
    "data": "s-digits",
    "seed": 0,
    "project": "epoch",
    "learning_rate": 0.01,
    "epochs": 1,
}


def weights(hidden, alpha, solver):
    return train_digits(hidden=hidden, alpha=alpha, solver=solver, **DIGIT_SETTINGS)["weights"]


@pytest.mark.parametrize("solver", ["ratio", "lagrangian", "paper"])
def test_the_size_node_moves_a_shared_layer_and_nothing_else(solver):
    assert weights(0, 0.01, solver) == weights(0, 0.0, solver)
    assert weights(4, 0.01, solver) != weights(4, 0.0, solver)


def test_projections_are_counted_per_epoch_and_per_step():
    settings = {
        "seed": 0,
        "size": [250, 20, 20],
        "solver": "lagrangian",
        "learning_rate": 0.01,
        "epochs": 2,
    }
    assert train_measure(project="epoch", **settings)["projections"] == 2
    # 250 items in batches of 100, the rest left out
    assert train_measure(project="step", **settings)["projections"] == 2 * 2


def test_the_papers_way_steps_once_per_epoch():
    labels = torch.tensor([1, 1, 0, 0])
    regulariser = Regulariser(labels, 1.0, "paper")
    measure, scores = regulariser.measure, torch.tensor([2.0, -1.0, 0.5, -3.0])
    regulariser.loss(scores, labels, torch.arange(4))
    with torch.no_grad():
        measure.tau.mul_(0.5)
    regulariser.after_epoch(None)
    assert regulariser.projections == 1
    torch.testing.assert_close(measure.mu, torch.tensor(MU_STEP * (0.25 + 0.25 - 1)))
    torch.testing.assert_close(measure.lam, LAMBDA_STEP * (0.25 - scores[:2]))


def test_the_certificate_is_a_bound():
    scores, labels = (
        torch.randn(40, generator=torch.Generator().manual_seed(0)),
        torch.arange(40) % 4 == 0,
    )
    bound = Regulariser(labels, 0.0).certificate(scores, labels)
    assert 0 <= bound <= 100 * eg.metrics.fbeta_score(scores, labels).item()


def test_the_sized_networks_score_images_and_pixels():
    digits, size = sized_classifier(256, 4)(torch.zeros(3, 256))
    assert (digits.shape, size.shape) == ((3, 10), (3,))
    torch.manual_seed(0)
    sized = with_size(UNet(1, 2, 8), 8).eval()
    torch.manual_seed(0)
    plain, images = UNet(1, 2, 8).eval(), torch.randn(2, 1, 16, 24)
    assert torch.equal(sized(images)[0], plain(images))
    torch.manual_seed(0)
    sized = sized_segnet(3, 1).eval()
    torch.manual_seed(0)
    plain, images = SegNet(3, 1, (12, 24, 48)).eval(), torch.randn(2, 3, 24, 32)
    assert torch.equal(sized(images)[0], plain(images))
    assert sized(images)[1].shape == (2,)


def test_one_class_quality_averages_the_papers_thresholds():
    chances = torch.tensor([[0.62, 0.9, 0.5, 0.1]])
    target = torch.tensor([[[1, 1, 0, 0]]])

    logits = torch.logit(chances).view(1, 1, 1, 4)
    fixed = Sized(torch.nn.Identity(), torch.nn.Identity(), torch.nn.Identity())

    by_hand = [
        ((chances > t) & (target[0] == 1)).sum() / ((chances > t) | (target[0] == 1)).sum()
        for t in THRESHOLDS
    ]
    assert quality(fixed, Part(logits, target)) == pytest.approx(100 * sum(by_hand).item() / 3)


def test_sizes_come_from_the_masks():
    masks = torch.zeros(3, 4, 4, dtype=torch.int64)
    masks[0, :3], masks[1, 0] = 1, 1
    # the mean foreground is 16 / 3
    assert eg.SizeLabels().fit(masks)(masks).tolist() == [1, 0, 0]
    # Background and class 1 both cover more than a fifth of the first image: two of two votes.
    assert majority(masks, 0.2).tolist() == [1, 1, 1]
    assert majority(masks, 0.3).tolist() == [0, 0, 1]


def verdicts(experiment, numbers):
    return [claim.verdict for claim in experiment.judge(numbers)]


NAMES = ("baseline", "alpha 0.01")
LOW, HIGH = [93.0, 94.0, 93.4], [95.0, 96.1, 95.4]


def both(base, regularised):
    return dict(zip(NAMES, (base, regularised)))


def experiment_1(**changes):
    return {
        "linear weights": both(["a"], ["a"]),
        "ours": both(LOW, HIGH),
        "course": both(LOW, HIGH),
        "validation": dict.fromkeys(NAMES, 90.0),
        "certificate": both([0.0] * 3, [97.0] * 3),
        "paper's steps": both(LOW, LOW),
    } | changes


def test_experiment_1_is_judged_by_its_numbers():
    assert verdicts(DIGITS, experiment_1()) == ["not found", "found", "found", "undecided"]
    lost = verdicts(DIGITS, experiment_1(ours=both(HIGH, LOW)))
    assert lost == ["not found", "not found", "found", "undecided"]
    assert verdicts(DIGITS, experiment_1(**{"linear weights": both(["a"], ["b"])}))[0] == "found"
    solved = verdicts(DIGITS, experiment_1(certificate=both([0.0] * 3, [100.0] * 3)))
    # not the paper's own steps: they move the network all the same
    assert solved[1:] == ["not testable here", "not testable here", "undecided"]


def test_projections_are_judged_by_their_numbers():
    def way(epoch, step):
        return {"epoch": epoch, "step": step}

    names = ["ratio (no projection)", "corrected, step 0.01", "paper's steps"]
    level, lost = way(LOW, [93.1, 93.9, 93.4]), way([0.0, 0.1, 0.0], LOW)
    numbers = {"accuracy": dict.fromkeys(names, level), "certified F1": dict.fromkeys(names, lost)}
    assert verdicts(PROJECTIONS, numbers) == ["found"] * 2 + ["not found"] * 2
    failed = dict.fromkeys(names, level) | {"paper's steps": way([0.0] * 3, [0.0] * 3)}
    assert verdicts(PROJECTIONS, {"certified F1": failed}) == ["found", "not testable here"]


def masks(regularised, **changes):
    return {
        "ours": both([50.0, 51.0, 50.3], regularised),
        "validation": dict.fromkeys(NAMES, 50.0),
        "paper's steps": both(LOW, LOW),
        "swing": both([2.0, 2.1, 2.2], [1.0, 1.2, 1.1]),
        "large - small": both([9.0, 9.1, 9.2], [5.0, 5.1, 5.3]),
        "moved": [0.2, 0.3, 0.1],
        "moved by the paper's": [-0.2, 0.3, 0.1],
        "constant": [5.0, 5.1, 5.2],
    } | changes


def test_experiment_2_is_judged_by_its_numbers():
    won, lost = masks([53.0, 54.1, 53.3]), masks([48.0, 49.0, 48.4])
    assert verdicts(ONE_CLASS, won) == ["found"] * 3 + ["not found"]  # the paper's +2.4 is excluded
    assert verdicts(ONE_CLASS, lost)[0] == "not found"
    none, far = "not testable here", [4.0, 5.0, 6.0]
    constant = verdicts(ONE_CLASS, masks([53.0, 54.1, 53.3], constant=[50.0, 51.0, 50.3]))
    assert constant[:3] == [none] * 3
    assert verdicts(ONE_CLASS, won | {"moved": far}) == [none] * 3 + ["not found"]
    assert verdicts(ONE_CLASS, won | {"moved by the paper's": far}) == ["found"] * 3 + [none]
    nothing = won | {"paper's steps": both([5.0, 5.2, 5.1], [9.0, 9.2, 9.1])}
    assert verdicts(ONE_CLASS, nothing)[3] == none


def test_experiment_3_is_judged_by_its_numbers():
    theirs = dict(zip(THEIRS, (LOW, [40.0, 41.0, 40.6])))
    numbers = masks([48.0, 49.0, 48.4]) | {"theirs": theirs}
    numbers["ours"][AVERAGE] = [53.0, 54.1, 53.3]
    numbers["swing"][AVERAGE] = numbers["swing"]["alpha 0.01"]
    numbers |= {"middle": "0.07", "base": [50.0, 51.0, 50.3]}
    numbers["large - small"]["0.07"] = numbers["large - small"]["alpha 0.01"]
    one = ["found", "found", "found", "not found", "not found"]
    assert verdicts(MANY_CLASSES, numbers) == one
    still = {name: [score + 0.1 for score in numbers["base"]] for name in numbers["ours"]}
    rest = verdicts(MANY_CLASSES, numbers | {"ours": still})
    assert rest == ["not testable here"] * 4 + ["not found"]  # the paper's steps do move it
    spoilt = verdicts(MANY_CLASSES, numbers | {"moved by the paper's": [-8.0, -7.0, -9.0]})
    assert spoilt == [*one[:-1], "not testable here"]


def many_sizes(paper, two, certificate=80.0):
    names = [BASE, *(f"{way}, alpha {alpha}" for way in WAYS for alpha in (0.01, 0.001))]
    low, high = LOW, [score + gain for score, gain in zip(LOW, (2.0, 2.1, 2.2))]
    scores = dict.fromkeys(names, low)
    scores |= {f"4 sizes, pairwise, alpha {a}": high if paper else low for a in (0.01, 0.001)}
    scores |= {f"two sizes, alpha {a}": high if two else low for a in (0.01, 0.001)}
    return {
        "test": scores,
        "course": scores,
        "validation": dict.fromkeys(names, 90.0) | {"4 sizes, pairwise, alpha 0.001": 91.0},
        "certificate": dict.fromkeys(names, [certificate] * 3),
    }


def test_more_than_two_sizes_are_judged_by_their_numbers():
    def found(*how):
        return [claim.verdict for claim in MANY_SIZES.judge(many_sizes(*how))]

    assert found(True, False) == ["found"] * 3 + ["undecided"] * 3
    assert found(True, True) == ["found"] * 2 + ["undecided", "found"] + ["undecided"] * 2
    assert set(found(True, False, 100.0)) == {"not testable here"}
    (first, *_) = MANY_SIZES.judge(many_sizes(True, False))
    assert first.text.startswith("4 sizes, pairwise, alpha 0.001 is")  # validation chooses it


def test_digits_of_all_sizes_share_no_glyphs_and_draw_each_at_two_sizes():
    """Every image is a glyph of its own pool, at one of nine sizes."""
    split, seen = digits_of_all_sizes(0, 4), []
    for part, pool in zip((split.train, split.validation, split.test), digits.pools(0)):
        sizes = []
        for side in range(8, 17):
            before, after = (16 - side) // 2, (17 - side) // 2
            glyphs = digits.resized(pool.inputs, side)
            sizes.append(torch.nn.functional.pad(glyphs, [before, after] * 2).flatten(1))
        images = (part.inputs / 3 + 0.3).view(2, 1, len(pool), 256)
        alike = (images - torch.stack(sizes)).abs().amax(-1) < 1e-5
        assert (alike.sum(1) == 1).all()
        first, second = alike.int().argmax(1)
        assert len(first.unique()) == len(second.unique()) == 9
        # two draws agree once in nine times
        assert (first == second).double().mean() == pytest.approx(1 / 9, abs=0.05)
        seen.append({glyph.numpy().tobytes() for glyph in pool.inputs})
    assert len(set.union(*seen)) == sum(map(len, seen))


def test_digits_of_all_sizes_share_groups():
    split = digits_of_all_sizes(0, 4)
    assert [len(part) for part in (split.train, split.validation, split.test)] == [2154, 540, 900]
    ink = [(part.inputs / 3 + 0.3 > INK).sum(1) for part in (split.train, split.test)]
    digit, group = split.train.target.T
    assert torch.equal(digit[:1077], digit[1077:])  # every glyph twice
    shares = torch.bincount(group, minlength=4) / len(group)
    assert (shares - 0.25).abs().max() < 0.03
    # the groups are intervals of the foreground, in training and by the same bounds in test
    for size, some in zip(ink, (group, split.test.target[:, 1])):
        for at in range(3):
            assert size[some <= at].max() <= size[some > at].min()
    bounds = [ink[0][group == at].max() for at in range(3)]
    assert all(ink[1][split.test.target[:, 1] == at].max() <= bounds[at] for at in range(3))


@pytest.mark.parametrize("average", ["macro", "micro", "pairwise"])
def test_the_regulariser_tells_more_than_two_sizes_apart(average):
    how = DIGIT_SETTINGS | {"data": "all sizes", "hidden": 8, "solver": "ratio", "groups": 4}
    plain, found = (train_digits(alpha=a, average=average, **how) for a in (0.0, 0.01))
    assert found["weights"] != plain["weights"]
    assert found["f1"] > plain["f1"] + 5
    assert 0 <= plain["certificate"][-1] < found["certificate"][-1] < 100


def test_validation_of_digits_is_not_measured_on_test(monkeypatch):
    """A network that has seen nothing but sevens calls everything one."""

    def part(*digits):
        target = torch.tensor(digits)
        return Part(torch.ones(len(digits), 256), torch.stack([target, target * 0], 1))

    split = Dataset(part(*[7] * 6), part(7, 7, 7, 0), part(7, 1, 2, 3))
    split.train.target[:3, 1] = 1
    monkeypatch.setitem(training.DATA, "sevens", lambda seed, groups: split)
    how = DIGIT_SETTINGS | {"data": "sevens", "learning_rate": 0.1, "epochs": 5}
    found = train_digits(hidden=0, alpha=0.0, solver="ratio", **how)
    assert (found["validation"], found["test"]) == (75, 25)
    assert (len(found["curve"]), found["curve"][-1]) == (5, 25)


def test_the_foreground_of_noisy_scenes_is_that_of_the_clean_ones():
    noisy, clean = noisy_foreground(0, Sizes(6, 2, 2)), digits.digit_scenes(0, Sizes(6, 2, 2))
    for part, source in ((noisy.train, clean.train), (noisy.test, clean.test)):
        assert torch.equal(part.target, (source.target > 0).long())
        assert (part.inputs - source.inputs).std() == pytest.approx(NOISE, rel=0.1)


def test_small_and_large_images_are_judged_apart():
    target = torch.zeros(3, 4, 4, dtype=torch.int64)
    target[0, :3], target[1, 0, 0], target[2, 0, 1] = 1, 1, 1
    logits = torch.where(target == 1, 5.0, -5.0)[:, None]
    logits[1] = -5.0  # one of the two small ones is missed
    fixed = Sized(torch.nn.Identity(), torch.nn.Identity(), torch.nn.Identity())
    part, rule = Part(logits, target), eg.SizeLabels().fit(target)
    assert by_size(fixed, part, rule) == pytest.approx([50.0, 100.0])
    assert by_size(fixed, Part(logits[:1], target[:1]), rule) == [None, pytest.approx(100.0)]
    assert constant(part) == pytest.approx(100 * (12 + 1 + 1) / 16 / 3)


def test_earth_tiles_keep_their_land(monkeypatch):
    tiles = torch.rand(6, 32, 32, 3)
    land = (tiles[..., 1] > 0.5).long()
    found = {"inputs": tiles.numpy(), "target": land.numpy()}
    monkeypatch.setattr(sized.arrays, "earth", lambda lakes: found)
    sized._tiles.cache_clear()
    split = sized.earth_tiles(0, Sizes(3, 2, 1))
    sized._tiles.cache_clear()
    for part in (split.train, split.validation, split.test):
        assert torch.equal((part.inputs[:, 1] / 3 + 0.3 > 0.5).long(), part.target)


def test_s_mnist_adds_the_images_at_double_size(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    part = Part(torch.rand(40, 28, 28, generator=generator), torch.arange(40) % 10)
    monkeypatch.setattr(sized, "images", lambda name: (part, part))
    monkeypatch.setattr(sized, "MNIST_TRAIN", 24)
    monkeypatch.setattr(sized, "MNIST_VALIDATION", 16)
    split = sized.s_mnist(0)
    assert [len(p) for p in (split.train, split.validation, split.test)] == [48, 32, 80]
    pixels, (digit, large) = split.test.inputs.view(80, 28, 28) / 3 + 0.3, split.test.target.T
    assert digit.tolist() == part.target.tolist() * 2
    assert torch.allclose(pixels[40:], part.inputs, atol=1e-6)
    halves = torch.nn.functional.avg_pool2d(part.inputs, 2)
    assert torch.allclose(pixels[:40, 7:21, 7:21], halves, atol=1e-6)
    assert pixels[:40].sum() == pytest.approx(halves.sum().item(), rel=1e-4)
    # a label is the foreground against the mean of the training images
    assert large.tolist() == [0] * 40 + [1] * 40


def test_nucleus_tiles_are_apart_and_keep_their_masks(monkeypatch):
    image = torch.arange(64 * 64, dtype=torch.float32).view(64, 64)
    monkeypatch.setattr(mapped, "nuclei", lambda: (image, (image % 7 == 0).long()))
    split = mapped.nucleus_tiles(0, Sizes(2, 1, 1))
    pixels = torch.cat([part.inputs for part in (split.train, split.validation, split.test)])
    masks = torch.cat([part.target for part in (split.train, split.validation, split.test)])
    values = (pixels[:, 0] * image.std() + image.mean()).round()
    assert sorted(values.flatten().tolist()) == image.flatten().tolist()
    assert torch.equal(masks == 1, values % 7 == 0)
