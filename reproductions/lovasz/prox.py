"""Figures C.1 and C.2: the proximal step against gradient descent and momentum."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from evalgrad_lab.runs import Runs
from evalgrad_lab.tune import best_mean
from reproductions.drawing import mean_curve, new_figure, plot_lines
from reproductions.experiment import Experiment, Outcome, Size, Table
from reproductions.lovasz.prox_pieces import METHODS, descend, last_layer
from reproductions.training import repeated
from reproductions.verdicts import Verdict, judge, spread

PLAIN = METHODS[:3]
SLOPES = [1.0, 2.0, 0.2]  # nu of equation C.4; the paper does not give its three
WALK: dict[str, Any] = {"step": 0.1, "iterations": 30, "start": [1.01, 1.13]}
# Eight settings for every method: (learning rate, lam); lam is used by the proximal ones.
GRID: dict[str, list[tuple[float, float]]] = {
    method: (
        [(rate, lam) for rate in (0.0625, 0.25, 1.0, 2.0) for lam in (0.01, 0.1)]
        if "prox" in method
        else [(rate, 1.0) for rate in (0.03125, 0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0)]
    )
    for method in METHODS
}
SIMILAR = 0.5  # per cent of the loss
STARTS = ("zero", "cross-entropy")
SETTINGS: dict[str, dict[str, Any]] = {
    "tiny": {"sizes": [16, 8, 8], "base_iterations": 1, "iterations": 2, "every": 1},
    "default": {"sizes": [400, 200, 1], "base_iterations": 150, "iterations": 120, "every": 10},
    "full": {"sizes": [1000, 500, 1], "base_iterations": 600, "iterations": 1000, "every": 50},
}
SEEDS = {"tiny": [0], "default": [0, 1], "full": [0, 1, 2, 3, 4]}


def run_surface(size: Size, runs: Runs) -> Outcome:
    """Figure C.1, the same at every size: it is exact and takes no time."""
    walks = [(nu, method) for nu in SLOPES for method in PLAIN]
    asked = [{**WALK, "nu": nu, "method": method} for nu, method in walks]
    paths = dict(zip(walks, runs.run(descend, asked), strict=True))
    numbers = {
        method: [fmean(point[2] for point in paths[nu, method]) for nu in SLOPES]
        for method in PLAIN
    }
    turns = {method: [_crossings(paths[nu, method], nu) for nu in SLOPES] for method in PLAIN}
    rows = [
        [f"{nu:g}", *(found[method][at] for found in (numbers, turns) for method in PLAIN)]
        for at, nu in enumerate(SLOPES)
    ]
    heads = ("mean value", "edge crossed")
    columns = ["nu", *(f"{head}: {method}" for head in heads for method in PLAIN)]
    title = "Mean value along the path, and how often it crosses the edge between the two slopes"
    return Outcome(
        {"value": numbers, "crossings": turns},
        f"equation C.4, start {WALK['start']}, step {WALK['step']}, momentum 0.9,"
        f" {WALK['iterations']} steps; the proximal point is exact (the projection on a triangle)."
        " The paper gives neither nu nor start nor step; these are ours.",
        [],
        [Table(title, columns, rows)],
        {"Figure C.1: paths on max(0, nu x, y)": _draw_paths(paths)},
    )


def _crossings(path: list[list[float]], nu: float) -> int:
    """Changes of the steeper piece while on the slope; staying on the edge is no change."""
    sides = [np.sign(round(nu * x - y, 9)) for x, y, value in path if value > 1e-9]
    return sum(bool(a * b < 0) for a, b in pairwise(sides))


def _draw_paths(paths: Mapping[tuple[float, str], list[list[float]]]) -> Figure:
    figure = new_figure(8.0, 2.8)
    for panel, nu in zip(figure.subplots(1, 3, sharey=True), SLOPES, strict=True):
        x, y = np.meshgrid(np.linspace(-1, 1.2, 23), np.linspace(-1, 1.2, 23))
        height = np.maximum(0, np.maximum(nu * x, y))
        panel.contourf(x, y, height, levels=10, cmap="Greys", alpha=0.5)
        styles = (("--", "tab:blue"), ("-", "orange"), ("-", "green"))
        for method, (style, colour) in zip(PLAIN, styles, strict=True):
            x, y, _ = np.array(paths[nu, method]).T
            panel.plot(x, y, style, marker=".", ms=3, lw=1, label=method, color=colour)
        panel.set(title=f"nu = {nu:g}", xlabel="x", xlim=(-1, 1.2), ylim=(-1, 1.2))
    figure.axes[0].set_ylabel("y")
    figure.axes[0].legend(fontsize=7)
    return figure


def surface_verdict(numbers: Mapping[str, Any]) -> Verdict:
    """The proximal path never crosses the edge and the others do; its mean value is the lowest, or
    not.
    """
    value, crossings = numbers["value"], numbers["crossings"]
    oscillate = [
        min(crossings["SGD"]) > max(crossings["prox"]),
        max(crossings["momentum"]) > max(crossings["prox"]),
    ]
    faster = sum(value["prox"][at] < value["SGD"][at] for at in range(len(value["prox"])))
    ahead = sum(value["momentum"][at] < value["prox"][at] for at in range(len(value["prox"])))
    speed = (
        f"momentum, with ten times the speed, is still lower on average in {ahead}"
        if ahead
        else "momentum is not lower on average in any"
    )
    return judge(
        [all(oscillate), faster == len(value["prox"])],
        f"the proximal path crosses the edge {max(crossings['prox'])} times at most, gradient"
        f" descent {max(crossings['SGD'])} and momentum {max(crossings['momentum'])}; it is lower"
        f" than gradient descent on average in {faster} of {len(value['prox'])} slopes; {speed}.",
    )


def run_last_layer(size: Size, runs: Runs) -> Outcome:
    """Figure C.2: the last layer only, which makes the problem convex in its weights; from zero and
    from a trained start.
    """
    setting, seeds = SETTINGS[size], SEEDS[size]
    trials = [[method, rate, lam] for method in METHODS for rate, lam in GRID[method]]
    cases = {start: {**setting, "start": start, "settings": trials} for start in STARTS}
    found = repeated(runs, last_layer, cases, seeds)
    best = {
        start: {method: _best(method, trials, some) for method in METHODS}
        for start, some in found.items()
    }
    curves = {
        start: {
            method: [run[trials.index([method, *pair])] for run in found[start]]
            for method, pair in best[start].items()
        }
        for start in STARTS
    }
    numbers = {
        start: {
            method: _numbers(runs) | {"lam": best[start][method][1]}
            for method, runs in curves[start].items()
        }
        for start in STARTS
    }
    rows = [
        [
            start,
            method,
            f"{best[start][method][0]:g}",
            f"{best[start][method][1]:g}" if "prox" in method else "",
            spread([curve[-1][1] for curve in runs], 4),
            numbers[start][method]["area"],
        ]
        for start in STARTS
        for method, runs in curves[start].items()
    ]
    columns = ["start", "method", "learning rate", "lam", "at the end", "mean of the curve"]
    caption = (
        "Figure C.2: Lovász hinge on validation while the last layer is trained, mean over the"
        " seeds"
    )
    tables = [Table("Lovász hinge on validation", columns, rows)]
    return Outcome(numbers, _setting(setting), seeds, tables, {caption: _draw_curves(curves)})


def _best(method: str, trials: list[list[Any]], runs: Sequence[Any]) -> tuple[float, float]:
    """The learning rate and lam with the smallest mean of the curves."""
    places = [trials.index([method, *pair]) for pair in GRID[method]]
    return GRID[method][best_mean([[-_area(run[at]) for run in runs] for at in places])]


def _numbers(runs: Sequence[Any]) -> dict[str, float]:
    values = {
        "start": [curve[0][1] for curve in runs],
        "end": [curve[-1][1] for curve in runs],
        "area": list(map(_area, runs)),
    }
    return {key: fmean(each) for key, each in values.items()}


def _setting(setting: Mapping[str, Any]) -> str:
    train, validation, _ = setting["sizes"]
    return (
        f"strokes, {train} + {validation} images; U-Net trained with cross-entropy for"
        f" {setting['base_iterations']} iterations, then its last layer, from zero or from where"
        f" cross-entropy left it, for {setting['iterations']} iterations of 16 images, with steps"
        " falling as 1/sqrt(t) and lam rising with them; for each method and start the best of"
        " eight settings by the mean of its validation curve, which is the one shown: the paper"
        " looks at validation too, and does not say where its last layer starts."
    )


def _area(curve: list[list[float]]) -> float:
    """Mean loss over the curve but for its start, which all have in common."""
    return fmean(value for _, value in curve[1:])


def _draw_curves(curves: Mapping[str, Mapping[str, list[Any]]]) -> Figure:
    figure = new_figure(8.0, 3.0)
    panels = figure.subplots(1, len(curves))
    for panel, (start, methods) in zip(panels, curves.items(), strict=True):
        lines = {method: mean_curve(runs) for method, runs in methods.items()}
        plot_lines(panel, lines, title=f"from {start}", xlabel="iteration", yscale="log")
    panels[0].set_ylabel("Lovász hinge, validation")
    return figure


def last_layer_verdict(numbers: Mapping[str, Any]) -> Verdict:
    """For both starts: prox better than SGD over the curve, and similar to momentum or better, by
    more than half a per cent.
    """
    (zero, zero_claims), (trained, trained_claims) = (
        _last_layer_words(numbers[start]) for start in STARTS
    )
    lowest = min(values["end"] for values in numbers["zero"].values())
    still = lowest >= numbers["zero"]["SGD"]["start"]
    why = (
        " There no method ends below the value it starts from: the methods are compared on how"
        " little they move."
        if still
        else ""
    )
    largest = numbers["cross-entropy"]["prox"]["lam"] == max(lam for _, lam in GRID["prox"])
    near = (
        " The best lam is the largest tried, where the proximal step is close to that of SGD."
        if largest
        else ""
    )
    return judge(
        [*trained_claims, *zero_claims],
        f"from the weights of cross-entropy {trained}.{near} From zero {zero}.{why}",
    )


def _last_layer_words(numbers: Mapping[str, Any]) -> tuple[str, list[bool]]:
    area, end = (
        {method: values[key] for method, values in numbers.items()} for key in ("area", "end")
    )
    against = {method: 100 * (area["prox"] / area[method] - 1) for method in ("SGD", "momentum")}
    words = (
        f"the validation loss of the proximal step is over the curve {against['SGD']:+.2f} % from"
        f" SGD and {against['momentum']:+.2f} % from momentum, and at the end "
        + ", ".join(f"{value:.4f} ({method})" for method, value in end.items())
    )
    return words, [against["SGD"] < -SIMILAR, against["momentum"] < SIMILAR]


SURFACE = Experiment(
    "lovasz/figure-c1",
    "Descent on a piecewise linear surface",
    "Figure C.1",
    "gradient descent and momentum oscillate around the edge; the proximal algorithm finds the"
    " direction of descent at once.",
    {},
    run_surface,
    surface_verdict,
)
LAST_LAYER = Experiment(
    "lovasz/figure-c2",
    "The proximal step on the last layer",
    "Figure C.2",
    "the proximal algorithm converges better than SGD, and as well as SGD with momentum or better;"
    " the two can be combined.",
    {},
    run_last_layer,
    last_layer_verdict,
)
