"""The embedded data: shapes, frequencies as formulas, parts that share nothing, the same again for
the same seed.
"""

import math

import pytest
import torch

from evalgrad_lab.data.dataset import Sizes
from evalgrad_lab.data.embedded import digits, points

SMALL = Sizes(60, 20, 30)
GENERATORS = {
    "circles": lambda seed: points.circles(seed),
    "digit scenes": lambda seed: digits.digit_scenes(seed, SMALL),
    "strokes": lambda seed: digits.strokes(seed, SMALL),
    "teacher ranking": lambda seed: points.teacher_ranking(seed, SMALL),
    "linear ranking": lambda seed: points.linear_ranking(seed, SMALL, flipped=0.2),
    "hopeless positives": lambda seed: points.hopeless_positives(seed, SMALL),
    "two modes": lambda seed: points.two_modes(seed, SMALL),
    "noisy digits": lambda seed: digits.noisy_digits(seed),
    "digit table": lambda seed: digits.digit_table(seed),
    "digit pairs": lambda seed: digits.digit_pairs(seed, SMALL, noise=0.5),
    "s-digits": lambda seed: digits.s_digits(seed),
}
SHAPES = {  # of one input and one target
    "circles": ((50, 50), (50, 50)),
    "digit scenes": ((1, 32, 32), (32, 32)),
    "strokes": ((1, 24, 24), (24, 24)),
    "teacher ranking": ((10,), ()),
    "linear ranking": ((10,), ()),
    "hopeless positives": ((10,), ()),
    "two modes": ((10,), ()),
    "noisy digits": ((64,), (10,)),
    "digit table": ((16,), ()),
    "digit pairs": ((128,), ()),
    "s-digits": ((256,), (2,)),
}


def tensors(split):
    return [
        tensor
        for part in (split.train, split.validation, split.test)
        for tensor in (part.inputs, part.target)
    ]


@pytest.mark.parametrize("name", GENERATORS)
def test_shapes_and_dtypes(name):
    split = GENERATORS[name](0)
    for part in (split.train, split.validation, split.test):
        assert (part.inputs.shape[1:], part.target.shape[1:]) == SHAPES[name]
        assert len(part.inputs) == len(part.target) == len(part)
        assert (part.inputs.dtype, part.target.dtype) == (torch.float32, torch.int64)
        assert part.inputs.isfinite().all()


@pytest.mark.parametrize("name", GENERATORS)
def test_the_seed_decides(name):
    first, again, other = (tensors(GENERATORS[name](seed)) for seed in (3, 3, 4))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])


@pytest.mark.parametrize("name", [name for name in GENERATORS if name != "circles"])
def test_parts_share_no_example(name):
    split = GENERATORS[name](0)
    rows = [part.inputs.flatten(1) for part in (split.train, split.validation, split.test)]
    joined = torch.cat(rows)
    assert len(joined.unique(dim=0)) == sum(len(row.unique(dim=0)) for row in rows)


def test_pools_are_a_partition_of_the_glyphs():
    parts = digits.pools(5)
    assert tuple(map(len, parts)) == digits.POOLS
    joined, whole = (
        torch.sort(images.flatten(1).sum(1))[0]
        for images in (torch.cat([p.inputs for p in parts]), digits.glyphs().inputs)
    )
    assert torch.equal(joined, whole)


def test_circles_have_the_area_and_the_features_asked_for():
    split = points.circles(1, radii=(5, 20))
    inside = split.train.target.bool()
    radii = torch.linspace(5, 20, 10)
    assert torch.allclose(inside.sum((1, 2)) / (math.pi * radii**2), torch.ones(10), atol=0.1)
    for member, mean in ((inside, 0.5), (~inside, -0.5)):
        features = split.train.inputs[member]
        assert abs(features.mean() - mean) < 5 / math.sqrt(len(features))
        assert abs(features.std() - 1) < 5 / math.sqrt(len(features))


def test_the_tail_of_the_classes_is_exponential():
    chances = digits.class_chances(9.0)
    assert torch.allclose(chances[:-1] / chances[1:], torch.full((9,), 9 ** (1 / 9)))
    assert chances.sum() == pytest.approx(1)


def test_scenes_follow_the_class_chances_and_use_only_the_glyphs_given():
    pool = digits.pools(0)[0]
    part = digits.scenes(pool, 400, torch.Generator().manual_seed(0), canvas=32, tail=9.0)
    present = torch.stack([(part.target == c).flatten(1).any(1).float().mean() for c in range(11)])
    assert present[0] == 1
    number = torch.arange(1, 4)[:, None]
    # one to three digits, each number as often
    expected = (1 - (1 - digits.class_chances(9.0)) ** number).mean(0)
    assert (present[1:] - expected).abs().max() < 5 * math.sqrt(0.25 / 400)
    threes = pool.target == 3
    alone = digits.scenes(
        digits.Part(pool.inputs[threes], pool.target[threes]),
        20,
        torch.Generator(),
        canvas=32,
        tail=9.0,
    )
    assert set(alone.target.unique().tolist()) == {0, 4}


