"""The section of one task on the page: its figures and tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal, NamedTuple

import numpy as np
from markupsafe import Markup

from evalgrad_lab.report import charts, pictures, words
from evalgrad_lab.report.panels import Panel, Row, grouped_by, rank_correlation
from evalgrad_lab.report.records import Example, Record

COLOURS_PER_ROLE = 5
Unit = Literal["iteration", "seconds"]
UNITS: dict[Unit, str] = {"iteration": "iterations", "seconds": "seconds of training"}


class Figure(NamedTuple):
    """A drawing and the words above it."""

    drawing: Markup
    caption: str


class Picture(NamedTuple):
    """An image of an example."""

    uri: str
    caption: str


class Cost(NamedTuple):
    """Means over the runs of a loss; `spent` is (iterations, seconds) at each budget."""

    loss: str
    step: float
    loss_share: float
    relative: float | None
    megabytes: float
    spent: dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Section:
    """One task: its panels share losses, styles and metric."""

    panels: list[Panel]
    description: str
    styles: dict[str, str]
    curves: list[tuple[str, list[Figure]]]
    bars: list[Figure]
    examples: list[list[Picture]]
    scatters: list[Figure]
    metrics: dict[str, dict[str, float]]
    costs: list[Cost]

    @property
    def first(self) -> Panel:
        return self.panels[0]

    @property
    def best(self) -> dict[str, float]:
        """The highest mean of every metric."""
        names = next(iter(self.metrics.values()))
        return {name: max(means[name] for means in self.metrics.values()) for name in names}

    def settings(self, row: Row) -> list[tuple[list[int], dict[str, Any]]]:
        """The hyper-parameters of a row's runs, with the seeds that share them."""
        shared = grouped_by(row.runs, lambda run: tuple(sorted(run["hyper"].items())))
        return [([run["seed"] for run in runs], runs[0]["hyper"]) for runs in shared.values()]

    def row(self, panel: Panel, loss: str) -> Row | None:
        return next((row for row in panel.rows if row.loss == loss), None)

    def key(self, loss: str) -> Markup:
        return charts.key(self.styles[loss])


def section(panels: list[Panel]) -> Section:
    """The section of a task from its panels, one for each budget."""
    styles = line_styles(panels)
    first = panels[0]
    return Section(
        panels=panels,
        description=first.rows[0].runs[0].get("description", ""),
        styles=styles,
        curves=[(p.budget, drawn) for p in panels if (drawn := learning_curves(p, styles))],
        bars=per_class(first, styles),
        examples=example_pictures(first),
        scatters=loss_against_metric(first, styles),
        metrics=other_metrics(first),
        costs=costs(panels),
    )


def line_styles(panels: Sequence[Panel]) -> dict[str, str]:
    """A CSS class for each loss: grey and earthen dashes for baselines, strong lines for ours."""
    roles = {row.loss: row.role for panel in panels for row in panel.rows}
    by_role = grouped_by(roles, lambda loss: roles[loss])
    return {
        loss: f"{role}{k % COLOURS_PER_ROLE}"
        for role, losses in by_role.items()
        for k, loss in enumerate(losses)
    }


def learning_curves(panel: Panel, styles: dict[str, str]) -> list[Figure]:
    """Validation metric against iterations and against seconds."""
    rows = [row for row in panel.rows if any(run["curve"] for run in row.runs)]
    figures = []
    for unit, name in UNITS.items() if rows else ():
        lines = [learning_curve(row, unit, styles[row.loss]) for row in rows]
        caption = f"Validation {panel.metric} (%) against {name}"
        ends = ", ".join(f"{line.name} ends at {100 * line.mean[-1]:.1f}" for line in lines)
        description = f"{caption}, {panel.task}, {panel.budget}: {ends}."
        figures.append(Figure(charts.curves(lines, name, description), caption))
    return figures


def learning_curve(row: Row, unit: Unit, style: str) -> charts.Line:
    """The seeds of a loss at the same shares of their training: they differ in seconds."""
    curves = [run["curve"] for run in row.runs if run["curve"]]
    shares = [[point["iteration"] / curve[-1]["iteration"] for point in curve] for curve in curves]

    def at_shares_of_first(name: Literal["iteration", "seconds", "metric"]) -> np.ndarray:
        values = [[point[name] for point in curve] for curve in curves]
        pairs = zip(shares, values, strict=True)
        return np.array([np.interp(shares[0], own, some) for own, some in pairs])

    metric, x = at_shares_of_first("metric"), at_shares_of_first(unit).mean(axis=0)
    mean, low, high = (of(metric, axis=0).tolist() for of in (np.mean, np.min, np.max))
    return charts.Line(row.loss, style, x.tolist(), mean, low, high)


