"""What the ladder's page says: its tables, their sums, and where the recipe fails."""

import math
from collections import Counter
from dataclasses import dataclass
from statistics import fmean

from scipy import stats

from evalgrad_lab.report.panels import Difference, Verdict
from reproductions.ladder.rungs import Rung

TRIALS, SEARCH_SEEDS, SEEDS = 4, 2, 5
LEVEL = 0.05  # of the criterion: a loss whose corrected p is below it
LOW = 0.01  # a mean this far below the reference is explained
RESTART = "without the metric's loss"
MORE = ("in equal time", RESTART, "to the other baseline", "branch taken")
# of one and of several
WORDS: dict[Verdict, tuple[str, str]] = {
    "win": ("win", "wins"),
    "tie": ("tie", "ties"),
    "loss": ("loss", "losses"),
}


@dataclass(frozen=True)
class Line:
    """A row of the table: `--loss auto` minus the baseline that it starts as, paired by seed. The
    search has chosen that baseline, with class weights or without.
    """

    rung: Rung
    start: str
    theirs: float
    ours: float
    difference: Difference
    in_time: Difference  # in the time that the baseline takes
    other: Difference  # minus the baseline that the search has not chosen
    restart: Difference | None  # with nothing of the metric's loss; None: no branch was taken
    p: float  # of Student's paired test, one-sided: that ours is worse
    gains: list[tuple[float, float]]  # of each branch that was taken: on validation, on test
    seeds: int
    sizes: tuple[int | str, ...] = ()  # of the data, as `SIZES` names them


def holm(values: list[float]) -> list[float]:
    """Holm's correction of p-values for their number.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(values)), key=values.__getitem__)
    corrected, highest = [0.0] * len(values), 0.0
    for place, i in enumerate(order):
        highest = max(highest, min(1.0, (len(values) - place) * values[i]))
        corrected[i] = highest
    return corrected


def page(lines: list[Line], missing: list[str]) -> str:
    """The page: the table of the ladder, that of the tasks held out, and the sums of both."""
    parts = [OPENING]
    for title, held in (("The ladder", False), ("Held out until the recipe was frozen", True)):
        some = [line for line in lines if line.rung.held_out == held]
        if some:
            parts += [f"## {title}", _table(some), _summary(some), *_explained(some)]
    parts += _failures(lines)
    if any(line.sizes for line in lines):
        parts += ["## Sizes", _sizes(lines)]
    if missing:
        parts.append("Not run: " + "; ".join(missing))
    return "\n\n".join(parts) + "\n"


OPENING = f"""# Does `--loss auto` ever lose?

`make ladder` compares [`--loss auto`](train.md#the-default-loss) with cross-entropy (BCE for tasks
with a single score), plain and with class weights. For each of these two baselines, a search tries
{TRIALS} settings of learning rate, weight decay and class weights on {SEARCH_SEEDS} separate seeds.
The best setting of both searches is the reference. `auto` starts with that setting and has no
search of its own: if it does not take its second branch, it returns the same network as the
reference, and the difference is 0. Every network uses its best decision rule. Differences are
measured on test data that was not used for any choice, paired by seed over {SEEDS} seeds, with 95 %
intervals. p is the one-sided p-value for `auto` being worse, with Holm's correction for the number
of tasks. Below each table is the mean of its tasks with two 95 % intervals: *over seeds* is for
other seeds on these tasks, *over tasks* for other tasks, as if these had been drawn from many. The
other columns:

- *in equal time*: `auto` gets no more time than the reference, so its two branches share the
  reference's iterations. Without this limit it runs 1.3 times as many.
- *{RESTART}*: a control, for tasks on which the second branch was taken at least
  once. The second branch restarts the learning-rate schedule but trains on the baseline alone,
  which shows how much of a gain may come from the restart.
- *to the other baseline*: `auto` minus the baseline that the search did not choose. With
  {SEARCH_SEEDS} seeds the search is noisy on small data, and the other baseline may be better
  there.

