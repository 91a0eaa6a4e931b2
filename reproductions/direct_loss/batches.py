"""Section 4.3: the AP of a batch stands for the AP of the data, the better the larger the batch.
512 against 2048.
"""

from collections.abc import Mapping
from typing import Any

from evalgrad_lab.runs import Runs
from reproductions.direct_loss.training import Hyper, train_scorer
from reproductions.experiment import Experiment, Outcome, Size, Table
from reproductions.training import tuned
from reproductions.verdicts import Verdict, each, gap, in_words, judge, spread

BATCHES = {"tiny": [32, 128], "default": [128, 512, 2048], "full": [128, 512, 2048]}
SIZES = {
    "tiny": [400, 200, 200],
    "default": [10_000, 4_000, 10_000],
    "full": [10_000, 4_000, 10_000],
}
ITERATIONS = {"tiny": 4, "default": 200, "full": 2000}
SEEDS = {"tiny": 1, "default": 3, "full": 5}
POSITIVES = 0.02  # rare, as the boxes of one class are in detection
ALGORITHMS = ("pos-AP", "logistic")
RATES = (0.003, 0.01, 0.03)


def candidates(algorithm: str, size: Size) -> list[Hyper]:
    """Six settings for each."""
    name, values = {"pos-AP": ("epsilon", (0.1, 1.0)), "logistic": ("weight_decay", (0.0, 0.01))}[
        algorithm
    ]
    found = [{"learning_rate": rate, name: value} for rate in RATES for value in values]
    return found[:1] if size == "tiny" else found


def run(size: Size, runs: Runs) -> Outcome:
    """Every batch size at equal iterations, and at equal samples, tuned for itself."""
    seeds, batches, iterations = list(range(SEEDS[size])), BATCHES[size], ITERATIONS[size]
    budgets = {
        "iterations": dict.fromkeys(batches, iterations),
        "samples": {batch: iterations * batches[-1] // batch for batch in batches},
    }
    common = {"data": "teacher", "sizes": SIZES[size], "positives": POSITIVES}
    numbers = {}
    for algorithm in ALGORITHMS:
        cases = {
            f"{algorithm}, {batch}, {equal}": {
                **common,
                "algorithm": algorithm,
                "batch": batch,
                "iterations": budgets[equal][batch],
            }
            for batch in batches
            for equal in budgets
        }
        grid = [{"hyper": hyper} for hyper in candidates(algorithm, size)]
        for name, method in tuned(runs, train_scorer, cases, grid, seeds).items():
            numbers[name] = each(method.results, "test")
    rows = [
        [
            batch,
            *(
                spread(numbers[f"{algorithm}, {batch}, {equal}"])
                for algorithm in ALGORITHMS
                for equal in budgets
            ),
        ]
        for batch in batches
    ]
    columns = [f"{algorithm}, equal {equal}" for algorithm in ALGORITHMS for equal in budgets]
    return Outcome(
        {"batches": batches, **numbers},
        f"points ranked by a random network as in figure 3, but only {POSITIVES:.0%} of them"
        f" positive; passes over {SIZES[size][0]:,} points; {iterations} iterations for all"
        " (equal iterations), or as many as see the samples that the largest batch sees (equal"
        " samples); learning rate and epsilon (weight decay) chosen for each batch size on"
        f" validation, {len(candidates('pos-AP', size))} settings.",
        seeds,
        [Table("Test AP, %", ["batch", *columns], rows)],
    )


def verdict(numbers: Mapping[str, Any]) -> Verdict:
    """The largest batch against the one before, at equal iterations as the paper means it, and at
    equal samples.
    """
    middle, large = numbers["batches"][-2:]

    def lead(algorithm: str, equal: str) -> Any:
        return gap(
            numbers[f"{algorithm}, {large}, {equal}"], numbers[f"{algorithm}, {middle}, {equal}"]
        )

    first, second = lead("pos-AP", "iterations"), lead("pos-AP", "samples")
    return judge(
        [first.mean > 0 and first.verdict != "loss", second.mean > 0 and second.verdict != "loss"],
        f"batches of {large} instead of {middle} change the AP of the direct loss by"
        f" {in_words(first)} points at equal iterations and by {in_words(second)} at equal samples;"
        f" the same for logistic loss: {in_words(lead('logistic', 'iterations'))} and"
        f" {in_words(lead('logistic', 'samples'))}. What of the gain is the batch's AP shows in the"
        " second and not in the first.",
    )


BATCH_SIZE = Experiment(
    "direct_loss/batch-size",
    "The batch size and the AP",
    "Section 4.3",
    "batches of 512 balance cost and performance; a larger batch, such as 2048, generally gives a"
    " better AP.",
    {},
    run,
    verdict,
)
