"""Why F-beta ranks worse than cross-entropy with few positives: what it is made of, piece by piece.

`make data/keel`, then `python benchmarks/s_measures_few.py` trains on yeast4, 25 positives among
741 training items, five seeds, and puts its table into docs/s_measures.md. F-beta is a hinge loss
in which a positive weighs v times a negative, v found from the totals: the pieces are cross-entropy
and hinge, each with the v that F-beta found.
"""

import statistics
from collections.abc import Callable

import s_measures_tables as tables
import torch
import torch.nn.functional as F
from s_measures_tables import DOCS, SEEDS, Loss, best, cross_entropy, measured, split, train
from timing import write_between
from torch import Tensor

import evalgrad as eg
from evalgrad import metrics

NAME, LEARNING_RATE, EPOCHS = "yeast4", 0.003, 30


def weighted(errors: Callable[[Tensor], Tensor], weight: float) -> Loss:
    """The mean of errors of the margin, those of positives times `weight`."""

    def loss(scores: Tensor, target: Tensor, _: Tensor) -> Tensor:
        each = errors(torch.where(target, scores, -scores))
        return (each * torch.where(target, weight, 1.0)).mean()

    return loss


def logistic(margin: Tensor) -> Tensor:
    return F.softplus(-margin)


def hinge(margin: Tensor) -> Tensor:
    return (1 - margin).relu()


def one_seed(seed: int) -> dict[str, tuple[float, float]]:
    """Test AP and F1 at the threshold that is best on validation, in per cent, of every piece."""
    parts = split(NAME, seed)
    measure = eg.FBeta(labels=parts[0][1])

    def judged(loss: Loss) -> tuple[float, float]:
        model = train(parts[0], seed, LEARNING_RATE, loss)
        with torch.no_grad():
            precision = metrics.average_precision(model(parts[2][0]), parts[2][1])
        return 100 * float(precision), best([model], parts, "F1", tune=True)

    own = judged(measured(measure))
    v = -float(measure.diagnostics()["mu"][0][0])
    return {
        "cross-entropy": judged(cross_entropy),
        "cross-entropy, positives times v": judged(weighted(logistic, v)),
        "hinge, positives times v": judged(weighted(hinge, v)),
        "`FBeta`": own,
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    tables.EPOCHS = EPOCHS
    found = [one_seed(seed) for seed in SEEDS]
    lines = [f"| {NAME}, mean of {len(SEEDS)} seeds | AP | F1, tuned threshold |", "|---|---|---|"]
    for name in found[0]:
        precision, f1 = (statistics.mean(row[name][place] for row in found) for place in (0, 1))
        lines.append(f"| {name} | {precision:.1f} | {f1:.1f} |")
    print("\n".join(lines))
    write_between(DOCS, "few", "\n".join(lines))
