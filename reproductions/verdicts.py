"""What a result is judged by: spread over the seeds, paired differences, the verdict."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from evalgrad_lab.report.panels import Difference, paired_difference


@dataclass(frozen=True)
class Verdict:
    """Does it go where the paper says, how far, and why."""

    direction: Literal["same", "partly", "other"]
    sentence: str

    def __str__(self) -> str:
        words = {"same": "Same", "partly": "Partly the same", "other": "Not the same"}
        return f"{words[self.direction]} direction: {self.sentence}"


def judge(claims: Sequence[bool], sentence: str) -> Verdict:
    """The verdict on a paper's claims, each found or not: all, some or none of them."""
    return Verdict("same" if all(claims) else "partly" if any(claims) else "other", sentence)


def each(results: Sequence[Any], *keys: str) -> list[Any]:
    """What every result has under the keys, one inside the other.

    >>> each([{"test": {"iou": 1}}, {"test": {"iou": 2}}], "test", "iou")
    [1, 2]
    """
    for key in keys:
        results = [result[key] for result in results]
    return list(results)


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Mean and standard deviation over the seeds; a single value without a spread.

    >>> spread([1.0, 3.0])
    '2.0 ± 1.4'
    """
    mean = f"{statistics.fmean(values):.{digits}f}"
    return f"{mean} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean


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
