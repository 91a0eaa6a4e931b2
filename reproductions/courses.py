"""What the end of a training says beyond its last network."""

from collections.abc import Sequence
from statistics import fmean, stdev


def last_looks(curves: Sequence[Sequence[float]], looks: int = 3) -> str:
    """Mean and standard deviation over the last looks at a training, each averaged over the seeds,
    whose curves these are. The loss max-pooling paper reports its numbers in this way.

    >>> last_looks([[0.0, 1.0, 2.0, 3.0], [0.0, 3.0, 4.0, 5.0]])
    '3.0 ± 1.0'
    """
    ends = [curve[-looks:] for curve in curves]
    mean = f"{fmean(map(fmean, ends)):.1f}"
    return f"{mean} ± {fmean(map(stdev, ends)):.1f}" if len(ends[0]) > 1 else mean
