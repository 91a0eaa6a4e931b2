"""`python -m reproductions.ladder`: compare `--loss auto` with tuned cross-entropy on every task,
and write the table. It takes hours and goes on where it was stopped.
"""

import argparse
import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from scipy import stats

from evalgrad_lab import compare
from evalgrad_lab.cli import guarded
from evalgrad_lab.commands.compare import CompareOptions, CompareResult
from evalgrad_lab.comparison.own import Own
from evalgrad_lab.comparison.own_trials import own_trial
from evalgrad_lab.data.fetched import NotFetchedError
from evalgrad_lab.errors import UserError
from evalgrad_lab.recipe import AUTO
from evalgrad_lab.report.panels import Difference, Panel, Row, Verdict, paired_difference
from evalgrad_lab.runs import Runs
from evalgrad_lab.store import Store, write_atomically
from reproductions.ladder.rungs import Rung, rungs, write

PROG = "python -m reproductions.ladder"
BASELINES = {
    "segmentation": ["cross_entropy", "weighted_cross_entropy"],
    "classification": ["cross_entropy", "weighted_cross_entropy"],
    "ranking": ["bce", "weighted_bce"],
}
ONE_SCORE = ("image-iou", "image-dice")  # of one class: BCE is their cross-entropy
TRIALS, SEARCH_SEEDS, SEEDS = 4, 2, 5


@dataclass(frozen=True)
class Line:
    """A row of the table: `--loss auto` minus the best baseline by validation, paired by seed."""

    rung: Rung
    reference: str
    theirs: float
    ours: float
    difference: Difference
    in_time: Difference  # in the time that the reference takes
    restart: Difference | None  # with nothing of the metric's loss; None: no branch was taken
    p: float  # of Student's paired test, one-sided: that ours is worse
    taken: int  # runs in which the second branch was taken
    seeds: int
    start: str  # the baseline that it starts as, by the search
    gains: tuple[float, float]  # of the branches taken over their start: on validation, on test


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog=PROG, description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="tasks (all that are not held out)"
    )
    parser.add_argument("--held-out", action="store_true", help="those kept for the last run, too")
    parser.add_argument("--out", type=Path, default=Path("runs/ladder"), help="finished runs")
    parser.add_argument("--camvid", type=Path, help="folder of CamVid, with train/ and val/")
    parser.add_argument("--docs", type=Path, help="write ladder.md here and not under --out")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time")
    return guarded(PROG, lambda: run(parser.parse_args()))


def run(arguments: argparse.Namespace) -> int:
    """All tasks in turn; the page is written anew after each."""
    every = rungs(arguments.camvid)
    known = {rung.name for rung in every}
    if unknown := sorted(set(arguments.names) - known):
        raise UserError(f"the tasks are {', '.join(sorted(known))}; got {', '.join(unknown)}.")
    lines, missing, text = list[Line](), list[str](), ""
    for rung in every:
        wanted = arguments.held_out or not rung.held_out
        if rung.name in arguments.names if arguments.names else wanted:
            try:
                lines.append(climbed(rung, arguments.out, arguments.jobs))
            except NotFetchedError as error:
                missing.append(f"{rung.name}: {error}")
        elif wanted:
            missing.append(f"{rung.name}: not asked for")
        text = page(lines, missing)
        write_atomically((arguments.docs or arguments.out) / "ladder.md", text.encode())
    print(text)
    return 0


def climbed(rung: Rung, out: Path, jobs: int) -> Line:
    """Compare on one task."""
    names = ["bce", "weighted_bce"] if rung.metric in ONE_SCORE else BASELINES[rung.task]
    options = CompareOptions(
        task=rung.task,
        metric=rung.metric,
        data=write(rung, out / "data"),
        losses=[*names, "auto"],
        trials=TRIALS,
        search_seeds=SEARCH_SEEDS,
        seeds=SEEDS,
        jobs=jobs,
        out=out / rung.name,
        **rung.options,
    )
    found = compare(options)
    line = line_of(rung, *found.panels)
    return replace(line, restart=_restarted(options, found)) if line.taken else line


def _restarted(options: CompareOptions, found: CompareResult) -> Difference:
    """A control: `auto` as it was trained, but with nothing of the metric's loss in its second
    branch, so that what it gains comes from the schedule that begins again.
    """
    panel = found.panels[0]
    comparison: Any = found.comparison
    with Runs(Store(options.out / "store"), options.jobs) as runs:
        own = Own(options, runs)
        (auto,) = (one for one in own.entrants if one.loss == AUTO)
        steps = comparison["plan"]["iterations"]
        settings = own.settings(auto, iterations=steps, loss_options={"share": 0.0})
        settings["hyper"] = comparison["search"][auto.name]["chosen"]
        every = [{**settings, "seed": seed} for seed in range(SEEDS)]
        records = runs.run(own_trial, every, title="control")
    assert panel.reference is not None
    gap = paired_difference(
        {record["seed"]: record["test"][panel.metric] for record in records},
        _by_seed(panel.reference, panel.metric),
    )
    assert gap is not None
    return gap


def _by_seed(row: Row, metric: str) -> dict[int, float]:
    return {run["seed"]: run["test"][metric] for run in row.runs}