There is no task on bags of words: no package that the lab uses holds such data, and `make data`
fetches none."""


def _table(lines: list[Line]) -> str:
    columns = ("data", "metric", "reference", "its", "auto", "difference", "verdict", "p", *MORE)
    head = f"| {' | '.join(columns)} |\n" + "|" + "---|" * len(columns)
    corrected = holm([line.p for line in lines])
    return "\n".join([head, *(_row(*pair) for pair in zip(lines, corrected, strict=True))])


def _row(line: Line, p: float = math.nan) -> str:
    restart = _points(line.restart) if line.restart else ""
    means = (f"{100 * line.theirs:.1f}", f"{100 * line.ours:.1f}")
    more = (_points(line.in_time), restart, _points(line.other))
    cells = (line.rung.name, line.rung.metric, line.start, *means, _points(line.difference))
    judged = (line.difference.verdict, f"{p:.2f}")  # by the interval before it is rounded
    return f"| {' | '.join((*cells, *judged, *more, f'{len(line.gains)} of {line.seeds}'))} |"


def _explained(lines: list[Line]) -> list[str]:
    """Where every mean comes from that is more than a point below the reference."""
    low = [line for line in lines if line.difference.mean < -LOW]
    rows = [f"- {line.rung.name}: {_why(line)}" for line in low]
    return ["Means more than a point below the reference:\n\n" + "\n".join(rows)] if low else []


def _why(line: Line) -> str:
    each = ", ".join(f"{100 * on:+.1f} and {100 * off:+.1f}" for on, off in line.gains)
    return f"points gained by each second branch that was taken, on validation and on test: {each}."


def _failures(lines: list[Line]) -> list[str]:
    """The answer to the title, for each of the two tables."""
    parts = ["## Where it fails"] if lines else []
    for title, held in (("On the ladder", False), ("On the tasks held out", True)):
        some = [line for line in lines if line.rung.held_out == held]
        if some:
            parts += [f"{title}:", "\n".join(_answers(some))]
    return parts


def _answers(lines: list[Line]) -> list[str]:
    """Whether what was asked for was found, in three views, and what is known of low means."""
    names, raw = [line.rung.name for line in lines], [line.p for line in lines]
    others, in_time = [line.other for line in lines], [line.in_time for line in lines]
    found = [
        _answer("Against the reference", names, [line.difference for line in lines], raw),
        _answer("Against the other baseline", names, others, [_p(gap) for gap in others]),
        _answer("In equal time", names, in_time, [_p(gap) for gap in in_time]),
    ]
    low = [f"- {line.rung.name}: {_why_other(line)}" for line in lines if line.other.mean < -LOW]
    slow = [f"- {line.rung.name}: {_why_slow(line)}" for line in lines if line.in_time.mean < -LOW]
    return [*found, *low, *slow]


def _answer(view: str, names: list[str], gaps: list[Difference], p: list[float]) -> str:
    corrected = holm(p)
    below = [i for i, gap in enumerate(gaps) if gap.verdict == "loss"]
    each = ", ".join(f"{names[i]} {_said(corrected[i])}" for i in below)
    which = f" (p after Holm's correction: {each})" if below else ""
    met = "not met" if any(corrected[i] < LEVEL for i in below) else "met"
    mean, seeds, tasks = _spreads(gaps)
    return (
        f"- {view}: {len(below)} of {len(gaps)} intervals entirely below zero{which}. The"
        f" criterion, none after the correction, is {met}. The mean of all tasks is"
        f" {mean:+.1f} points: its interval over seeds {_side(mean, seeds)}, that over tasks"
        f" {_side(mean, tasks)}."
    )


def _said(p: float) -> str:
    return "below 0.01" if p < 0.005 else f"{p:.2f}"


def _side(mean: float, half: float) -> str:
    if abs(mean) <= half:
        return "includes zero"
    return f"is {'above' if mean > 0 else 'below'} zero"


def _p(gap: Difference) -> float:
    """One-sided, that it is negative, from its 95 % interval, which is Student's."""
    assert gap.interval is not None
    half = (gap.interval[1] - gap.interval[0]) / 2
    if not half:
        return float(gap.mean >= 0)
    free = gap.pairs - 1
    return float(stats.t.cdf(gap.mean / half * stats.t.ppf(0.975, free), free))


def _why_other(line: Line) -> str:
    """All that is known where the other baseline is more than a point better."""
    apart = 100 * (line.other.mean - line.difference.mean)
    return (
        f"{100 * line.other.mean:+.1f} to the other baseline. On validation the search of"
        f" {SEARCH_SEEDS} seeds preferred {line.start}, which has {apart:+.1f} to the other on test"
        f" data; the recipe adds {100 * line.difference.mean:+.1f} to it."
    )


def _why_slow(line: Line) -> str:
    slow, free = (f"{100 * gap.mean:+.1f}" for gap in (line.in_time, line.difference))
    return f"{slow} in equal time, where both branches are shorter; {free} without this limit."


SIZES = ("training", "validation", "test", "classes", "positives of each", "steps")


def _sizes(lines: list[Line]) -> str:
    columns = ("data", *SIZES)
    head = f"| {' | '.join(columns)} |\n" + "|" + "---|" * len(columns)
    rows = (f"| {' | '.join(map(str, (line.rung.name, *line.sizes)))} |" for line in lines)
    return "\n".join([head, *rows])


def _points(difference: Difference) -> str:
    low, high = difference.interval or (math.nan, math.nan)
    return f"{100 * difference.mean:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"


def _summary(lines: list[Line]) -> str:
    each = [line.difference for line in lines], [line.other for line in lines]
    (reference, mean), (other, other_mean) = (_counted(some) for some in each)
    return (
        f"{reference}. Mean of all tasks: {mean} points.\n\nAgainst the other baseline: {other},"
        f" mean {other_mean}."
    )


def _counted(differences: list[Difference]) -> tuple[str, str]:
    """Wins, ties and losses; the mean over the tasks with two 95 % intervals: what other seeds
    would change on these tasks, and what other tasks would.
    """
    found = Counter(one.verdict for one in differences)
    counts = ", ".join(f"{found[v]} {words[found[v] != 1]}" for v, words in WORDS.items())
    mean, seeds, tasks = _spreads(differences)
    return counts, f"{mean:+.2f} (± {seeds:.2f} over seeds, ± {tasks:.2f} over tasks)"


def _spreads(differences: list[Difference]) -> tuple[float, float, float]:
    """The mean over the tasks in points, and half of its intervals over seeds and over tasks."""
    means = [100 * one.mean for one in differences]
    tasks = stats.sem(means) * stats.t.ppf(0.975, len(means) - 1) if means[1:] else math.inf
    return fmean(means), 100 * _over_seeds(differences), float(tasks)


def _over_seeds(differences: list[Difference]) -> float:
    """Half the 95 % interval of the mean of these tasks, whose seeds are independent; degrees of
    freedom by Satterthwaite, because the tasks differ in their spread.
    """
    squares, free = [], []
    for one in differences:
        assert one.interval is not None
        half = one.interval[1] - one.mean
        squares.append((half / stats.t.ppf(0.975, one.pairs - 1)) ** 2)
        free.append(one.pairs - 1)
    total = sum(squares)
    if not total:
        return 0.0
    degrees = total**2 / sum(s**2 / n for s, n in zip(squares, free, strict=True))
    return float(stats.t.ppf(0.975, degrees) * math.sqrt(total) / len(squares))
