"""Differences between methods that ran on the same seeds: what a verdict looks at, and its
words.
"""

from collections.abc import Sequence

from evalgrad_lab.report.panels import Difference, paired_difference


def gap(ours: Sequence[float], theirs: Sequence[float]) -> Difference:
    """Ours minus theirs, seed by seed, with Student's 95 % interval."""
    found = paired_difference(dict(enumerate(ours)), dict(enumerate(theirs)))
    if found is None:
        raise ValueError("gap: `ours` must hold a value per seed; got none. Run at least one seed.")
    return found


def in_words(difference: Difference, digits: int = 1) -> str:
    """The mean and its interval; one seed has no interval.

    >>> in_words(gap([2.0, 4.0], [1.0, 3.0]))
    '+1.0 [+1.0, +1.0]'
    """
    mean = f"{difference.mean:+.{digits}f}"
    if difference.interval is None:
        return f"{mean} (one seed)"
    low, high = difference.interval
    return f"{mean} [{low:+.{digits}f}, {high:+.{digits}f}]"
