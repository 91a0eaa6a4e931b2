"""The comparison on the user's data: times the steps, runs the same search for every loss, trains
the chosen settings with several seeds, and determines the winner, if there is one.
"""

import math
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from evalgrad_lab import models
from evalgrad_lab.commands.compare import CompareOptions
from evalgrad_lab.commands.train import DataOptions, TrainOptions, train
from evalgrad_lab.comparison import budget
from evalgrad_lab.comparison.candidates import (
    Entrant,
    entrants,
    free_axes,
    points,
    started,
    with_point,
)
from evalgrad_lab.comparison.own_trials import own_trial, step_seconds
from evalgrad_lab.data.batches import steps_per_epoch
from evalgrad_lab.data.files.read import digest_of
from evalgrad_lab.errors import UserError
from evalgrad_lab.parts import test_note
from evalgrad_lab.ready import Ready, prepare, start_of
from evalgrad_lab.report.panels import Panel, panels
from evalgrad_lab.report.records import Record, shown_under
from evalgrad_lab.report.words import interval, signed
from evalgrad_lab.runs import Runs, timed
from evalgrad_lab.store import Store
from evalgrad_lab.tasks.task import EQUAL_TIME
from evalgrad_lab.training import holds
from evalgrad_lab.trials import equal_time_iterations
from evalgrad_lab.tune import Case, Tuned, tune

FIRST_SEED = 1000  # of the search, far from those of the results
SEEDS = 5


class Own:
    """One comparison on the user's data."""

    def __init__(self, options: CompareOptions, runs: Runs) -> None:
        self.start, self.options, self.runs = time.monotonic(), options, runs
        self.seconds = budget.seconds_of(options.budget) if options.budget else math.inf
        self.train = _train_options(options)
        self.ready = prepare(self.train)
        if not len(self.ready.data.test):
            raise UserError("--test must be above 0: a comparison needs test data.")
        if note := test_note(self.train, self.ready.data):
            raise UserError(f"{note} Add test data.")
        self.digest = address(self.ready)
        self.entrants = entrants(self.ready, options.losses, options.trials)

    def compared(self) -> dict[str, Any]:
        """Run it all: the records, what the search chose, the winner and the model that is left, as
        `comparison.json` has them.
        """
        times = self._times()
        plan = self._plan(times)
        began, before = time.monotonic(), len(self.runs.spent)
        found = self._search(plan)
        searched = (time.monotonic() - began) / max(len(self.runs.spent) - before, 1)
        if self.options.budget:
            left = self.seconds - (time.monotonic() - self.start)
            run = searched * self.options.jobs
            count = budget.seeds_left(plan, run, len(self.entrants), self.options.jobs, left)
            plan = replace(plan, seeds=count)
        records = self._records(plan, times, found)
        winner, left_model, conclusion = concluded(panels(records))
        return {
            "records": records,
            "search": {one.name: _searched(one, result) for one, result in self._with(found)},
            "plan": vars(plan),
            "conclusion": conclusion,
            "winner": winner,
            **self._model(left_model, found, plan),
        }

    def settings(self, one: Entrant, **more: Any) -> dict[str, Any]:
        """Settings of a run, except its point and seed."""
        options = {**plain(self.train), "loss": one.loss, **more}
        method = {"loss": one.name, "role": one.role}
        return {"options": options, "data": self.digest, "method": method}

    def _times(self) -> dict[str, Any]:
        methods = [{"loss": one.loss, "hyper": one.points[0]} for one in self.entrants]
        settings = {"options": plain(self.train), "data": self.digest, "methods": methods}
        (times,) = self.runs.run(step_seconds, [settings], title="time", alone=True)
        return times

    def _plan(self, times: dict[str, Any]) -> budget.Plan:
        options, ready = self.options, self.ready
        size = ready.batch_size * ready.options.accumulate
        per_epoch = steps_per_epoch(ready.data.train, size, 1)
        counts = (options.trials, options.search_seeds, options.seeds or SEEDS)
        plan = budget.Plan(*counts, ready.steps)
        if options.budget is None:
            return plan
        costs = budget.Costs(fmean(times["steps"]), times["look"], times["ready"], per_epoch)
        left = self.seconds - (time.monotonic() - self.start)
        plan = budget.fitted(plan, len(self.entrants), costs, options.jobs, left)
        seeds = "1 seed" if plan.search_seeds == 1 else f"{plan.search_seeds} seeds"
        self.runs.console.print(
            f"--budget {options.budget}: {plan.trials} trials with {seeds} for each loss,"
            f" {plan.seeds} seeds of the results, {plan.iterations} iterations"
        )
        return plan

    def _search(self, plan: budget.Plan) -> list[Tuned]:
        """The best point of each loss; that of the recipe is that of its best start."""
        searched = [one for one in self.entrants if not one.starts]
        cases = [
            Case(
                self.settings(one, iterations=plan.iterations),
                [{"hyper": point} for point in one.points[: plan.trials]],
            )
            for one in searched
        ]
        seeds = range(FIRST_SEED, FIRST_SEED + plan.search_seeds)
        found = tuned(self.runs, cases, seeds)
        named = dict(zip([one.name for one in searched], found, strict=True))
        return [named.get(one.name) or _of_start(one, named) for one in self.entrants]

    def _records(
        self, plan: budget.Plan, times: dict[str, Any], found: Sequence[Tuned]
    ) -> list[Record]:
        """All results, panel by panel."""
        lines = []
        for panel in (f"{plan.iterations} iterations", EQUAL_TIME):
            for (one, result), step in zip(self._with(found), times["steps"], strict=True):
                count = plan.iterations
                if panel == EQUAL_TIME:
                    count = equal_time_iterations(count, times["steps"][0], step)
                for seed in range(plan.seeds):
                    settings = self.settings(one, iterations=count)
                    lines.append(({**settings, **result.point, "seed": seed}, panel))
        records = self.runs.run(own_trial, [settings for settings, _ in lines], title="compare")
        return shown_under([panel for _, panel in lines], records)

    def _with(self, found: Sequence[Tuned]) -> list[tuple[Entrant, Tuned]]:
        return list(zip(self.entrants, found, strict=True))

    def _model(self, loss: str, found: Sequence[Tuned], plan: budget.Plan) -> dict[str, str]:
        """Train the model that is left with the first seed, as the comparison did, and say how."""
        one, result = next(pair for pair in self._with(found) if pair[0].name == loss)
        options = with_point(replace(self.train, loss=one.loss), result.point["hyper"])
        out = self.options.out / "model"
        options = replace(options, iterations=plan.iterations, out=out)
        # the folder may hold the model of another comparison
        options = replace(options, resume="auto" if holds(options) else "never")
        timed(train, {"options": options})  # on one thread, as all runs
        words = shlex.join(["evalgrad", "train", *replace(options, resume="auto").arguments()])
        return {"model": str(out), "train_command": f"OMP_NUM_THREADS=1 {words}"}


