"""Figures 1 and 2 of the paper on loss max-pooling, drawn with the library: `python docs/figures/loss_max_pooling.py`."""

import math
import re
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from evalgrad import loss_max_pooling_weights

HERE = Path(__file__).parent
mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "evalgrad", "font.size": 9, "path.simplify_threshold": 0.5}


def ball(p: float, radius: float = 1.0, points: int = 121) -> tuple[np.ndarray, np.ndarray]:
    """The curve ||w||_p = radius in the plane."""
    angle = np.linspace(0, 2 * math.pi, points)
    x, y = np.cos(angle), np.sin(angle)
    norm = np.maximum(abs(x), abs(y)) if math.isinf(p) else (abs(x) ** p + abs(y) ** p) ** (1 / p)
    return radius * x / norm, radius * y / norm


def draw_norms(axes: Axes) -> None:
    for p in (1, 1.4, 2, 4, math.inf):
        axes.plot(*ball(p), label=f"p = {p:g}", linewidth=1)
    axes.set(aspect="equal", title="||w||$_p$ = 1", xlabel="w$_1$", ylabel="w$_2$")
    axes.legend(loc="center", fontsize=7)


def draw_set(axes: Axes, p: float = 1.4, tau: float = 0.6, n: int = 2) -> None:
    gamma = n ** -(1 - 1 / p)
    x, y = ball(p, gamma, points=361)
    axes.plot(x, y, "--", linewidth=0.8, label="||w||$_p$ = $\\gamma$")
    axes.fill(x.clip(-tau, tau), y.clip(-tau, tau), alpha=0.3, label="W")
    axes.plot(*ball(math.inf, tau), ":", linewidth=0.8, label="||w||$_\\infty$ = $\\tau$")
    axes.set(aspect="equal", title=f"W for n = {n}, p = {p}, $\\tau$ = {tau}", xlabel="w$_1$", ylabel="w$_2$")
    axes.legend(loc="center", fontsize=7)


def losses(n: int = 100) -> torch.Tensor:
    """Sorted synthetic losses of one image: the quantiles of an exponential distribution."""
    return -torch.log1p(-(torch.arange(n, dtype=torch.float64) + 0.5) / n).unsqueeze(0)


def draw_weights(axes: Axes, settings: list[tuple[str, float, float]], title: str) -> None:
    """One curve of optimal weights per (label, p, support)."""
    pixels = losses()
    for label, p, support in settings:
        axes.plot(loss_max_pooling_weights(pixels, p=p, support=support)[0].numpy(), linewidth=1, label=label)
    axes.set(title=title, xlabel="pixels, by increasing loss", ylabel="w*")
    axes.legend(fontsize=7)


def save(figure: Figure, name: str) -> None:
    """The same bytes on every run, with no more digits than a screen shows."""
    path = HERE / name
    figure.savefig(path, metadata={"Date": None})
    text = re.sub(r"(\d+\.\d\d)\d+", r"\1", path.read_text())
    path.write_text("\n".join(line.rstrip() for line in text.splitlines()) + "\n")


def main() -> None:
    figure = Figure(figsize=(7, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_norms(left)
    draw_set(right)
    save(figure, "loss_max_pooling_1.svg")
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    by_p = [(f"p = {p:g}", p, 1 / 3) for p in (1, 1.2, 1.4, 1.7, 2, 3, 4, 10, math.inf)]
    draw_weights(left, by_p, "m = n/3")
    by_m = [(f"m/n = {fraction:g}", 1.7, max(fraction, 1e-9)) for fraction in (0, 0.1, 0.2, 0.4, 0.8, 1)]  # m is at least 1
    draw_weights(right, by_m, "p = 1.7")
    save(figure, "loss_max_pooling_2.svg")


if __name__ == "__main__":
    main()
