"""Differences between methods, and their words."""

import pytest

from reproductions.verdicts import gap, in_words


def test_gaps_are_paired_by_seed():
    assert in_words(gap([1.5], [1.0])) == "+0.5 (one seed)"
    assert gap([10.0, 20.0, 30.0], [9.0, 19.0, 29.0]).verdict == "win"
    assert gap([9.0, 19.0], [10.0, 20.0]).verdict == "loss"
    with pytest.raises(ValueError, match="gap: `ours` must hold a value per seed; got none"):
        gap([], [])
