"""Figures 1 and 2: the Lovász hinge and the Lovász-Softmax loss of two pixels, exactly."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

import evalgrad as eg
from evalgrad_lab.data.dataset import permutation
from evalgrad_lab.runs import Runs
from reproductions.claims import Claim, exact
from reproductions.drawing import new_figure
from reproductions.experiment import Experiment, Outcome, Table
from reproductions.sizes import Size

TRUTHS = [(0, 0), (0, 1), (1, 0), (1, 1)]  # of two pixels
CORNERS = torch.tensor(TRUTHS, dtype=torch.float64)  # 1 = this pixel is mispredicted
CONFIDENT = 30.0  # a difference of scores at which a softmax is 0 or 1 in float64, up to 1e-13
POINTS = {"tiny": 9, "default": 31}


def hinge(truth: tuple[int, int], margins: Tensor) -> Tensor:
    """Lovász hinge (n,) at relative margins r = 1 - F y (n, 2)."""
    target = torch.tensor(truth).expand(len(margins), 2)
    scores = torch.where(target == 1, 1 - margins, margins - 1)
    return eg.lovasz_hinge_loss(scores, target, reduction="none")


def softmax(truth: tuple[int, int], differences: Tensor) -> Tensor:
    """Lovász-Softmax (n,) of the foreground at differences F(true) - F(other) (n, 2)."""
    target = torch.tensor(truth).expand(len(differences), 2)
    logits = torch.stack([torch.where(target == label, differences, 0.0) for label in (0, 1)], 1)
    how: Any = {"classes": [1], "per_image": True, "reduction": "none"}
    return eg.lovasz_softmax_loss(logits, target, **how)[:, 1]


def jaccard_loss(truth: tuple[int, int], wrong: Tensor) -> Tensor:
    """1 - IoU of the foreground (n,) when `wrong` (n, 2) is mispredicted; 0/0 counts as 1."""
    target = torch.tensor(truth).expand(len(wrong), 2)
    prediction = torch.where(wrong > 0, 1 - target, target)
    index = partial(eg.metrics.jaccard_index, num_classes=2, classes=[1])
    pairs = zip(prediction, target, strict=True)
    return 1 - torch.stack([index(p[None], t[None]) for p, t in pairs])


def square(low: float, high: float, points: int) -> Tensor:
    """A grid (points^2, 2) over a square, the second axis running fastest."""
    line = torch.linspace(low, high, points, dtype=torch.float64)
    return torch.cartesian_prod(line, line)


def convexity_gap(truth: tuple[int, int], grid: Tensor) -> float:
    """How far the hinge rises above its chords between points of the grid; 0 if convex."""
    other = grid[permutation(len(grid), 0)]
    chord = (hinge(truth, grid) + hinge(truth, other)) / 2
    return float((hinge(truth, (grid + other) / 2) - chord).max())


def run(size: Size, runs: Runs) -> Outcome:
    """Draw both surfaces for the four ground truths and measure what the paper reads from them."""
    margins, differences = square(-0.5, 2.0, POINTS[size]), square(-6.0, 6.0, POINTS[size])
    names, rows = ("hinge gap", "hinge convexity", "hinge bound", "softmax gap"), []
    numbers = dict.fromkeys(names, 0.0)
    for truth in TRUTHS:
        discrete = jaccard_loss(truth, CORNERS)
        confident = softmax(truth, CONFIDENT * (1 - 2 * CORNERS))
        bound = jaccard_loss(truth, margins >= 1) - hinge(truth, margins)
        gap = float((hinge(truth, CORNERS) - discrete).abs().max())
        limit = float((confident - discrete).abs().max())
        found = [gap, convexity_gap(truth, margins), float(bound.max()), limit]
        for name, value in zip(names, found, strict=True):
            numbers[name] = max(numbers[name], value)
        losses = [f"{value:.3f}" for value in discrete.tolist()]
        rows.append([_name(truth), *losses, *(f"{value:.0e}" for value in found)])
    columns = ["ground truth", "none wrong", "2nd wrong", "1st wrong", "both wrong", *numbers]
    title = "1 - IoU for the four sets of wrong pixels, and how the surrogates compare with it"
    captions = (
        "Figure 1: Lovász hinge against the relative margins; red dots: 1 - IoU",
        "Figure 2: Lovász-Softmax against the score differences",
    )
    drawings = _draw(hinge, margins, "r", CORNERS), _draw(softmax, differences, "d", None)
    return Outcome(
        numbers,
        f"two pixels, float64, a grid of {POINTS[size]} x {POINTS[size]} points; nothing is"
        " trained. hinge gap: largest difference from 1 - IoU at margins 0 and 1; convexity: how"
        " far the hinge rises above its chords; bound: how far 1 - IoU of the prediction exceeds"
        " it; softmax gap: largest difference from 1 - IoU at score differences of"
        f" ±{CONFIDENT:.0f}.",
        [],
        [Table(title, columns, rows)],
        dict(zip(captions, drawings, strict=True)),
    )


def _name(truth: tuple[int, int]) -> str:
    return "[" + ", ".join("+1" if pixel else "-1" for pixel in truth) + "]"


def _draw(surface: Any, grid: Tensor, axis: str, corners: Tensor | None) -> Figure:
    figure = new_figure(8.0, 2.4)
    points = int(len(grid) ** 0.5)
    line = grid[:points, 1].numpy()
    steps, top = (12, 13) if corners is None else (6, 16)
    levels = [level / steps for level in range(top)]
    for panel, truth in zip(figure.subplots(1, 4, sharey=True), TRUTHS, strict=True):
        heights = surface(truth, grid).view(points, points).T.numpy()
        drawn = panel.contourf(line, line, heights, levels=levels, cmap="viridis")
        if corners is not None:
            panel.scatter(*corners.T.numpy(), color="red", s=12)
            values = jaccard_loss(truth, corners).tolist()
            for corner, value in zip(corners.tolist(), values, strict=True):
                panel.annotate(f"{value:.2g}", corner, color="white", fontsize=7)
        panel.set(title=f"GT = {_name(truth)}", xlabel=f"${axis}_1$", aspect="equal")
    figure.axes[0].set_ylabel(f"${axis}_2$")
    figure.colorbar(drawn, ax=figure.axes)
    return figure


def judge(numbers: Mapping[str, Any]) -> list[Claim]:
    """Tight, convex, an upper bound; and the Jaccard loss in the limit of confident outputs."""
    read = {
        "hinge gap": "the Lovász hinge equals 1 - IoU at the corners",
        "hinge convexity": "it is convex",
        "hinge bound": "it bounds 1 - IoU of the prediction",
        "softmax gap": "Lovász-Softmax tends to 1 - IoU for confident outputs",
    }
    return [
        exact(text, numbers[name] < 1e-9, f"largest violation {numbers[name]:.0e}")
        for name, text in read.items()
    ]


SURFACES = Experiment(
    "lovasz/figures-1-2",
    "The surfaces of two pixels",
    "Figures 1 and 2",
    "the Lovász hinge is convex and equals 1 - IoU at the corners; Lovász-Softmax does so in the"
    " limit of confident outputs.",
    run,
    judge,
)
