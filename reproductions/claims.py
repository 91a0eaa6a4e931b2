"""The one rule by which the papers' claims are judged: one row per claim, decided by the paired
95 % interval over the seeds.

A claim is *found* if the interval lies on its side, *not found* if it lies on the other side or
leaves out the paper's effect, else *undecided*; *not testable here* if the networks cannot tell.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from evalgrad_lab.report.panels import CONFIDENCE, Difference, paired_difference

Verdict = Literal["found", "not found", "undecided", "not testable here"]
MOVES = 1.0  # points by which further training may move a base that is called converged


@dataclass(frozen=True)
class Claim:
    """What the paper says, its number, ours with the interval, over how many seeds; the verdict."""

    text: str
    paper: str
    ours: str
    seeds: str
    verdict: Verdict
    why: str = ""  # of "not testable here"

    def cells(self) -> list[str]:
        """The row of a table under `COLUMNS`."""
        verdict = f"{self.verdict}: {self.why}" if self.why else self.verdict
        return [self.text, self.paper, self.ours, self.seeds, f"**{verdict}**"]


COLUMNS = ["claim", "paper", "ours, 95 % interval", "seeds", "verdict"]


def above(
    text: str,
    ours: Sequence[float],
    theirs: Sequence[float] | float,
    *,
    paper: float | None = None,
    unless: str = "",
    digits: int = 1,
) -> Claim:
    """Ours is above theirs, seed by seed; `paper` is its own difference. With a reason `unless`
    there is no verdict.
    """
    found = gap(ours, theirs)
    return _claim(text, paper, found, _side(found, paper), unless, digits)


def _side(found: Difference, paper: float | None = None) -> Verdict:
    if found.interval is None:
        return "undecided"
    low, high = found.interval
    if low > 0:
        return "found"
    return "not found" if high < max(0.0, paper or 0.0) else "undecided"


def similar(
    text: str,
    ours: Sequence[float],
    theirs: Sequence[float] | float,
    *,
    bound: float,
    paper: float | None = None,
    unless: str = "",
    digits: int = 1,
) -> Claim:
    """The two are less than `bound` apart: the whole interval lies within it."""
    found, verdict = gap(ours, theirs), "undecided"
    if found.interval is not None:
        low, high = found.interval
        inside, outside = -bound < low and high < bound, high <= -bound or low >= bound
        verdict = "found" if inside else "not found" if outside else "undecided"
    words = f"{text} (within {bound:g})"
    return _claim(words, paper, found, verdict, unless, digits)


def best(
    text: str,
    named: Mapping[str, Sequence[float]],
    expected: str,
    *,
    paper: float | None = None,
    unless: str = "",
    digits: int = 1,
) -> Claim:
    """`expected` is above the best of the others: the first beats the second. The interval is that
    of all comparisons together, for the rival is chosen among several.
    """
    others = {name: statistics.fmean(some) for name, some in named.items() if name != expected}
    # one without a finite mean comes first: NaN is above nothing, and would be passed over
    rival = max(others, key=lambda name: (not math.isfinite(others[name]), others[name]))
    found = gap(named[expected], named[rival], 1 - (1 - CONFIDENCE) / len(others))
    return _claim(f"{text}; next {rival}", paper, found, _side(found, paper), unless, digits)


def exact(text: str, holds: bool, ours: str, *, paper: str = "") -> Claim:
    """What has no chance in it: it holds or does not."""
    return Claim(text, paper, ours, "", "found" if holds else "not found")


def _claim(
    text: str, paper: float | None, found: Difference, verdict: Any, unless: str, digits: int
) -> Claim:
    if not math.isfinite(found.mean):
        unless = unless or "a training ended without a finite result"
    theirs = "" if paper is None else f"{paper:+.{digits}f}"
    shown = (theirs, in_words(found, digits), str(found.pairs))
    return Claim(text, *shown, "not testable here" if unless else verdict, unless)


def obstacle(
    networks: Mapping[str, Sequence[float]],
    constant: Sequence[float] | float,
    moved: Sequence[float] | None = None,
) -> str:
    """Why segmentations cannot decide a claim, or nothing: a network that is not better than the
    best constant prediction, or a base that further training moves by more than `MOVES` points.
    """
    for name, scores in networks.items():
        lead = gap(scores, constant)
        if lead.verdict != "win":
            return f"{name} does not beat the constant prediction ({in_words(lead)})"
    further = statistics.fmean(moved) if moved is not None else 0.0
    if not abs(further) <= MOVES:  # NaN too
        return f"the base has not converged (further training changes it by {further:+.1f})"
    return ""


def gap(
    ours: Sequence[float], theirs: Sequence[float] | float, confidence: float = CONFIDENCE
) -> Difference:
    """Ours minus theirs, seed by seed, with Student's interval; one number stands for each seed."""
    others = [theirs] * len(ours) if isinstance(theirs, (int, float)) else theirs
    pairs = dict(enumerate(ours)), dict(enumerate(others))
    with np.errstate(invalid="ignore"):  # of infinite values
        found = paired_difference(*pairs, confidence)
    if found is None or len(ours) != len(others):
        raise ValueError(
            f"gap: `ours` and `theirs` must hold a value per seed; got {len(ours)} and"
            f" {len(others)}. Run at least one seed, and the same seeds for both."
        )
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


def minus(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """The differences, seed by seed.

    >>> minus([3.0, 5.0], [1.0, 2.0])
    [2.0, 3.0]
    """
    return [one - other for one, other in zip(ours, theirs, strict=True)]


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


def last_looks(curves: Sequence[Sequence[float]], looks: int = 3) -> str:
    """Mean and standard deviation over the last looks at a training, each averaged over the seeds,
    whose curves these are. The loss max-pooling paper reports its numbers in this way.

    >>> last_looks([[0.0, 1.0, 2.0, 3.0], [0.0, 3.0, 4.0, 5.0]])
    '3.0 ± 1.0'
    """
    ends = [curve[-looks:] for curve in curves]
    mean = f"{statistics.fmean(map(statistics.fmean, ends)):.1f}"
    if len(ends[0]) == 1:
        return mean
    return f"{mean} ± {statistics.fmean(map(statistics.stdev, ends)):.1f}"