def line_of(rung: Rung, panel: Panel, equal_time: Panel) -> Line:
    """What a comparison at equal iterations, and at equal time, says of the recipe."""
    ours, timed = (_of_recipe(one) for one in (panel, equal_time))
    assert panel.reference is not None
    assert ours.difference is not None
    assert timed.difference is not None
    values = [_by_seed(row, panel.metric) for row in (ours, panel.reference)]
    gaps = [values[0][seed] - values[1][seed] for seed in values[0]]
    p = float(stats.ttest_1samp(gaps, 0.0, alternative="less").pvalue) if stdev(gaps) else 1.0
    taken = [run for run in ours.runs if run.get("recipe", {}).get("taken", False)]
    start = next(row for row in panel.rows if row.loss == _start(ours))
    alone = _by_seed(start, panel.metric)
    on_test = [values[0][run["seed"]] - alone[run["seed"]] for run in taken]
    gains = _mean([run["recipe"]["difference"] for run in taken]), _mean(on_test)
    means = panel.reference.mean, ours.mean
    both = ours.difference, timed.difference
    counts = len(taken), len(gaps)
    return Line(rung, panel.reference.loss, *means, *both, None, p, *counts, start.loss, gains)


def _start(ours: Row) -> str:
    """The baseline that the recipe starts as: the search says whether it has class weights."""
    hyper = ours.runs[0]["hyper"]
    if "positive_weight" in hyper:
        return "bce" if hyper["positive_weight"] == 1 else "weighted_bce"
    return "weighted_cross_entropy" if hyper["weight_power"] else "cross_entropy"


def _mean(values: list[float]) -> float:
    return fmean(values) if values else math.nan


def _of_recipe(panel: Panel) -> Row:
    return next(row for row in panel.rows if row.loss == "auto")


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
    if missing:
        parts.append("Not run: " + "; ".join(missing))
    return "\n\n".join(parts) + "\n"


OPENING = f"""# Does `--loss auto` ever lose?

`make ladder` compares [`--loss auto`](train.md#the-default-loss) with cross-entropy (BCE where one
score decides), plain and with class weights. Each of the two has {TRIALS} points of learning rate,
weight decay and class weights tried on {SEARCH_SEEDS} seeds of their own; `auto` starts with the
best point of both and has no search of its own. All have their best decision rule; the better
baseline by validation is the reference. The difference is on a test part that nothing
was chosen on, paired by {SEEDS} seeds, with its 95 % interval; p is the chance of so low a
difference if there were none, corrected by Holm for the number of tasks. The last column but one
gives `auto` no more time than the reference: its two branches then share the reference's
iterations. Without that limit `auto` takes 1.3 times as many, the second branch on a schedule that
begins again, from which part of a gain may come: the column "without the metric's loss" is the same
recipe whose second branch has nothing of it, where a branch was taken at all."""


def _table(lines: list[Line]) -> str:
    columns = (
        "data",
        "metric",
        "reference",
        "its",
        "auto",
        "difference",
        "p",
        "in equal time",
        RESTART,
    )
    head = f"| {' | '.join(columns)} | branch taken |\n" + "|" + "---|" * (len(columns) + 1)
    corrected = holm([line.p for line in lines])
    return "\n".join([head, *(_row(*pair) for pair in zip(lines, corrected, strict=True))])


def _row(line: Line, p: float = math.nan) -> str:
    return (
        f"| {line.rung.name} | {line.rung.metric} | {line.reference} | {100 * line.theirs:.1f} |"
        f" {100 * line.ours:.1f} | {_points(line.difference)} | {p:.2f} | {_points(line.in_time)} |"
        f" {_points(line.restart) if line.restart else ''} | {line.taken} of {line.seeds} |"
    )


def _explained(lines: list[Line]) -> list[str]:
    """Where every mean comes from that is more than a point below the reference."""
    low = [line for line in lines if line.difference.mean < -LOW]
    rows = [f"- {line.rung.name}: {_why(line)}" for line in low]
    return ["Means more than a point below the reference:\n\n" + "\n".join(rows)] if low else []


def _why(line: Line) -> str:
    parts = []
    if line.start != line.reference:
        parts.append(
            f"it starts as {line.start}, which the search found best; by the validation of the"
            f" runs shown the best is {line.reference}"
        )
    if line.taken:
        validation, test = (100 * gain for gain in line.gains)
        parts.append(
            f"the branch was taken in {line.taken} of {line.seeds} runs, in which it was better by"
            f" {validation:.1f} points on validation and by {test:+.1f} on test"
        )
    return "; ".join(parts) + "."


def _points(difference: Difference) -> str:
    low, high = difference.interval or (math.nan, math.nan)
    return f"{100 * difference.mean:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"


def _summary(lines: list[Line]) -> str:
    verdicts = [line.difference.verdict for line in lines]
    means = [100 * line.difference.mean for line in lines]
    counts = ", ".join(f"{verdicts.count(v)} {n}" for v, n in WORDS.items())
    interval = stats.sem(means) * stats.t.ppf(0.975, len(means) - 1) if means[1:] else math.inf
    return f"{counts}. Mean of all tasks: {fmean(means):+.2f} points (± {interval:.2f}, 95 %)."


LOW = 0.01  # a mean this far below the reference is explained
RESTART = "without the metric's loss"
WORDS: dict[Verdict, str] = {"win": "wins", "tie": "ties", "loss": "losses"}


if __name__ == "__main__":
    raise SystemExit(main())
