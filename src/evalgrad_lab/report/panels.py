"""The statistics of a comparison: mean and spread over seeds, and the paired difference to the best
baseline with its interval.

Two choices must not be made on the numbers that are reported: which baseline is the reference, and
which of our losses represents a panel. Both are made on validation data, and on test data only for
tasks without validation values.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
from scipy import stats

from evalgrad_lab.report.records import Record

CONFIDENCE = 0.95
Verdict = Literal["win", "tie", "loss", "unknown"]
Item = TypeVar("Item")
Key = TypeVar("Key")


@dataclass(frozen=True)
class Difference:
    """A loss minus the reference, paired by seed; without two pairs there is no interval."""

    mean: float
    interval: tuple[float, float] | None
    pairs: int

    @property
    def verdict(self) -> Verdict:
        if self.interval is None:
            return "unknown"
        low, high = self.interval
        return "win" if low > 0 else "loss" if high < 0 else "tie"


@dataclass(frozen=True)
class Row:
    """One loss of a panel: its runs, the test metric, its difference to the reference."""

    loss: str
    role: Literal["baseline", "ours"]
    runs: tuple[Record, ...]
    mean: float
    spread: float | None
    difference: Difference | None


@dataclass(frozen=True)
class Panel:
    """One task at one budget; `reference` is the best baseline, `champion` the best of ours."""

    task: str
    title: str
    designed: bool
    metric: str
    budget: str
    rows: tuple[Row, ...]
    reference: Row | None
    champion: Row | None

    @property
    def verdict(self) -> Verdict:
        """What the champion's difference says."""
        difference = self.champion.difference if self.champion else None
        return difference.verdict if difference else "unknown"

    @property
    def validated(self) -> bool:
        """Whether reference and champion could be chosen on validation."""
        return all(self.metric in run["validation"] for row in self.rows for run in row.runs)


def paired_difference(
    ours: dict[int, float], reference: dict[int, float], confidence: float = CONFIDENCE
) -> Difference | None:
    """The mean of ours - reference over the seeds both have, with Student's t interval; None
    without a common seed.

    >>> paired_difference({0: 0.5, 1: 0.7}, {0: 0.4, 1: 0.6, 2: 0.9}).pairs
    2
    """
    seeds = sorted(ours.keys() & reference.keys())
    differences, pairs = np.array([ours[seed] - reference[seed] for seed in seeds]), len(seeds)
    if pairs == 0:
        return None
    mean = float(differences.mean())
    if pairs == 1:
        return Difference(mean, None, pairs)
    error = differences.std(ddof=1) / math.sqrt(pairs)
    half = float(stats.t.ppf((1 + confidence) / 2, pairs - 1) * error)
    return Difference(mean, (mean - half, mean + half), pairs)


def spread(values: Iterable[float]) -> float | None:
    """The standard deviation over seeds (divisor n - 1); None for a single one."""
    array = np.array(list(values))
    return float(array.std(ddof=1)) if len(array) > 1 else None


def rank_correlation(x: list[float], y: list[float]) -> float | None:
    """Spearman's correlation; None where one side is constant or not finite."""
    if len(set(x)) < 2 or len(set(y)) < 2 or not np.isfinite([x, y]).all():
        return None
    return float(stats.spearmanr(x, y).statistic)


def panels(records: Iterable[Record]) -> list[Panel]:
    """One panel per task and budget, in the order of the records; baselines come first."""
    tasks = grouped_by(records, lambda record: record["task"])
    return [
        _panel(runs)
        for task in tasks.values()
        for runs in grouped_by(task, lambda record: record["budget"]).values()
    ]


def grouped_by(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Items by key, in the order in which the keys first appear.

    >>> grouped_by([3, 1, 4, 5], lambda number: number % 2)
    {1: [3, 1, 5], 0: [4]}
    """
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def _panel(records: list[Record]) -> Panel:
    ordered = sorted(records, key=lambda record: record["role"] != "baseline")
    by_loss = grouped_by(ordered, lambda record: record["loss"])
    baselines = [runs for runs in by_loss.values() if runs[0]["role"] == "baseline"]
    best_baseline = max(baselines, key=_validation) if baselines else None
    rows = tuple(_row(runs, best_baseline) for runs in by_loss.values())
    best = best_baseline[0]["loss"] if best_baseline else None
    reference = next((row for row in rows if row.loss == best), None)
    ours = [row for row in rows if row.role == "ours"]
    champion = max(ours, key=lambda row: _validation(row.runs)) if ours else None
    first = records[0]
    names = (first["task"], first["title"], first["designed"], first["metric"], first["budget"])
    return Panel(*names, rows=rows, reference=reference, champion=champion)


def _row(runs: list[Record], reference: list[Record] | None) -> Row:
    values, difference = _test_by_seed(runs), None
    if reference and reference is not runs:
        difference = paired_difference(values, _test_by_seed(reference))
    mean, name = float(np.mean(list(values.values()))), (runs[0]["loss"], runs[0]["role"])
    return Row(*name, tuple(runs), mean, spread(values.values()), difference)


def _test_by_seed(runs: Iterable[Record]) -> dict[int, float]:
    return {run["seed"]: run["test"][run["metric"]] for run in runs}


def _validation(runs: Iterable[Record]) -> float:
    values = [run["validation"].get(run["metric"], run["test"][run["metric"]]) for run in runs]
    return float(np.mean(values))
