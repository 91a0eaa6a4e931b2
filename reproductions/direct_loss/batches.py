"""Section 4.3: the larger the batch, the better its AP stands for the AP of the data."""

import itertools
from collections.abc import Mapping
from typing import Any

from evalgrad_lab.data.embedded.points import PAPER
from evalgrad_lab.runs import Runs
from evalgrad_lab.tune import product
from reproductions.claims import Claim, above, each, spread
from reproductions.direct_loss.training import Hyper, train_scorer
from reproductions.experiment import Experiment, Outcome, Table
from reproductions.sizes import Size, by_size
from reproductions.training import tuned

SETTINGS = by_size(
    "batches sizes iterations seeds",
    tiny=([32, 128], [400, 200, 200], 4, 1),
    default=([128, 512, 2048], list(PAPER), 200, 5),
)
POSITIVES = 0.02  # rare, as the boxes of one class are in detection
ALGORITHMS, BUDGETS = ("pos-AP", "logistic"), ("iterations", "samples")
RATES = (0.003, 0.01, 0.03)


def candidates(algorithm: str, size: Size) -> list[Hyper]:
    """Six settings for each."""
    second = {"pos-AP": {"epsilon": (0.1, 1.0)}, "logistic": {"weight_decay": (0.0, 0.01)}}
    found = [dict(point) for point in product({"learning_rate": RATES, **second[algorithm]})]
    return found[:1] if size == "tiny" else found


def run(size: Size, runs: Runs) -> Outcome:
    """Every batch size at equal iterations, and at equal samples, tuned for itself."""
    batches, sizes, iterations, count = SETTINGS[size].values()
    seeds, numbers = list(range(count)), {}
    for algorithm in ALGORITHMS:
        common = {"data": "teacher", "sizes": sizes, "positives": POSITIVES, "algorithm": algorithm}
        cases = {}
        for batch in batches:
            steps = {"iterations": iterations, "samples": iterations * batches[-1] // batch}
            for equal in BUDGETS:
                case = {**common, "batch": batch, "iterations": steps[equal]}
                cases[f"{algorithm}, {batch}, {equal}"] = case
        grid = [{"hyper": hyper} for hyper in candidates(algorithm, size)]
        for name, method in tuned(runs, train_scorer, cases, grid, seeds).items():
            numbers[name] = each(method.results, "test")
    columns = list(itertools.product(ALGORITHMS, BUDGETS))
    rows = [
        [batch, *(spread(numbers[f"{name}, {batch}, {equal}"]) for name, equal in columns)]
        for batch in batches
    ]
    return Outcome(
        {"batches": batches, **numbers},
        f"points ranked by a random network as in figure 3, but only {POSITIVES:.0%} of them"
        f" positive; passes over {sizes[0]:,} points; {iterations} iterations for all (equal"
        " iterations), or as many as are needed to see as many samples as the largest batch does"
        " (equal samples); learning rate and epsilon (weight decay) chosen on validation for each"
        f" batch size, {len(candidates('pos-AP', size))} settings.",
        seeds,
        [Table("Test AP, %", ["batch", *map("{0[0]}, equal {0[1]}".format, columns)], rows)],
    )


def judge(numbers: Mapping[str, Any]) -> list[Claim]:
    """The largest batch against the one before, at equal iterations and at equal samples: what of
    the gain is the batch's AP shows in the second and not in the first.
    """
    middle, large = numbers["batches"][-2:]
    extra = {"pos-AP": "", "logistic": " (not in the paper)"}
    return [
        above(
            f"{name}: batches of {large} are above {middle}, equal {equal}{extra[name]}",
            numbers[f"{name}, {large}, {equal}"],
            numbers[f"{name}, {middle}, {equal}"],
        )
        for name, equal in itertools.product(ALGORITHMS, BUDGETS)
    ]


BATCH_SIZE = Experiment(
    "direct_loss/batch-size",
    "The batch size and the AP",
    "Section 4.3",
    "batches of 512 balance cost and performance; a larger batch, such as 2048, generally gives a"
    " better AP.",
    run,
    judge,
)
