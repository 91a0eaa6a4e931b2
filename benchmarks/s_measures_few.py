"""Why F-beta ranks worse than cross-entropy with few positives: what it is made of, piece by piece.

`make data/keel`, then `python benchmarks/s_measures_few.py` trains in minutes on four tables of
KEEL with 17 to 26 positives in their training half, prints a table and puts it into
docs/s_measures.md. F-beta is a hinge loss in which a positive weighs v times a negative, v found
from the totals: the pieces are cross-entropy and hinge, each alone and with the v that F-beta
found. Each piece has the learning rate with its best mean AP on validation. `--batch 16` and
`--tables yeast3` are for other batches and tables; what they give is printed only.
"""

import argparse
import statistics
from collections.abc import Callable

import s_measures_tables
import torch
import torch.nn.functional as F
from s_measures_tables import (
    BATCH,
    DOCS,
    LEARNING_RATES,
    Loss,
    Split,
    cross_entropy,
    difference,
    measured,
    split,
    train,
)
from timing import write_between
from torch import Tensor, nn

import evalgrad as eg
from evalgrad import decisions, metrics

TABLES, SEEDS, EPOCHS = ("yeast4", "yeast5", "yeast6", "winequality-red-4"), range(10), 30
Judged = tuple[float, float, float]  # AP on validation, on test; F1 on test, in per cent


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


@torch.no_grad()
def judged(model: nn.Module, parts: list[Split]) -> Judged:
    """F1 is at the threshold that is best on validation."""
    (seen, truth), (x, y) = parts[1:]
    scores, level = model(x), decisions.best_threshold(model(seen), truth)
    found = (
        metrics.average_precision(model(seen), truth),
        metrics.average_precision(scores, y),
        metrics.fbeta_score(scores - level, y),
    )
    return tuple(100 * float(value) for value in found)  # type: ignore[return-value]


def pieces(parts: list[Split], seed: int, lr: float) -> dict[str, Judged]:
    labels = parts[0][1]

    def run(loss: Loss) -> Judged:
        return judged(train(parts[0], seed, lr, loss, EPOCHS), parts)

    measure = eg.FBeta(labels=labels)
    own = run(measured(measure))
    v = -float(measure.diagnostics()["mu"][0][0])
    return {
        "cross-entropy": run(cross_entropy),
        "cross-entropy, positives times v": run(weighted(logistic, v)),
        "hinge": run(weighted(hinge, 1.0)),
        "hinge, positives times v": run(weighted(hinge, v)),
        "`FBeta`": own,
        '`FBeta(surrogate="cross_entropy")`': run(
            measured(eg.FBeta(labels=labels, surrogate="cross_entropy"))
        ),
    }


def of_table(name: str) -> dict[str, list[Judged]]:
    """Of every piece the seeds at its best learning rate."""
    splits = [split(name, seed) for seed in SEEDS]
    runs = [
        [pieces(parts, seed, lr) for seed, parts in zip(SEEDS, splits, strict=True)]
        for lr in LEARNING_RATES
    ]
    by_rate = {piece: [[row[piece] for row in rows] for rows in runs] for piece in runs[0][0]}
    return {
        piece: max(rates, key=lambda rows: statistics.mean(row[0] for row in rows))
        for piece, rates in by_rate.items()
    }


def text(found: dict[str, dict[str, list[Judged]]]) -> str:
    lines = [
        f"| AP, F1 at a tuned threshold; mean of {len(SEEDS)} seeds | {' | '.join(found)} |"
        " AP - cross-entropy's [95 %] | F1 |",
        "|---" * (len(found) + 3) + "|",
    ]
    for piece in next(iter(found.values())):
        cells = [
            ", ".join(f"{statistics.mean(row[k] for row in rows[piece]):.1f}" for k in (1, 2))
            for rows in found.values()
        ]
        gaps = [
            difference(
                [row[k] for rows in found.values() for row in rows["cross-entropy"]],
                [row[k] for rows in found.values() for row in rows[piece]],
            )
            for k in (1, 2)
        ]
        lines.append(f"| {piece} | {' | '.join([*cells, *gaps])} |")
    return "\n".join(lines)


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--tables", nargs="+", default=list(TABLES))
    asked = parser.parse_args()
    s_measures_tables.BATCH = asked.batch
    results = {}
    for name in asked.tables:
        results[name] = of_table(name)
        print(text(results), flush=True)
    if (asked.batch, asked.tables) == (BATCH, list(TABLES)):
        write_between(DOCS, "few", text(results))
