"""Figures C.1 and C.2: the proximal step against gradient descent and momentum."""

import itertools
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from evalgrad_lab.runs import Runs
from evalgrad_lab.tune import best_mean
from reproductions.drawing import mean_curve, new_figure, plot_lines
from reproductions.experiment import Experiment, Outcome, Size, Table, by_size
from reproductions.lovasz.prox_pieces import METHODS, descend, last_layer
from reproductions.training import repeated
from reproductions.verdicts import Verdict, judge, spread

PLAIN = METHODS[:3]
SLOPES = [1.0, 2.0, 0.2]  # nu of equation C.4; the paper does not give its three
WALK: dict[str, Any] = {"step": 0.1, "iterations": 30, "start": [1.01, 1.13]}
# Eight settings for every method: (learning rate, lam); lam is used by the proximal ones.
PROX = [(rate, lam) for rate in (0.0625, 0.25, 1.0, 2.0) for lam in (0.01, 0.1)]
OTHERS = [(rate, 1.0) for rate in (0.03125, 0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0)]
GRID = {method: PROX if "prox" in method else OTHERS for method in METHODS}
SIMILAR = 0.5  # per cent of the loss
STARTS = ("zero", "cross-entropy")
SETTINGS = by_size(
    "sizes base_iterations iterations every",
    tiny=([16, 8, 8], 1, 2, 1),
    default=([400, 200, 1], 150, 120, 10),
    full=([1000, 500, 1], 600, 1000, 50),
)
SEEDS = {"tiny": [0], "default": [0, 1], "full": [0, 1, 2, 3, 4]}


def run_surface(size: Size, runs: Runs) -> Outcome:
    """Figure C.1, the same at every size: it is exact and takes no time."""
    walks = [(nu, method) for nu in SLOPES for method in PLAIN]
    asked = [{**WALK, "nu": nu, "method": method} for nu, method in walks]
    paths = dict(zip(walks, runs.run(descend, asked), strict=True))
    numbers = {m: [fmean(point[2] for point in paths[nu, m]) for nu in SLOPES] for m in PLAIN}
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
    return sum(bool(a * b < 0) for a, b in itertools.pairwise(sides))


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
    """The proximal path never crosses the edge and the others do; is its mean the lowest?"""
    value, crossings = numbers["value"], numbers["crossings"]
    most = max(crossings["prox"])
    oscillate = [min(crossings["SGD"]) > most, max(crossings["momentum"]) > most]
    faster = sum(value["prox"][at] < value["SGD"][at] for at in range(len(value["prox"])))
    ahead = sum(value["momentum"][at] < value["prox"][at] for at in range(len(value["prox"])))
    speed = "momentum is not lower on average in any"
    if ahead:
        speed = f"momentum, with ten times the speed, is still lower on average in {ahead}"
    return judge(
        [all(oscillate), faster == len(value["prox"])],
        f"the proximal path crosses the edge {max(crossings['prox'])} times at most, gradient"
        f" descent {max(crossings['SGD'])} and momentum {max(crossings['momentum'])}; it is lower"
        f" than gradient descent on average in {faster} of {len(value['prox'])} slopes; {speed}.",
    )


def run_last_layer(size: Size, runs: Runs) -> Outcome:
    """Figure C.2: the last layer only, convex in its weights; from zero, and trained before."""
    setting, seeds = SETTINGS[size], SEEDS[size]
    trials = [[method, rate, lam] for method in METHODS for rate, lam in GRID[method]]
    cases = {start: {**setting, "start": start, "settings": trials} for start in STARTS}
    found = repeated(runs, last_layer, cases, seeds)
    curves: dict[str, dict[str, list[Any]]] = {start: {} for start in STARTS}
    numbers: dict[str, dict[str, Any]] = {start: {} for start in STARTS}
    rows = []
    for start, method in itertools.product(STARTS, METHODS):
        rate, lam = _best(method, trials, found[start])
        own = [run[trials.index([method, rate, lam])] for run in found[start]]
        curves[start][method], numbers[start][method] = own, _numbers(own) | {"lam": lam}
        end, area = spread([curve[-1][1] for curve in own], 4), numbers[start][method]["area"]
        rows.append([start, method, f"{rate:g}", f"{lam:g}" * ("prox" in method), end, area])
    columns = ["start", "method", "learning rate", "lam", "at the end", "mean of the curve"]
    title = "Lovász hinge on validation"
    caption = f"Figure C.2: {title} while the last layer is trained, mean over the seeds"
    tables, figures = [Table(title, columns, rows)], {caption: _draw_curves(curves)}
    return Outcome(numbers, _setting(setting), seeds, tables, figures)


def _best(method: str, trials: list[list[Any]], runs: Sequence[Any]) -> tuple[float, float]:
    """The learning rate and lam with the smallest mean of the curves."""
    places = [trials.index([method, *pair]) for pair in GRID[method]]
    return GRID[method][best_mean([[-_area(run[at]) for run in runs] for at in places])]


def _numbers(runs: Sequence[Any]) -> dict[str, float]:
    start, end = ([curve[at][1] for curve in runs] for at in (0, -1))
    return {"start": fmean(start), "end": fmean(end), "area": fmean(map(_area, runs))}


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
    """Prox is better than SGD over the curve, and similar to momentum or better."""
    (zero, claims), (trained, trained_claims) = (_last_layer_words(numbers[s]) for s in STARTS)
    lowest = min(values["end"] for values in numbers["zero"].values())
    why, near = "", ""
    if lowest >= numbers["zero"]["SGD"]["start"]:
        why = (
            " There no method ends below the value it starts from: the methods are compared on how"
            " little they move."
        )
    if numbers["cross-entropy"]["prox"]["lam"] == max(lam for _, lam in GRID["prox"]):
        near = (
            " The best lam is the largest tried, where the proximal step is close to that of SGD."
        )
    return judge(
        [*trained_claims, *claims],
        f"from the weights of cross-entropy {trained}.{near} From zero {zero}.{why}",
    )


def _last_layer_words(numbers: Mapping[str, Any]) -> tuple[str, list[bool]]:
    area, end = ({m: values[key] for m, values in numbers.items()} for key in ("area", "end"))
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