def _of_start(one: Entrant, named: Mapping[str, Tuned]) -> Tuned:
    """The recipe at the point of the best start by validation: so it is searched for as much as
    the best baseline, and where it keeps its start, both have trained the same network.
    """
    starts = [named[name] for name in one.starts if name in named]
    best = max(starts, key=lambda found: max(map(fmean, found.scores)))
    return best._replace(point={"hyper": started(one, best.point["hyper"])})


def tuned(runs: Runs, cases: Sequence[Case], seeds: Sequence[int]) -> list[Tuned]:
    """The best point of each case on validation."""
    return tune(runs, own_trial, cases, search=seeds, seeds=[], score=_validation, title="search")


def tuned_options(ready: Ready) -> tuple[dict[str, Any], TrainOptions]:
    """`train --tune`: the point that is best for the one loss, and the options with it."""
    options = ready.options
    grid = [{"hyper": point} for point in points(free_axes(ready), options.tune, "--tune")]
    method = {"loss": ready.description.loss, "role": "ours"}
    settings = {"options": plain(options), "data": address(ready), "method": method}
    with Runs(Store(options.out / "search"), options.jobs) as runs:
        (found,) = tuned(runs, [Case(settings, grid)], [FIRST_SEED + options.seed])
    return found.point["hyper"], with_point(options, found.point["hyper"])


def plain(options: TrainOptions) -> dict[str, Any]:
    """What a run of the search or of the results is trained with, whatever `out` is."""
    asked = {**options.plain(elsewhere=False), "tune": 0, "out": "."}
    return {**asked, "accelerator": options.accelerator}


def address(ready: Ready) -> str:
    """Digests of the data, of the user's own network and of the weights that it starts with: what
    was trained on other ones does not answer.
    """
    weights = digest_of([start_of(ready.options)])
    return f"{ready.digest} {models.source_digest(ready.description.model)} {weights}"


def concluded(found: Sequence[Panel]) -> tuple[str | None, str, str]:
    """The winner, None if there is none; the loss whose model is left; and both in words.

    A loss of the metric wins if its interval is above zero in every panel, the baseline if it is
    below zero in every panel. Without a winner the baseline's model is left.
    """
    ours, baseline = found[0].champion, found[0].reference
    assert baseline is not None  # `entrants` sees to it
    if ours is None:
        return None, baseline.loss, "There is no winner: no loss of the metric was trained."
    rows = [next(row for row in panel.rows if row.loss == ours.loss) for panel in found]
    differences = [row.difference for row in rows if row.difference is not None]
    said = ", ".join(
        f"{signed(one.mean)} points ({interval(one)}) at {panel.budget}"
        for one, panel in zip(differences, found, strict=True)
    )
    verdicts = {one.verdict for one in differences}
    against = f"{ours.loss} against {baseline.loss}: {said}"
    if verdicts == {"win"}:
        return ours.loss, ours.loss, f"The winner is {ours.loss}. {against}."
    if verdicts == {"loss"}:
        return baseline.loss, baseline.loss, f"The winner is {baseline.loss}. {against}."
    left = f"The saved model is that of {baseline.loss}."
    return None, baseline.loss, f"There is no winner. {against}. {left}"


def _train_options(options: CompareOptions) -> TrainOptions:
    names = [*(one.name for one in fields(DataOptions)), "task", "metric", "data", "accelerator"]
    shared: dict[str, Any] = {name: getattr(options, name) for name in names}
    return TrainOptions(**shared, out=Path())


def _searched(one: Entrant, found: Tuned) -> dict[str, Any]:
    if one.starts:
        return {"chosen": found.point["hyper"], "tried": []}
    pairs = zip(one.points, found.scores, strict=False)  # with a budget fewer are tried
    tried = [{"hyper": point, "validation": scores} for point, scores in pairs]
    return {"chosen": found.point["hyper"], "tried": tried}


def _validation(record: Mapping[str, Any]) -> float:
    return float(record["validation"][record["metric"]])
