"""The samplers: visit guarantees, proportions within binomial bounds, shards, resumption,
DataLoader workers, sentences.
"""

import itertools
import math
import sys

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import evalgrad as eg

CLASSES = 5


def table(samples=40, classes=CLASSES, seed=0, density=0.2):
    """A random presence table in which every class occurs, the last one in a single sample."""
    presence = torch.rand(samples, classes, generator=torch.Generator().manual_seed(seed)) < density
    presence[torch.arange(classes) % samples, torch.arange(classes)] = True
    presence[:, -1] = False
    presence[samples - 1, -1] = True
    return presence


def within_binomial_bounds(hits, draws, probability):
    """Six standard deviations: a fair draw misses them once in 10^8 times."""
    return (
        abs(hits - draws * probability)
        <= 6 * math.sqrt(draws * probability * (1 - probability)) + 1
    )


def union(samplers):
    """What the ranks draw together, turn by turn."""
    return list(itertools.chain.from_iterable(zip(*map(list, samplers), strict=True)))


@given(st.integers(1, 60), st.integers(1, 9), st.integers(1, 5), st.integers(0, 5))
def test_equibatch_visits_every_class_in_any_window(samples, classes, world_size, seed):
    presence = table(samples, classes, seed)
    ranks = [
        eg.EquibatchSampler(
            presence, seed=seed, rank=rank, world_size=world_size, num_samples=3 * classes
        )
        for rank in range(world_size)
    ]
    # A turn holds one sample of each rank, in whatever order: windows are cut between turns, also
    # across epochs.
    turns = [turn for _ in range(3) for turn in zip(*map(list, ranks), strict=True)]
    # so many turns contain C consecutive places at least
    width = -(-(classes + world_size - 1) // world_size)
    for start in range(len(turns) - width + 1):
        window = list(itertools.chain.from_iterable(turns[start : start + width]))
        assert presence[window].any(0).all()


def test_equibatch_window_of_one_rank_is_exactly_the_number_of_classes():
    presence = table()
    sampler = eg.EquibatchSampler(presence, num_samples=77)
    stream = [index for _ in range(3) for index in sampler]
    for start in range(len(stream) - CLASSES + 1):
        assert presence[stream[start : start + CLASSES]].any(0).all()


def test_plain_shuffling_breaks_the_guarantee():
    presence = table()
    stream = torch.randperm(len(presence)).tolist()
    assert not all(
        presence[stream[i : i + CLASSES]].any(0).all() for i in range(len(stream) - CLASSES + 1)
    )


def test_equibatch_goes_through_a_class_before_it_repeats():
    presence = torch.eye(3, dtype=torch.bool).repeat_interleave(7, 0)
    stream = list(eg.EquibatchSampler(presence, num_samples=42))
    for c in range(3):
        visits = [index for index in stream if presence[index, c]]
        for half in (visits[:7], visits[7:]):
            assert sorted(half) == presence[:, c].nonzero().flatten().tolist()
        assert visits[:7] != visits[7:]


def test_batches_of_all_ranks_have_every_class():
    presence = table()
    ranks = [
        DataLoader(
            range(40), sampler=eg.EquibatchSampler(presence, rank=r, world_size=2), batch_size=5
        )
        for r in range(2)
    ]
    for batches in zip(*ranks, strict=True):
        assert presence[torch.cat(batches)].any(0).all()


@pytest.mark.parametrize("world_size", [2, 4, 5])
def test_every_rank_meets_every_class(world_size):
    """With a fixed share of the places, a world size that divides the number of classes would
    deprive a rank of some.
    """
    presence = torch.eye(4, dtype=torch.bool)
    for rank in range(world_size):
        assert set(
            eg.EquibatchSampler(presence, num_samples=400, rank=rank, world_size=world_size)
        ) == {0, 1, 2, 3}


@pytest.mark.parametrize("kind", [eg.EquibatchSampler, eg.PerformanceSampler])
@pytest.mark.parametrize("world_size", [2, 3, 7])
def test_shards_are_disjoint_and_complete(kind, world_size):
    """Every place of the stream goes to one rank: together the ranks draw what one process would,
    turn by turn.
    """
    presence = table()
    whole = kind(presence, num_samples=10 * world_size, seed=3)
    ranks = [
        kind(presence, num_samples=10 * world_size, seed=3, rank=r, world_size=world_size)
        for r in range(world_size)
    ]
    assert [len(rank) for rank in ranks] == [10] * world_size
    for _ in range(2):
        alone, together = list(whole), union(ranks)
        for start in range(0, len(alone), world_size):
            assert sorted(together[start : start + world_size]) == sorted(
                alone[start : start + world_size]
            )


@pytest.mark.parametrize("kind", [eg.EquibatchSampler, eg.PerformanceSampler])
def test_uneven_epochs_are_rounded_up(kind):
    assert [len(kind(table(), rank=r, world_size=3)) for r in range(3)] == [14, 14, 14]


@pytest.mark.parametrize("kind", [eg.EquibatchSampler, eg.PerformanceSampler])
@pytest.mark.parametrize("consumed", [0, 1, 13, 39, 40])
def test_resumes_in_the_middle_of_an_epoch(kind, consumed):
    whole = kind(table(), seed=1)
    expected = [list(whole) for _ in range(3)]
    sampler = kind(table(), seed=1)
    assert list(sampler) == expected[0]
    passed = list(itertools.islice(iter(sampler), consumed))
    resumed = kind(table(), seed=1)
    resumed.load_state_dict(sampler.state_dict())
    rest = list(resumed)
    assert (passed + rest if consumed < 40 else passed) == expected[1]
    assert (list(resumed) if consumed < 40 else rest) == expected[2]


@pytest.mark.parametrize("kind", [eg.EquibatchSampler, eg.PerformanceSampler])
def test_a_state_survives_a_checkpoint(kind, tmp_path):
    sampler = kind(table())
    next(iter(sampler))
    torch.save(sampler.state_dict(), tmp_path / "state.pt")
    assert torch.load(tmp_path / "state.pt", weights_only=True) == sampler.state_dict()


@pytest.mark.parametrize("kind", [eg.EquibatchSampler, eg.PerformanceSampler])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_resumes_behind_workers_that_read_ahead(kind):
    expected = list(kind(table()))
    sampler = kind(table())
    loader = DataLoader(range(40), sampler=sampler, batch_size=4, num_workers=2)
    seen = []
    for batch in loader:
        seen += batch.tolist()
        if len(seen) == 12:
            state = sampler.state_dict(consumed=len(seen))
            break
    assert sampler.state_dict()["position"] > state["position"] == 12  # it had read ahead
    resumed = kind(table())
    resumed.load_state_dict(state)
    rest = DataLoader(range(40), sampler=resumed, batch_size=4, num_workers=2)
    assert seen + torch.cat(list(rest)).tolist() == expected


def test_consumed_counts_in_the_epoch_that_the_workers_have_ended():
    sampler = eg.EquibatchSampler(table())
    first, second = list(sampler), list(sampler)
    assert sampler.state_dict(consumed=40) == sampler.state_dict()
    resumed = eg.EquibatchSampler(table())
    resumed.load_state_dict(sampler.state_dict(consumed=30))
    assert list(resumed) == second[30:]
    assert first != second


@pytest.mark.parametrize("kind", [eg.EquibatchSampler, eg.PerformanceSampler])
def test_seed_and_epoch_decide(kind):
    first, again, other = (kind(table(), seed=seed) for seed in (0, 0, 1))
    torch.manual_seed(5)  # the global generators are not asked
    one, two = list(first), list(first)
    assert list(again) == one != list(other)
    assert one != two
    again.set_epoch(1)
    assert list(again) == two
    again.set_epoch(0)
    next(iter(again))
    assert list(again) == one  # a pass that was broken off starts again


def test_performance_blends_half_and_half():
    """Of the draws, half are uniform; the other half go to classes in proportion to 1 - IoU, and
    within one uniformly.
    """
    presence = torch.eye(4, dtype=torch.bool).repeat_interleave(torch.tensor([60, 30, 8, 2]), 0)
    iou = torch.tensor([0.9, 0.5, 0.4, 0.0])
    for blend, world_size in ((0.5, 1), (0.2, 3), (0.0, 1), (1.0, 1)):
        ranks = [
            eg.PerformanceSampler(
                presence, blend=blend, num_samples=20_000, rank=r, world_size=world_size
            )
            for r in range(world_size)
        ]
        for rank in ranks:
            rank.update(iou)
        draws = torch.bincount(torch.tensor(union(ranks)), minlength=100)
        expected = (1 - blend) * presence.double().mean(0) + blend * (1 - iou) / (1 - iou).sum()
        for c in range(4):
            hits = draws[presence[:, c]]
            assert within_binomial_bounds(hits.sum().item(), draws.sum().item(), expected[c].item())
            for hit in hits.tolist():
                assert within_binomial_bounds(
                    hit, draws.sum().item(), expected[c].item() / len(hits)
                )


def test_the_bounds_reject_a_wrong_blend():
    presence = torch.eye(2, dtype=torch.bool).repeat_interleave(torch.tensor([99, 1]), 0)
    sampler = eg.PerformanceSampler(presence, blend=0.45, num_samples=20_000)
    assert not within_binomial_bounds(list(sampler).count(99), 20_000, 0.5 * 0.01 + 0.5 * 0.5)


def test_update_takes_hold_at_once_and_keeps_what_is_not_seen():
    presence = torch.eye(2, dtype=torch.bool)
    sampler = eg.PerformanceSampler(presence, blend=1.0, num_samples=60)
    stream = iter(sampler)
    assert set(itertools.islice(stream, 20)) == {0, 1}  # nothing known: all classes alike
    sampler.update([1.0, 0.0])
    assert set(itertools.islice(stream, 20)) == {1}
    sampler.update([0.5, math.nan])
    assert sampler.state_dict()["iou"] == [0.5, 0.0]
    sampler.update(torch.ones(2))
    assert set(stream) == {0, 1}  # all perfect: all alike


def test_momentum_keeps_a_running_iou():
    sampler = eg.PerformanceSampler(table(8, 2), momentum=0.75)
    sampler.update([1.0, 0.5])
    sampler.update([1.0, math.nan])
    assert sampler.state_dict()["iou"] == pytest.approx([0.25 + 0.75 * 0.25, 0.125])


@pytest.mark.parametrize("kind", [eg.EquibatchSampler, eg.PerformanceSampler])
@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_tables_dense_and_sparse(kind):
    dense = table()
    expected = list(kind(dense))
    for same in (
        dense.int() * 7,
        dense.to_sparse(),
        dense.float().to_sparse_csr(),
        dense.numpy(),
        scipy.sparse.csr_matrix(dense.numpy()),
        scipy.sparse.coo_array(dense.numpy().astype(np.float32)),
    ):
        assert list(kind(same)) == expected


def test_classes_can_be_chosen():
    presence = table()
    presence[:, 2] = False
    assert all(presence[i, [0, 1]].any() for i in eg.EquibatchSampler(presence, classes=[0, 1]))
    sampler = eg.PerformanceSampler(presence, classes=[0, 4], blend=1.0)
    sampler.update([1.0, 0, 0, 0, 0.5])
    assert set(sampler) == {39}


class Maps:
    """A dataset of label maps: sample i has the classes i % 3 and 3."""

    def __len__(self):
        return 6

    def __getitem__(self, i):
        return {"image": None, "label": torch.tensor([[i % 3, 3], [255, 3]])}


@pytest.mark.parametrize("missing", [(), ("rich.progress",), ("rich.progress", "tqdm")])
def test_presence_from_a_dataset_with_any_progress_bar(missing, monkeypatch, capfd):
    for module in missing:
        monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    presence = eg.class_presence(
        Maps(), num_classes=4, ignore_index=255, target=lambda item: item["label"]
    )
    expected = torch.zeros(6, 4, dtype=torch.bool)
    expected[torch.arange(6), torch.arange(6) % 3], expected[:, 3] = True, True
    assert torch.equal(presence, expected)
    output, written = capfd.readouterr()
    assert output == ""
    assert "Reading labels" in written
    if len(missing) == 2:
        assert written.endswith("\rReading labels: 6 of 6\n")


def test_presence_without_a_bar(capfd):
    pairs = [(None, np.array([0, 1], dtype=np.uint8)), (None, 1)]
    assert eg.class_presence(pairs, num_classes=2, progress=False).tolist() == [
        [True, True],
        [False, True],
    ]
    assert capfd.readouterr() == ("", "")


class Image(torch.Tensor):
    """A subclass that keeps itself, as MONAI's and fastai's do."""


def test_presence_of_unsigned_labels():
    """In uint8 the label 156 is -100."""
    labels = torch.tensor([[3, 156]], dtype=torch.uint8)
    presence = eg.class_presence([(0, labels)], num_classes=200, ignore_index=-100, progress=False)
    assert presence[0].nonzero().flatten().tolist() == [3, 156]
    with pytest.raises(ValueError, match="the label 156"):
        eg.class_presence([(0, labels.as_subclass(Image))], num_classes=9, progress=False)


def absent():
    presence = table()
    presence[:, 2] = False
    return presence


def loaded(**changed):
    eg.EquibatchSampler(table(), **changed).load_state_dict(
        eg.EquibatchSampler(table()).state_dict()
    )


BAD = (
    (
        lambda: eg.EquibatchSampler(absent()),
        ValueError,
        (
            r"EquibatchSampler: `presence` must be a table with a sample of every class; got none"
            r" for class 2\. Leave it out"
        ),
    ),
    (
        lambda: eg.PerformanceSampler(
            absent(), class_names=["road", "car", "rider", "bus", "train"]
        ),
        ValueError,
        r"got none for class 2 \('rider'\)",
    ),
    (
        lambda: eg.EquibatchSampler([[1, 0]]),
        ValueError,
        r"`presence` must be a matrix \(samples, classes\).*class_presence",
    ),
    (
        lambda: eg.EquibatchSampler(table(), classes=[]),
        ValueError,
        "`classes` must be at least one class; got none",
    ),
    (
        lambda: eg.EquibatchSampler(table(), classes=[5]),
        ValueError,
        r"`classes` must be in \[0, 4\]; got 5",
    ),
    (
        lambda: eg.EquibatchSampler(table(), num_samples=0),
        ValueError,
        "`num_samples` must be at least 1; got 0",
    ),
    (
        lambda: eg.EquibatchSampler(table(), seed=-1),
        ValueError,
        "`seed` must be at least 0; got -1",
    ),
    (
        lambda: eg.EquibatchSampler(table(), world_size=0),
        ValueError,
        "`world_size` must be at least 1; got 0",
    ),
    (
        lambda: eg.EquibatchSampler(table(), rank=2, world_size=2),
        ValueError,
        r"`rank` must be in \[0, 1\]; got 2",
    ),
    (
        lambda: loaded(seed=1),
        ValueError,
        "`state` must be of a sampler with seed=1; got one with seed=0",
    ),
    (
        lambda: loaded(world_size=2),
        ValueError,
        "`state` must be of a sampler with world_size=2; got one with world_size=1",
    ),
    (
        lambda: eg.PerformanceSampler(table(), blend=1.5),
        ValueError,
        "`blend` must be finite and at least 0 and at most 1; got 1.5. It is the fraction",
    ),
    (
        lambda: eg.PerformanceSampler(table(), blend=-1),
        ValueError,
        "`blend` must be finite and at least 0 and at most 1; got -1",
    ),
    (
        lambda: eg.PerformanceSampler(table(), momentum=1.0),
        ValueError,
        "`momentum` must be finite and at least 0 and below 1; got 1.0",
    ),
    (
        lambda: eg.PerformanceSampler(table()).update([0.5]),
        ValueError,
        r"`per_class_iou` must be 5 values in \[0, 1\]; got \[0.5\]",
    ),
    (
        lambda: eg.PerformanceSampler(table()).update([2.0] * 5),
        ValueError,
        "`per_class_iou` must be 5 values in",
    ),
    (
        lambda: eg.class_presence(Maps(), num_classes=0),
        ValueError,
        "`num_classes` must be at least 1; got 0",
    ),
    (
        lambda: eg.class_presence([(0, 7)], num_classes=2, progress=False),
        ValueError,
        r"labels in \[0, 1\]; got the label 7",
    ),
    (
        lambda: eg.class_presence([(0, 0.5)], num_classes=2, progress=False),
        TypeError,
        "an integer or bool tensor of labels",
    ),
    *(
        (
            lambda item=item: eg.class_presence([item], num_classes=2, progress=False),
            TypeError,
            "class_presence: `target` must be .*; got",
        )
        for item in (None, 3, "a", {"label": 1}, (0, None), (0, "text"), (0, object()))
    ),
    (
        lambda: eg.PerformanceSampler(table()).update("text"),
        TypeError,
        "`per_class_iou` must be a tensor, an array or numbers; got 'text'",
    ),
    (
        lambda: eg.PerformanceSampler(table()).update([[0.5]] * 5),
        ValueError,
        "`per_class_iou` must be 5 values in",
    ),
)


@pytest.mark.parametrize(("call", "error", "message"), BAD)
def test_sentence(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("kind", [eg.EquibatchSampler, eg.PerformanceSampler])
def test_visits_are_the_samples_with_the_class_that_each_was_drawn_for(kind):
    presence = torch.rand(30, 4, generator=torch.Generator().manual_seed(0)) < 0.4
    visits = list(kind(presence, seed=3).visits())
    assert [sample for sample, _ in visits] == list(kind(presence, seed=3))
    assert all(due is None or presence[sample, due] for sample, due in visits)
    every = {due for _, due in visits}
    assert every - {None} == {0, 1, 2, 3}
    assert (None in every) == (kind is eg.PerformanceSampler)
