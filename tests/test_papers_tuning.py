"""The search that all methods share, and the words of differences."""

import math

import pytest
from rich.progress import Progress

from evalgrad.lab.papers.judging import gap, in_words, judged
from evalgrad.lab.papers.pieces import Pieces
from evalgrad.lab.papers.tuning import tuned
from evalgrad.lab.store import Store


def parabola(*, centre, x, seed):
    return {"validation": math.nan if x > 5 else -((x - centre) ** 2), "test": 10 * x + seed}


@pytest.fixture
def pieces(tmp_path):
    with Progress(disable=True) as progress:
        yield Pieces(Store(tmp_path), 1, progress, "trial")


def test_each_method_gets_its_best_candidate_on_every_seed(pieces):
    candidates = {name: [{"centre": centre, "x": x} for x in (0, 1, 2, 9)] for name, centre in (("low", 1), ("high", 2))}
    found = tuned(pieces, parabola, candidates, [3, 4])
    assert {name: method.settings["x"] for name, method in found.items()} == {"low": 1, "high": 2}
    assert found["high"].values("test") == [23, 24]
    assert tuned(pieces, parabola, candidates, [3, 4], by="test")["low"].settings["x"] == 9


def test_a_diverged_candidate_is_never_chosen(pieces):
    found = tuned(pieces, parabola, {"only": [{"centre": 0, "x": 9}, {"centre": 0, "x": 4}]}, [0])
    assert found["only"].settings["x"] == 4


def test_a_piece_asked_for_twice_counts_once(pieces):
    pieces.run(parabola, [{"centre": 0, "x": 0, "seed": 0}])
    once = pieces.seconds
    pieces.run(parabola, [{"centre": 0, "x": 0, "seed": 0}])
    assert pieces.seconds == once > 0


def test_gaps_are_paired_by_seed():
    assert in_words(gap([1.5], [1.0])) == "+0.5 (one seed)"
    assert gap([10.0, 20.0, 30.0], [9.0, 19.0, 29.0]).verdict == "win"
    assert gap([9.0, 19.0], [10.0, 20.0]).verdict == "loss"
    with pytest.raises(ValueError, match="gap: `ours` must hold a value per seed; got none"):
        gap([], [])


@pytest.mark.parametrize(("claims", "direction"), [([True, True], "same"), ([True, False], "partly"), ([False, False], "other")])
def test_claims_make_the_direction(claims, direction):
    assert judged(claims, "So.").direction == direction
