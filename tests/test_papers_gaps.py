"""Differences between methods, their words, and what a command's time counts."""

import pytest
from rich.progress import Progress

from evalgrad_lab.store import Store
from reproductions.gaps import gap, in_words
from reproductions.pieces import Pieces


def square(*, x):
    return x * x


@pytest.fixture
def pieces(tmp_path):
    with Progress(disable=True) as progress:
        yield Pieces(Store(tmp_path), 1, progress, "trial")


def test_a_piece_asked_for_twice_counts_once(pieces):
    pieces.run(square, [{"x": 3}])
    once = pieces.seconds
    pieces.run(square, [{"x": 3}])
    assert pieces.seconds == once > 0


def test_gaps_are_paired_by_seed():
    assert in_words(gap([1.5], [1.0])) == "+0.5 (one seed)"
    assert gap([10.0, 20.0, 30.0], [9.0, 19.0, 29.0]).verdict == "win"
    assert gap([9.0, 19.0], [10.0, 20.0]).verdict == "loss"
    with pytest.raises(ValueError, match="gap: `ours` must hold a value per seed; got none"):
        gap([], [])
