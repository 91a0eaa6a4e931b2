"""What is trained on: parts of a data set, batches, their order, augmentation."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from evalgrad_lab.data.augment import augment
from evalgrad_lab.data.batches import (
    EpochOrder,
    Loading,
    in_order,
    loaded,
    mixed_seed,
    sampled,
    steps_per_epoch,
)
from evalgrad_lab.data.dataset import Column, Examples, Found, Part, set_aside
from evalgrad_lab.data.files import folders
from evalgrad_lab.data.files.read import look_at
from evalgrad_lab.data.samplers import drawing


def rows(count, classes=2, lists=None):
    target = Column([torch.tensor(i % classes) for i in range(count)])
    names = [str(i) for i in range(count)]
    return Examples(Column(list(torch.randn(count, 3))), target, names, lists)


def test_a_split_is_seeded_disjoint_and_keeps_the_shares_of_the_classes():
    examples = rows(50, classes=5)
    train, aside = set_aside(examples, 0.2, seed=1)
    assert sorted(train.names + aside.names, key=int) == examples.names
    assert [sum(int(aside.target[i]) == c for i in range(len(aside))) for c in range(5)] == [2] * 5
    assert set_aside(examples, 0.2, seed=1)[1].names == aside.names
    assert set_aside(examples, 0.2, seed=2)[1].names != aside.names


def test_a_split_keeps_lists_whole_and_never_takes_all_or_nothing():
    train, aside = set_aside(rows(12, lists=[i // 3 for i in range(12)]), 0.25, seed=0)
    assert not set(train.lists) & set(aside.lists)
    assert (len(train), len(aside)) == (9, 3)
    for fraction in (0.01, 0.99):
        assert min(len(part) for part in set_aside(rows(2, classes=1), fraction, seed=0)) == 1


def test_statistics_are_those_of_all_values():
    examples = rows(20)
    values = torch.stack([examples.inputs[i] for i in range(20)]).double()
    mean, std, same = look_at(Path("data"), examples)
    in_one = Examples(values.float(), None, examples.names)
    assert look_at(Path("data"), in_one) == (pytest.approx(mean), pytest.approx(std), same)
    assert mean == pytest.approx(values.mean(0).tolist())
    assert std == pytest.approx(values.std(0, correction=0).tolist())
    assert same
    constant = Examples(
        Column([torch.full((1, 2, 2), 0.3), torch.full((1, 3, 2), 0.3)]), None, ["a", "b"]
    )
    assert look_at(Path("data"), constant) == (pytest.approx([0.3]), [1.0], False)


def test_images_of_8_and_16_bits_and_colours_are_read_in_the_unit_interval(tmp_path):
    Image.fromarray(np.array([[0, 255]], np.uint8)).save(tmp_path / "grey.png")
    Image.fromarray(np.array([[0, 65535]], np.uint16)).save(tmp_path / "deep.png")
    Image.fromarray(np.array([[[0, 51, 255]]], np.uint8)).save(tmp_path / "colour.png")
    for name in ("grey", "deep"):
        assert folders.read_image(tmp_path / f"{name}.png", grey=True).tolist() == [[[0.0, 1.0]]]
    torch.testing.assert_close(
        folders.read_image(tmp_path / "colour.png", grey=False).flatten(), torch.tensor([0, 0.2, 1])
    )


def test_the_order_depends_on_seed_and_epoch_and_the_ranks_share_it():
    shuffled = drawing("uniform", Examples(torch.zeros(10, 1), None), 0, 255)

    def order(epoch, rank=0, ranks=1, seed=0):
        sampler = EpochOrder(10, seed, rank, ranks, shuffled)
        sampler.epoch = epoch
        assert len(sampler) == len(list(sampler))
        return list(sampler)

    assert order(3) == order(3)
    assert len({tuple(turn.unit for turn in order(epoch)) for epoch in range(5)}) == 5
    assert order(0, seed=1) != order(0)
    assert {turn.epoch for turn in order(3)} == {3}
    parts = [order(2, rank, 3) for rank in range(3)]
    # 10 and two again: all ranks take as many steps
    assert [len(part) for part in parts] == [4, 4, 4]
    assert {turn.unit for part in parts for turn in part} == set(range(10))
    assert sorted(turn.number for part in parts for turn in part) == list(range(12))


def test_validation_is_in_order_and_without_repetition():
    parts = [list(EpochOrder(10, 0, rank, 3)) for rank in range(3)]
    assert sorted(turn.unit for part in parts for turn in part) == list(range(10))


def test_steps_per_epoch_are_those_of_the_batches():
    for count, size in ((10, 4), (3, 4), (8, 4)):
        batches = list(loaded(rows(count), Loading(size, seed=0))(0))
        assert len(batches) == steps_per_epoch(rows(count), size, ranks=1)


def test_lists_come_whole_with_their_positions():
    examples = rows(9, lists=[0, 1, 2] * 3)
    first = next(iter(in_order(examples, 2)))
    assert first.index.tolist() == [0, 3, 6, 1, 4, 7]
    assert first.lists.tolist() == [0, 0, 0, 1, 1, 1]
    assert first.target.tolist() == [i % 2 for i in first.index]
    assert next(iter(in_order(rows(9), 2))).lists is None


def test_a_sampler_fills_batches_and_a_new_epoch_begins_anew():
    part = Part(torch.arange(5.0)[:, None], torch.arange(5))
    batches = sampled(part, [3, 1, 4, 1, 0], 2)
    for epoch in range(2):
        assert [batch.target.tolist() for batch in batches(epoch)] == [[3, 1], [4, 1]]


def test_what_is_found_is_completed_to_three_parts_without_overlap():
    data = Found(rows(50, classes=5)).complete(0.2, 0.4, seed=3, split=1)
    assert [len(part) for part in (data.train, data.validation, data.test)] == [20, 10, 20]
    names = data.train.names + data.validation.names + data.test.names
    assert sorted(names, key=int) == [str(i) for i in range(50)]
    other = Found(rows(50, classes=5)).complete(0.2, 0.4, seed=4, split=1)
    assert other.test.names == data.test.names  # another seed, such as a search's, never sees it
    assert other.validation.names != data.validation.names
    assert len(Found(rows(50)).complete(0.2, 0.0, seed=3, split=1).test) == 0
    given = Found(rows(50), rows(7), rows(8)).complete(0.2, 0.4, seed=3, split=1)
    assert [len(part) for part in (given.train, given.validation, given.test)] == [50, 7, 8]


@pytest.mark.parametrize("mode", ["flip", "full"])
def test_image_and_label_map_are_changed_alike_and_always_in_the_same_way(mode):
    label = torch.randint(3, (12, 14)).repeat_interleave(2, 0).repeat_interleave(2, 1)
    image = label[None].float() / 10
    seen = set()
    for seed in range(8):
        change = [
            augment(image, label, torch.Generator().manual_seed(seed), mode, 16, 255)
            for _ in range(2)
        ]
        (first, target), (again, _) = change
        assert torch.equal(first, again)
        assert first.shape == (1, 16, 16)
        assert target.shape == (16, 16)
        if mode == "flip":
            torch.testing.assert_close(first[0] * 10, target.float())
        seen.add(tuple(target.flatten().tolist()))
    assert len(seen) > 4


def test_beyond_the_border_is_void():
    image, target = augment(
        torch.ones(1, 4, 4), torch.ones(4, 4).long(), torch.Generator(), "none", 6, 255
    )
    assert (target == 255).sum() == 36 - 16
    assert torch.equal(image[0] == 1, target == 1)


def test_images_with_a_class_are_moved_not_scaled():
    image = torch.zeros(1, 9, 9)
    image[0, 4, 4] = 1
    places = set()
    for seed in range(40):
        moved, target = augment(
            image, torch.tensor(2), torch.Generator().manual_seed(seed), "full", None, 255
        )
        assert target == 2
        places |= {tuple(place) for place in moved[0].nonzero().tolist()}
    assert len(places) > 10
    assert all(0 <= side <= 8 for place in places for side in place)


def test_seeds_of_different_numbers_differ():
    assert (
        len({mixed_seed(a, b, c) for a in range(10) for b in range(10) for c in range(10)}) == 1000
    )
