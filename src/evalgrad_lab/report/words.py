"""Numbers and verdicts in words, shared by terminal and page, so that they cannot disagree."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from evalgrad_lab.report.panels import CONFIDENCE, Difference, Panel, Row, Verdict, grouped_by

VERDICTS: tuple[Verdict, ...] = ("win", "tie", "loss", "unknown")
_OPENINGS = {
    "win": "It helped on",
    "tie": "No difference could be measured on",
    "loss": "It was worse on",
    "unknown": "There is no verdict on",
}


class Sentence(NamedTuple):
    """One sentence of the opening; `verdict` is None for the first, which counts."""

    verdict: Verdict | None
    text: str


def decimal(value: float, digits: int = 2) -> str:
    """A number with a minus sign that is as wide as a plus."""
    return f"{value:.{digits}f}".replace("-", "\N{MINUS SIGN}")


def points(value: float) -> str:
    """A metric in per cent.

    >>> points(0.6)
    '60.0'
    """
    return decimal(100 * value, digits=1)


def signed(value: float) -> str:
    """A difference in percentage points, with its sign; what rounds to zero has none."""
    text = f"{100 * value:+.1f}"
    return "0.0" if float(text) == 0 else text.replace("-", "\N{MINUS SIGN}")


def with_spread(mean: float, spread: float | None) -> str:
    """Mean and standard deviation over seeds."""
    return f"{points(mean)} " + ("(one seed)" if spread is None else f"± {points(spread)}")


def interval(difference: Difference) -> str:
    """The confidence interval, or why there is none."""
    if difference.interval is None:
        return "one seed: no interval"
    low, high = difference.interval
    return f"{signed(low)} to {signed(high)}"


def verdict_reason(panel: Panel) -> str:
    """Why a panel has no verdict."""
    if panel.champion is None:
        return "no loss of ours was trained"
    if panel.reference is None:
        return "no baseline was trained"
    return "one seed gives no interval" if panel.champion.difference else "the losses share no seed"


def opening(panels: Iterable[Panel]) -> list[Sentence]:
    """Where training on the metric helped: counts first, then a sentence for each verdict."""
    by_verdict = grouped_by(panels, lambda panel: panel.verdict)
    found = [verdict for verdict in VERDICTS if verdict in by_verdict]
    places = [Sentence(verdict, _places(verdict, by_verdict[verdict])) for verdict in found]
    return [_counts(by_verdict), *places]


def chance(panels: Sequence[Panel]) -> str:
    """How to read the verdicts, with what the number of comparisons does to them."""
    judged = sum(panel.verdict != "unknown" for panel in panels)
    unvalidated = ", ".join(sorted({panel.task for panel in panels if not panel.validated}))
    exception = f" (on test for {unvalidated}: no validation values)"
    exception = exception if unvalidated else ", never on test"
    return (
        "Each comparison sets the best of our losses against the best baseline; both are chosen on"
        f" validation{exception}. A verdict needs the {CONFIDENCE:.0%} interval of the difference,"
        " paired by seed, to leave out zero. Were all losses equal, about"
        f" {judged * (1 - CONFIDENCE):.1f} of {counted(judged, 'comparison')} would still do so by"
        " chance."
    )


def shared(panels: Sequence[Panel]) -> str:
    """Which runs of a task are shown under two budgets; "" if there are none."""
    found = []
    for number, panel in enumerate(panels):
        for before in panels[:number]:
            runs = {row.loss: _runs(row) for row in before.rows}
            both = [row.loss for row in panel.rows if runs.get(row.loss) == _runs(row)]
            if both:
                found.append(f"{_listed(both)} ({before.budget} and {panel.budget})")
    why = "Shown under two budgets, because the iterations differ by less than 5 %"
    return f"{why}: {'; '.join(found)}." if found else ""


def _runs(row: Row) -> list[tuple[int, int, float]]:
    return [(run["seed"], run["iterations"], run["seconds"]) for run in row.runs]


def _listed(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _counts(by_verdict: dict[Verdict, list[Panel]]) -> Sentence:
    wins, ties, losses = (by_verdict.get(verdict, []) for verdict in ("win", "tie", "loss"))
    judged = len(wins) + len(ties) + len(losses)
    if not judged:
        nothing = "Nothing can be said yet about training on the metric"
        return Sentence(None, f"{nothing}: no comparison has two seeds.")
    count = sum(panel.designed for panel in wins)
    designed = f" ({count} of them on designed data)" if count else ""
    won, tied, lost = (len(some) or "none" for some in (wins, ties, losses))
    return Sentence(
        None,
        f"Training on the metric helped in {won} of {counted(judged, 'comparison')}{designed}, made"
        f" no measurable difference in {tied} and was worse in {lost}.",
    )


def counted(number: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "task"), counted(2, "task")
    ('1 task', '2 tasks')
    """
    return f"{number} {what}{'s' * (number != 1)}"


def _places(verdict: Verdict, panels: list[Panel]) -> str:
    """'It helped on a (x against y: +2.0 points at 500 iterations) and b (...).'"""
    tasks = []
    for task, group in grouped_by(panels, lambda panel: panel.task).items():
        label = "designed data; " if group[0].designed else ""
        details = [_detail(rivals, own) for rivals, own in grouped_by(group, _rivals).items()]
        tasks.append(f"{task} ({label}{'; '.join(details)})")
    return f"{_OPENINGS[verdict]} {_listed(tasks)}."


def _rivals(panel: Panel) -> str:
    """Who meets whom, or why nobody does."""
    if panel.champion is None or panel.champion.difference is None or panel.reference is None:
        return verdict_reason(panel)
    one_seed = ", one seed" if panel.verdict == "unknown" else ""
    return f"{panel.champion.loss} against {panel.reference.loss}{one_seed}"


def _detail(rivals: str, panels: list[Panel]) -> str:
    """The budgets at which the same two losses meet."""
    parts: list[str] = []
    for panel in panels:
        if panel.champion and panel.champion.difference:
            gain = signed(panel.champion.difference.mean)
            parts.append(f"{gain}{'' if parts else ' points'} at {panel.budget}")
    if parts:
        return f"{rivals}: {', '.join(parts)}"
    return f"{rivals} at {', '.join(panel.budget for panel in panels)}"