def test_strokes_are_thin_and_noisy():
    clean = digits.strokes(0, Sizes(200, 1, 1), noise=0.0).train
    assert torch.equal(clean.inputs[:, 0], clean.target.float())
    assert 0.02 < clean.target.float().mean() < 0.25
    noisy = digits.strokes(0, Sizes(200, 1, 1)).train
    assert (noisy.inputs[:, 0] - noisy.target).std() == pytest.approx(1, abs=0.02)


def test_a_fifth_of_the_teachers_points_is_positive():
    split = points.teacher_ranking(0, Sizes(2000, 500, 1500), positives=0.2)
    target = torch.cat([split.train.target, split.validation.target, split.test.target])
    assert target.sum() == 0.2 * 4000


@pytest.mark.parametrize("flipped", [0.0, 0.2])
def test_linear_ranking_turns_round_the_share_asked_for(flipped):
    split = points.linear_ranking(0, Sizes(600, 200, 200), flipped=flipped)
    inputs, target = (
        torch.cat([getattr(p, key) for p in (split.train, split.validation, split.test)])
        for key in ("inputs", "target")
    )
    assert ((inputs.sum(1) > 0) != target.bool()).sum() == flipped * 1000


def test_hopeless_positives_are_where_they_are_said_to_be():
    part = points.hopeless_positives(0, Sizes(20_000, 1, 1)).train
    positive, axis = part.target == 1, part.inputs[:, 0]
    far = axis < -2.5  # N(-4, 1) with chance 0.93, N(0, 1) with 0.006, N(2, 1) with none
    wrong_side, normal = (
        torch.special.ndtr(torch.tensor(1.5)),
        torch.special.ndtr(torch.tensor(-2.5)),
    )
    expected = {True: 0.03 * wrong_side, False: 0.9 * normal}
    for kind, share in expected.items():
        assert abs(((positive == kind) & far).float().mean() - share) < 5 * math.sqrt(
            share / 20_000
        )
    assert abs(positive.float().mean() - 0.1) < 5 * math.sqrt(0.09 / 20_000)


def test_two_modes_lie_on_two_axes_and_decoys_beyond_one_of_them():
    part = points.two_modes(0, Sizes(20_000, 1, 1)).train
    positive = part.target == 1
    assert abs(positive.float().mean() - 0.31) < 5 * math.sqrt(0.25 / 20_000)
    beyond = part.inputs[:, 1] > 5.5
    assert (~positive & beyond).sum() > 4 * (positive & beyond).sum()


def test_swapping_keeps_the_frequencies_and_turns_round_the_share_asked_for():
    clean, noisy = (digits.noisy_digits(0, swapped=share) for share in (0.0, 0.4))
    for part in ("train", "validation"):
        before, after = getattr(clean, part).target, getattr(noisy, part).target
        members = before.sum(0)
        assert torch.equal(after.sum(0), members)
        assert torch.equal(((before == 1) & (after == 0)).sum(0), torch.round(0.4 * members).long())
    assert torch.equal(clean.test.target, noisy.test.target)
    assert torch.equal(clean.test.target.sum(1), torch.ones(len(clean.test), dtype=torch.int64))


@pytest.mark.parametrize("noise", [0.0, 0.5, 1.0])
def test_label_noise_stays_within_the_group(noise):
    target = torch.arange(100).repeat(100)
    noisy = digits.within_group(target, noise, torch.Generator().manual_seed(0))
    assert torch.equal(noisy // 5, target // 5)
    changed = (noisy != target).float().mean()
    assert abs(changed - 0.8 * noise) <= 5 * math.sqrt(0.25 / 10_000) * (noise > 0)


def test_pairs_show_their_class_and_tests_are_clean():
    clean, noisy = (digits.digit_pairs(0, SMALL, noise=noise) for noise in (0.0, 1.0))
    assert torch.equal(clean.test.target, noisy.test.target)
    assert not torch.equal(clean.train.target, noisy.train.target)
    pool = digits.pools(0)[2]
    left = clean.test.inputs.view(-1, 8, 16)[:, :, :8] / 3 + 0.3
    match = torch.cdist(left.flatten(1), pool.inputs.flatten(1)).argmin(1)
    assert torch.equal(pool.target[match], clean.test.target // 10)


def test_s_digits_are_large_where_their_foreground_is_above_the_mean():
    split = digits.s_digits(0)
    ink = [(p.inputs / 3 + 0.3 > digits.INK).sum(1).double() for p in (split.train, split.test)]
    for size, part in zip(ink, (split.train, split.test)):
        assert torch.equal(part.target[:, 1] == 1, size > ink[0].mean())
    # twice the size has four times the area, and half of the images are so
    small, large = split.train.inputs.chunk(2)
    assert (large / 3 + 0.3).sum() / (small / 3 + 0.3).sum() == pytest.approx(4, abs=0.3)
    assert torch.equal(*split.train.target[:, 0].chunk(2))


def test_the_table_is_imbalanced_as_the_digits_are():
    split = digits.digit_table(0, digit=8)
    positives = sum(int(part.target.sum()) for part in (split.train, split.validation, split.test))
    assert positives == int((digits.glyphs().target == 8).sum())
