"""Tables 7 and 8: margin 0 or 1, for the top-1 and for the top-5 loss."""

import itertools
from collections.abc import Mapping
from statistics import fmean, stdev
from typing import Any

from evalgrad_lab.runs import Runs
from reproductions.experiment import Experiment, Outcome, Size, Table
from reproductions.smooth_topk.sizes import SCALES
from reproductions.smooth_topk.training import smooth
from reproductions.verdicts import Verdict, each, judge, spread

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
    return Outcome(numbers, scale.sentence(), scale.seeds, [table])


def verdict(numbers: Mapping[str, Any]) -> Verdict:
    """Claim: a margin of 1 is a little better; within the spread of the seeds it is a tie."""
    gains, spreads = {}, {}
    for metric in LOSSES:
        pairs = zip(numbers[metric]["1"], numbers[metric]["0"], strict=True)
        differences = [one - zero for one, zero in pairs]
        gains[metric], spreads[metric] = fmean(differences), stdev(differences)
    ties = [metric for metric in LOSSES if abs(gains[metric]) <= spreads[metric]]
    paper = {metric: REPORTED[metric]["1"] - REPORTED[metric]["0"] for metric in LOSSES}
    words = [
        f"{gains[metric]:+.2f} ± {spreads[metric]:.2f} points of top-{metric[3:]} accuracy (paper"
        f" {paper[metric]:+.2f})"
        for metric in LOSSES
    ]
    tied = ", ".join(f"top-{metric[3:]}" for metric in ties)
    why = f" Within the spread of the seeds: {tied}." if ties else ""
    sentence = f"margin 1 against 0 changes {' and '.join(words)}.{why}"
    return judge([gain > 0 for gain in gains.values()], sentence)


EXPERIMENT = Experiment(
    "smooth_topk/table-7",
    "The margin",
    "Tables 7 and 8, appendix D.2",
    "a margin of 1 is slightly better than 0, for top-1 and for top-5.",
    REPORTED,
    run,
    verdict,
)
