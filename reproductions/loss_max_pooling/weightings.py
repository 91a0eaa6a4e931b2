"""Figures 1 and 2: the admissible weightings, and the best for several p and supports."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from evalgrad import loss_max_pooling_weights
from evalgrad_lab.runs import Runs
from reproductions.claims import Claim, exact
from reproductions.drawing import new_figure, plot_lines
from reproductions.experiment import Experiment, Outcome, Table
from reproductions.sizes import Size

PIXELS = 100
EXPONENTS = (1, 1.2, 1.4, 1.7, 2, 3, 4, 10, math.inf)  # of figure 2 at m = n/3
SUPPORTS = (0, 0.1, 0.2, 0.4, 0.8, 1)  # m/n of figure 2 at p = 1.7


def ball(p: float, radius: float = 1.0, points: int = 121) -> tuple[np.ndarray, np.ndarray]:
    """The curve ||w||_p = radius in the plane."""
    angle = np.linspace(0, 2 * math.pi, points)
    x, y = np.cos(angle), np.sin(angle)
    norm = np.maximum(abs(x), abs(y)) if math.isinf(p) else (abs(x) ** p + abs(y) ** p) ** (1 / p)
    return radius * x / norm, radius * y / norm


def draw_set(p: float = 1.4, tau: float = 0.6, n: int = 2) -> Figure:
    """Figure 1: spheres of several norms, and the set W of weightings of two pixels."""
    figure = new_figure(7.0, 3.4)
    left, right = figure.subplots(1, 2)
    for exponent in (1, 1.4, 2, 4, math.inf):
        left.plot(*ball(exponent), label=f"p = {exponent:g}", linewidth=1)
    left.set_title("||w||$_p$ = 1")
    x, y = ball(p, n ** -(1 - 1 / p), points=361)
    right.plot(x, y, "--", linewidth=0.8, label="||w||$_p$ = $\\gamma$")
    right.fill(x.clip(-tau, tau), y.clip(-tau, tau), alpha=0.3, label="W")
    right.plot(*ball(math.inf, tau), ":", linewidth=0.8, label="||w||$_\\infty$ = $\\tau$")
    right.set_title(f"W for n = {n}, p = {p}, $\\tau$ = {tau}")
    for panel in (left, right):
        panel.set(aspect="equal", xlabel="w$_1$", ylabel="w$_2$")
        panel.legend(loc="center", fontsize=7)
    return figure


def weights(p: float, support: float) -> list[float]:
    """The optimal weights of synthetic losses, the quantiles of an exponential distribution."""
    losses = -torch.log1p(-(torch.arange(PIXELS, dtype=torch.float64) + 0.5) / PIXELS)
    # m is at least one pixel; a support of exactly 0 is not an option of the loss.
    return loss_max_pooling_weights(losses[None], p=p, support=max(support, 1e-9))[0].tolist()


def draw_weights(by_p: Mapping[str, list[float]], by_support: Mapping[str, list[float]]) -> Figure:
    """Figure 2."""
    figure = new_figure(7.0, 3.2)
    panels = figure.subplots(1, 2)
    found = ((by_p, "m = n/3"), (by_support, "p = 1.7"))
    for panel, (curves, title) in zip(panels, found, strict=True):
        lines = {label: (range(PIXELS), curve) for label, curve in curves.items()}
        plot_lines(panel, lines, title=title, xlabel="pixels, by increasing loss", ylabel="w*")
    return figure


def concentration(curve: Sequence[float]) -> float:
    """The weight of the tenth of the pixels with the largest losses, in per cent of all weight."""
    return 100 * sum(curve[-PIXELS // 10 :]) / sum(curve)


def run(size: Size, runs: Runs) -> Outcome:
    """Drawn with the library's own weights; nothing is trained."""
    by_p = {f"p = {p:g}": weights(p, 1 / 3) for p in EXPONENTS}
    by_support = {f"m/n = {share:g}": weights(1.7, share) for share in SUPPORTS}
    curves = by_p | by_support
    columns = ["setting", "weight of the worst tenth, %", "pixels with weight"]
    used = {label: sum(weight > 0 for weight in curve) for label, curve in curves.items()}
    rows = [[name, f"{concentration(curves[name]):.1f}", used[name]] for name in curves]
    second = draw_weights(by_p, by_support)
    limits = (by_p["p = inf"], by_support["m/n = 1"])
    return Outcome(
        {
            "by p": [concentration(curve) for curve in by_p.values()],
            "by support": [concentration(curve) for curve in by_support.values()],
            "fewest at m = n/3": min(used[name] for name in by_p),
            "uniform": [max(curve) / min(curve) for curve in limits],
        },
        f"{PIXELS} synthetic losses, the quantiles of an exponential distribution; the paper does"
        " not give its own.",
        (),
        [Table("How the weight is distributed", columns, rows)],
        {
            "Figure 1: spheres of the p-norm, and the set of weightings for two pixels": draw_set(),
            "Figure 2: optimal weights of 100 pixels for several p and m": second,
        },
    )


def judge(numbers: Mapping[str, Any]) -> list[Claim]:
    """What the paper reads from figure 2."""
    steps = [step for name in ("by p", "by support") for step in pairwise(numbers[name])]
    falls = all(later <= earlier + 1e-9 for earlier, later in steps)
    fewest, limit = numbers["fewest at m = n/3"], max(numbers["uniform"])
    ends = f"worst tenth: {numbers['by p'][0]:.0f} % at p = 1, {numbers['by p'][-1]:.0f} % at inf"
    return [
        exact("the weight concentrates on high losses as p or m decrease", falls, ends),
        exact("never fewer than m pixels have weight", fewest >= PIXELS / 3, f"{fewest} of 100"),
        exact("p = inf and m = n are uniform", limit < 1 + 1e-9, f"largest ratio {limit:.3f}"),
    ]


FIGURES = Experiment(
    "loss_max_pooling/figures-1-2",
    "The admissible weightings, and the best of them",
    "Section 2, figures 1 and 2",
    "as p approaches 1, the weight concentrates on the pixels with the highest losses, but never"
    " on fewer than m of them; as p or m grow, the weights become uniform.",
    run,
    judge,
)
