"""`python -m reproductions.ladder`: compare `--loss auto` with tuned cross-entropy on every task,
and write the table. It takes hours and goes on where it was stopped.
"""

import argparse
import os
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from scipy import stats

from evalgrad_lab import compare
from evalgrad_lab.cli import guarded
from evalgrad_lab.commands.compare import CompareOptions, CompareResult
from evalgrad_lab.commands.train import TrainOptions
from evalgrad_lab.comparison.own import Own
from evalgrad_lab.comparison.own_trials import own_trial
from evalgrad_lab.data.fetched import NotFetchedError
from evalgrad_lab.errors import UserError
from evalgrad_lab.ready import prepare
from evalgrad_lab.recipe import AUTO
from evalgrad_lab.report.panels import Difference, Panel, paired_difference
from evalgrad_lab.runs import Runs
from evalgrad_lab.store import Store, write_atomically
from reproductions.ladder.page import SEARCH_SEEDS, SEEDS, TRIALS, Line, page
from reproductions.ladder.rungs import Rung, rungs, write

PROG = "python -m reproductions.ladder"
BASELINES = {
    "segmentation": ["cross_entropy", "weighted_cross_entropy"],
    "classification": ["cross_entropy", "weighted_cross_entropy"],
    "ranking": ["bce", "weighted_bce"],
}
ONE_SCORE = ("image-iou", "image-dice")  # of one class: BCE is their cross-entropy


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog=PROG, description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="tasks (all that are not held out)"
    )
    parser.add_argument(
        "--held-out", action="store_true", help="those on which nothing was developed, too"
    )
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
            missing.append(f"{rung.name}: not selected")
        text = page(lines, missing)
        write_atomically((arguments.docs or arguments.out) / "ladder.md", text.encode())
    print(text)
    return 0


def climbed(rung: Rung, out: Path, jobs: int) -> Line:
    """Compare on one task."""
    names = ["bce", "weighted_bce"] if rung.metric in ONE_SCORE else BASELINES[rung.task]
    data = write(rung, out / "data")
    options = CompareOptions(
        task=rung.task,
        metric=rung.metric,
        data=data,
        losses=[*names, "auto"],
        trials=TRIALS,
        search_seeds=SEARCH_SEEDS,
        seeds=SEEDS,
        jobs=jobs,
        out=out / rung.name,
        **rung.options,
    )
    found = compare(options)
    line = replace(line_of(rung, *found.panels), sizes=sizes_of(rung, data))
    return replace(line, restart=_restarted(options, found)) if line.gains else line


def sizes_of(rung: Rung, data: Path) -> tuple[int | str, ...]:
    """What `SIZES` names, with the default seed and batch size."""
    chosen: Any = {"task": rung.task, "metric": rung.metric, **rung.options}
    ready = prepare(TrainOptions(data=data, out=Path(), **chosen))
    parts = (ready.data.train, ready.data.validation, ready.data.test)
    positives = "/".join(str(int(part.labels().sum())) for part in parts)
    of_lists = positives if rung.task == "ranking" else ""
    return (*map(len, parts), len(ready.data.classes), of_lists, ready.steps)


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
    scores = {record["seed"]: record["test"][panel.metric] for record in records}
    return _gap(scores, _by_seed(panel, _start(panel)))


def _by_seed(panel: Panel, loss: str) -> dict[int, float]:
    (row,) = (row for row in panel.rows if row.loss == loss)
    return {run["seed"]: run["test"][panel.metric] for run in row.runs}


def _start(panel: Panel) -> str:
    """The baseline that the recipe starts as."""
    (ours,) = (row for row in panel.rows if row.loss == AUTO)
    hyper = ours.runs[0]["hyper"]
    if "positive_weight" in hyper:
        return "bce" if hyper["positive_weight"] == 1 else "weighted_bce"
    return "weighted_cross_entropy" if hyper["weight_power"] else "cross_entropy"


def _gap(ours: dict[int, float], theirs: dict[int, float]) -> Difference:
    found = paired_difference(ours, theirs)
    assert found is not None
    return found


def line_of(rung: Rung, panel: Panel, equal_time: Panel) -> Line:
    """What a comparison at equal iterations, and at equal time, says of the recipe."""
    start, names = _start(panel), [row.loss for row in panel.rows]
    (other,) = set(names) - {start, AUTO}
    ours, theirs = _by_seed(panel, AUTO), _by_seed(panel, start)
    gaps = {seed: ours[seed] - theirs[seed] for seed in ours}
    runs = panel.rows[names.index(AUTO)].runs
    return Line(
        rung,
        start,
        theirs=fmean(theirs.values()),
        ours=fmean(ours.values()),
        difference=_gap(ours, theirs),
        in_time=_gap(_by_seed(equal_time, AUTO), _by_seed(equal_time, start)),
        other=_gap(ours, _by_seed(panel, other)),
        restart=None,
        p=_worse([*gaps.values()]),
        gains=[
            (run["recipe"]["difference"], gaps[run["seed"]])
            for run in runs
            if run["recipe"]["taken"]
        ],
        seeds=len(gaps),
    )


def _worse(gaps: list[float]) -> float:
    """The p-value of Student's one-sided test; of gaps that are all the same, which it cannot take,
    0 or 1: their interval is the point.
    """
    if not stdev(gaps):
        return float(gaps[0] >= 0)
    return float(stats.ttest_1samp(gaps, 0.0, alternative="less").pvalue)


if __name__ == "__main__":
    raise SystemExit(main())
