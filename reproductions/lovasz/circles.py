"""Section 4.1 and figure 3b: which loss has its minimum where the Jaccard loss has its own."""

from collections.abc import Callable, Mapping
from typing import Any

from matplotlib.figure import Figure
from torch import Tensor

import evalgrad as eg
from evalgrad_lab.data.embedded.points import circles
from evalgrad_lab.loss_factories import make
from evalgrad_lab.runs import Runs
from reproductions.claims import Claim, above, each, similar, spread
from reproductions.drawing import new_figure
from reproductions.experiment import Experiment, Outcome, Table
from reproductions.sizes import Size
from reproductions.training import repeated

BIASES = [round(-5 + 0.04 * step, 2) for step in range(151)]
RADII = [(3, 20), (3, 12)]  # the paper gives none; the first are those of figure and claims
DRAWS = {"tiny": 1, "default": 5}
# the paper's 10 images of 50 x 50
IMAGES = {"tiny": (2, 26), "default": (10, 50)}
PAPERS = ["cross-entropy", "hinge", "Lovász hinge"]
LOSSES = [*PAPERS, "balanced cross-entropy", "soft Jaccard"]
CLOSE = 2.0  # points of IoU: an excess below this counts as having found the optimum


def image_jaccard_loss(scores: Tensor, target: Tensor) -> Tensor:
    """1 - the mean IoU of the images, of the prediction scores > 0."""
    found = (scores > 0).long()
    return 1 - eg.metrics.jaccard_index(found, target, num_classes=2, over="image", classes=[1])


def balanced_cross_entropy(target: Tensor) -> Callable[..., Tensor]:
    """Cross-entropy in which all foreground together weighs as much as all background together."""
    return make("bce", {"positive_weight": float((target == 0).sum() / target.sum())})


def losses_of_bias(
    *, seed: int, radii: tuple[int, int], images: int, size: int
) -> dict[str, list[float]]:
    """A piece: each loss of the scores f + b, for every bias b."""
    part = circles(seed, images=images, size=size, radii=(radii[0], radii[1])).train
    losses: dict[str, Callable[..., Tensor]] = {
        "Jaccard": image_jaccard_loss,
        "cross-entropy": make("bce", {}),
        "hinge": make("hinge", {}),
        "Lovász hinge": make("lovasz_hinge", {}),
        "balanced cross-entropy": balanced_cross_entropy(part.target),
        "soft Jaccard": make("binary_soft_jaccard", {}),
    }
    scores = part.inputs.double()
    shifted = [scores + bias for bias in BIASES]
    return {name: [float(loss(s, part.target)) for s in shifted] for name, loss in losses.items()}


def excess(curves: Mapping[str, list[float]]) -> dict[str, float]:
    """Jaccard loss at each loss's own best bias minus the least Jaccard loss, x 100."""
    jaccard = curves["Jaccard"]
    at_best = {name: jaccard[curves[name].index(min(curves[name]))] for name in LOSSES}
    return {name: 100 * (value - min(jaccard)) for name, value in at_best.items()}


def run(size: Size, runs: Runs) -> Outcome:
    """An exhaustive search over the bias, for several draws and two ranges of radii."""
    seeds, (images, pixels) = list(range(DRAWS[size])), IMAGES[size]
    radii = [(low, min(high, pixels // 2 - 1)) for low, high in RADII]
    cases = {pair: {"radii": list(pair), "images": images, "size": pixels} for pair in radii}
    curves = repeated(runs, losses_of_bias, cases, seeds)
    groups = [[excess(draw) for draw in curves[pair]] for pair in radii]
    columns = [f"radii {low} to {high}" for low, high in radii]
    by_loss = {name: [each(group, name) for group in groups] for name in LOSSES}
    rows = [[name, *(spread(some, 2) for some in found)] for name, found in by_loss.items()]
    title = "Excess of the Jaccard loss, x 100, at the bias that minimises each loss"
    caption = f"Figure 3b: losses against the bias, scaled to 0..1, {columns[0]}, seed 0"
    return Outcome(
        by_loss,
        f"{images} circles on {pixels} x {pixels} pixels, radii evenly spaced (the paper gives"
        f" none; these are ours), features N(±1/2, 1), score f + b, b from {BIASES[0]} to"
        f" {BIASES[-1]} in steps of 0.04; Jaccard, Lovász hinge and soft Jaccard per image;"
        " balanced cross-entropy gives the foreground the same total weight as the background."
        " The spread is over draws.",
        seeds,
        [Table(title, ["loss", *columns], rows)],
        {caption: _draw(curves[radii[0]][0])},
    )


def _draw(curves: Mapping[str, list[float]]) -> Figure:
    figure = new_figure(6.0, 3.0)
    panel = figure.subplots()
    for name in ["Jaccard", *LOSSES]:
        curve = curves[name]
        low, high, width = min(curve), max(curve), 2 if name == "Jaccard" else 1
        scaled = [(value - low) / (high - low) for value in curve]
        (line,) = panel.plot(BIASES, scaled, label=name, lw=width)
        panel.plot(BIASES[curve.index(low)], 0, "o", color=line.get_color())
    panel.set(xlabel="bias b", ylabel="relative loss")
    panel.legend(fontsize=7)
    return figure


def judge(numbers: Mapping[str, Any]) -> list[Claim]:
    """Lovász finds the optimum, cross-entropy and hinge do not; which of the others does?"""
    first = {name: by_radii[0] for name, by_radii in numbers.items()}
    own = first["Lovász hinge"]
    missed = [
        above(f"{name} ends farther from the optimum than the Lovász hinge", first[name], own)
        for name in PAPERS[:2]
    ]
    finds = similar("the Lovász hinge has its minimum at the optimum", own, 0.0, bound=CLOSE)
    others = [name for name in LOSSES if name not in PAPERS]
    alone = [above(f"{name} does too (not in the paper)", first[name], own) for name in others]
    return [finds, *missed, *alone]


CIRCLES = Experiment(
    "lovasz/figure-3b",
    "Circles: which loss finds the Jaccard optimum of the bias",
    "Section 4.1, figure 3b",
    "of cross-entropy, hinge and Lovász hinge, only the Lovász hinge has its minimum where the"
    " Jaccard loss has it.",
    run,
    judge,
)