def per_class(panel: Panel, styles: dict[str, str]) -> list[Figure]:
    """The metric of every class, best baseline against best of ours, in two halves."""
    groups, labels = [], []
    for row in (panel.reference, panel.champion):
        found = [run["per_class"] for run in row.runs if run["per_class"]] if row else []
        if not row or not found:
            return []
        labels = found[0]["labels"]
        means = np.mean([item["values"] for item in found], axis=0).tolist()
        groups.append(charts.Bars(row.loss, styles[row.loss], means))
    highest = max(max(group.values) for group in groups)
    half = -(-len(labels) // 2)
    parts = [slice(start, start + half) for start in range(0, len(labels), half)]
    return [_class_half(panel, labels, groups, part, highest) for part in parts]


def _class_half(
    panel: Panel, labels: list[str], groups: list[charts.Bars], part: slice, highest: float
) -> Figure:
    some = [group._replace(values=group.values[part]) for group in groups]
    ends = " to ".join(dict.fromkeys((labels[part][0], labels[part][-1])))
    caption = f"{ends}, {panel.budget} (%, mean over seeds)"
    theirs, ours = some
    better = sum(own > other for other, own in zip(theirs.values, ours.values, strict=True))
    above = f"{ours.name} is above {theirs.name} on {better} of {len(labels[part])} classes"
    description = f"{caption}. {above}."
    return Figure(charts.class_bars(labels[part], some, highest, description), caption)


def example_pictures(panel: Panel) -> list[list[Picture]]:
    """For each example the image, its target and all predictions, of the first seed with them."""
    by_loss = {}
    for row in panel.rows:
        if kept := [run["examples"] for run in row.runs if run["examples"]]:
            by_loss[row.loss] = kept[0]
    shown = zip(*by_loss.values(), strict=True)
    return [pictures_of(some[0], dict(zip(by_loss, some, strict=True))) for some in shown]


def pictures_of(example: Example, guesses: Mapping[str, Example]) -> list[Picture]:
    """The image, its target, and the predictions under their names."""
    labels = {"target": example["target"], **{n: one["prediction"] for n, one in guesses.items()}}
    found = [Picture(pictures.label_picture(values), name) for name, values in labels.items()]
    return [Picture(pictures.image_picture(example["image"]), "image"), *found]


def loss_against_metric(panel: Panel, styles: dict[str, str]) -> list[Figure]:
    """Does a lower loss mean a better metric? One figure per loss, on one vertical scale."""
    looks = {
        row.loss: [point for run in row.runs for point in run["curve"] if isfinite(point["loss"])]
        for row in panel.rows
    }
    metrics = [point["metric"] for points in looks.values() for point in points]
    figures = []
    for loss, points in looks.items():
        if points:
            x, y = [point["loss"] for point in points], [point["metric"] for point in points]
            correlation, text = rank_correlation(x, y), "no rank correlation"
            if correlation is not None:
                text = f"rank correlation {words.decimal(correlation)}"
            names = f"Training loss of {loss} against validation {panel.metric}"
            description = f"{names}, {panel.task}: {text}."
            drawing = charts.scatter(x, y, (min(metrics), max(metrics)), styles[loss], description)
            figures.append(Figure(drawing, f"{loss}: {text}"))
    return figures


def other_metrics(panel: Panel) -> dict[str, dict[str, float]]:
    """loss -> test metric -> mean; empty where the headline metric is the only one."""
    means = {row.loss: _mean_metrics(row.runs) for row in panel.rows}
    return means if any(len(metrics) > 1 for metrics in means.values()) else {}


def _mean_metrics(runs: Sequence[Record]) -> dict[str, float]:
    return {name: float(np.mean([run["test"][name] for run in runs])) for name in runs[0]["test"]}


def costs(panels: list[Panel]) -> list[Cost]:
    """Of every loss over all budgets; `relative` to the first panel's reference."""
    every = (run for panel in panels for row in panel.rows for run in row.runs)
    runs = grouped_by(every, lambda run: run["loss"])
    reference = panels[0].reference
    base = _mean(runs[reference.loss], "milliseconds_per_step") if reference else None
    found = []
    for loss, own in runs.items():
        step, budgets = _mean(own, "milliseconds_per_step"), grouped_by(own, lambda r: r["budget"])
        cost = Cost(
            loss=loss,
            step=step,
            loss_share=_mean(own, "loss_milliseconds"),
            relative=step / base if base else None,
            megabytes=_mean(own, "peak_megabytes"),
            spent={
                b: (_mean(some, "iterations"), _mean(some, "seconds"))
                for b, some in budgets.items()
            },
        )
        found.append(cost)
    return found


def _mean(runs: Sequence[Any], name: str) -> float:
    return float(np.mean([run[name] for run in runs]))
