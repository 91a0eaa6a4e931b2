"""Tables 7 and 8: margin 0 or 1, for the top-1 and for the top-5 loss."""

import itertools
from collections.abc import Mapping
from typing import Any

from evalgrad_lab.runs import Runs
from reproductions.claims import Claim, above, each, spread
from reproductions.experiment import Experiment, Outcome, Table
from reproductions.sizes import Size
from reproductions.smooth_topk.sizes import SCALES
from reproductions.smooth_topk.training import smooth

REPORTED = {"top1": {"0": 71.03, "1": 71.15}, "top5": {"0": 89.12, "1": 89.45}}
# (k, temperature) of each table, and the accuracy it looks at. With margin 0, (1, 1) is
# cross-entropy.
LOSSES = {"top1": (1, 1.0), "top5": (5, 0.1)}


def run(size: Size, runs: Runs) -> Outcome:
    """Four objectives, tuned; the best network on validation, as in the paper, without crops."""
    scale = SCALES[size]
    cases = {}
    for metric, margin in itertools.product(LOSSES, ("0", "1")):
        k, temperature = LOSSES[metric]
        objective = smooth(temperature, k=k, margin=float(margin))
        cases[metric, margin] = {"objective": objective}
    numbers: dict[str, Any] = {metric: {} for metric in LOSSES}
    rows = []
    for (metric, margin), results in scale.tuned(runs, cases).items():
        k, temperature = LOSSES[metric]
        found = numbers[metric][margin] = each(results, "best", metric)
        names = [f"k = {k}, temperature {temperature:g}", margin, f"top-{metric[3:]}"]
        rows.append([*names, REPORTED[metric][margin], spread(found)])
    table = Table("Accuracy in %", ["loss", "margin", "accuracy", "paper", "ours"], rows)
    words = (
        f"{scale.sentence()} The paper's numbers are on its validation set, ours on test, by the"
        " network that is best on validation."
    )
    return Outcome(numbers, words, scale.seeds, [table])


def judge(numbers: Mapping[str, Any]) -> list[Claim]:
    """Claim: a margin of 1 is a little better."""
    return [
        above(
            f"margin 1 is better than 0, top-{metric[3:]}",
            numbers[metric]["1"],
            numbers[metric]["0"],
            paper=REPORTED[metric]["1"] - REPORTED[metric]["0"],
            digits=2,
        )
        for metric in LOSSES
    ]


EXPERIMENT = Experiment(
    "smooth_topk/table-7",
    "The margin",
    "Tables 7 and 8, appendix D.2",
    "a margin of 1 is slightly better than 0, for top-1 and for top-5.",
    run,
    judge,
)
