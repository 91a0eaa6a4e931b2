"""Figure C.1: the proximal step against gradient descent and momentum; Algorithm C.1."""

import itertools
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from evalgrad_lab.runs import Runs
from reproductions.claims import Claim, exact
from reproductions.drawing import new_figure
from reproductions.experiment import Experiment, Outcome, Table
from reproductions.lovasz.greedy_prox import greedy_counts
from reproductions.lovasz.prox_pieces import METHODS, descend
from reproductions.sizes import Size

SLOPES = [1.0, 2.0, 0.2]  # nu of equation C.4; the paper does not give its three
GREEDY = {"draws": 300, "items": 8}
WALK: dict[str, Any] = {"step": 0.1, "iterations": 30, "start": [1.01, 1.13]}


def run_surface(size: Size, runs: Runs) -> Outcome:
    """Figure C.1, the same at every size: it is exact and takes no time."""
    walks = [(nu, method) for nu in SLOPES for method in METHODS]
    asked = [{**WALK, "nu": nu, "method": method} for nu, method in walks]
    paths = dict(zip(walks, runs.run(descend, asked), strict=True))
    numbers = {m: [fmean(point[2] for point in paths[nu, m]) for nu in SLOPES] for m in METHODS}
    turns = {method: [_crossings(paths[nu, method], nu) for nu in SLOPES] for method in METHODS}
    (greedy,) = runs.run(greedy_counts, [GREEDY])
    rows = [
        [f"{nu:g}", *(found[method][at] for found in (numbers, turns) for method in METHODS)]
        for at, nu in enumerate(SLOPES)
    ]
    heads = ("mean value", "edge crossed")
    columns = ["nu", *(f"{head}: {method}" for head in heads for method in METHODS)]
    title = "Mean value along the path, and how often it crosses the edge between the two slopes"
    return Outcome(
        {"value": numbers, "crossings": turns, "greedy": {**GREEDY, **greedy}},
        f"equation C.4, start {WALK['start']}, step {WALK['step']}, momentum 0.9,"
        f" {WALK['iterations']} steps; the proximal point is exact (a projection onto a"
        " triangle). The paper does not give nu, start and step; these are ours. Algorithm C.1 is"
        f" compared with the library's exact point on {GREEDY['draws']} sets of {GREEDY['items']}"
        " random errors; the repaired version follows the negative gradient and compares step"
        " sizes in the same unit.",
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
        for method, (style, colour) in zip(METHODS, styles, strict=True):
            x, y, _ = np.array(paths[nu, method]).T
            panel.plot(x, y, style, marker=".", ms=3, lw=1, label=method, color=colour)
        panel.set(title=f"nu = {nu:g}", xlabel="x", xlim=(-1, 1.2), ylim=(-1, 1.2))
    figure.axes[0].set_ylabel("y")
    figure.axes[0].legend(fontsize=7)
    return figure


def judge_surface(numbers: Mapping[str, Any]) -> list[Claim]:
    """The proximal path never crosses the edge and the others do; is its mean the lowest?"""
    value, crossings = numbers["value"], numbers["crossings"]
    most = {method: max(counts) for method, counts in crossings.items()}
    turns = min(crossings["SGD"]) > most["prox"] and most["momentum"] > most["prox"]
    told = ", ".join(f"{method} {count}" for method, count in most.items())
    lower = {
        rival: sum(a < b for a, b in zip(value["prox"], value[rival], strict=True))
        for rival in METHODS[:2]
    }
    slopes, greedy = len(SLOPES), numbers["greedy"]
    right = not greedy["ascends"] and not greedy["misses"]
    ends = (
        f"as printed, it ends above its start in {greedy['ascends']} of {greedy['draws']} draws;"
        f" repaired, above the minimum in {greedy['misses']}"
    )
    return [
        exact(
            "gradient descent and momentum oscillate about the edge, the proximal step does not",
            turns,
            told,
        ),
        *(
            exact(f"it is lower than {rival} on average", count == slopes, f"{count} of {slopes}")
            for rival, count in lower.items()
        ),
        exact("Algorithm C.1 computes the proximal point of the Lovász hinge", right, ends),
    ]


SURFACE = Experiment(
    "lovasz/figure-c1",
    "Descent on a piecewise linear surface",
    "Figure C.1, algorithm C.1",
    "gradient descent and momentum oscillate around the edge; the proximal algorithm finds the"
    " direction of descent at once.",
    run_surface,
    judge_surface,
)
