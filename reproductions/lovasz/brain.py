"""Table B.2: subcortical structures of the brain, cross-entropy against Lovász-Softmax."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from evalgrad_lab.data.fetched import place
from evalgrad_lab.runs import Runs
from evalgrad_lab.tune import product
from reproductions.experiment import Experiment, Outcome, Size, SkippedError, Table
from reproductions.lovasz.brain_pieces import FOLDS, LOSSES, NAMES, train_brain
from reproductions.training import tuned
from reproductions.verdicts import Verdict, each, gap, in_words, judge, spread

INDICES = ("Jaccard", "Dice")
RATES = [0.03, 0.1]
SETTINGS: dict[str, dict[str, Any]] = {
    "tiny": {"width": 4, "epochs": 1, "block": 1},
    "full": {"width": 16, "epochs": 70, "block": 4},
}
TABLE_B2 = {
    "cross-entropy": {
        "Jaccard": {"Thalamus": 72.74, "Caudate": 52.31, "Putamen": 61.55, "Pallidum": 54.04},
        "Dice": {"Thalamus": 84.17, "Caudate": 68.33, "Putamen": 76.07, "Pallidum": 70.02},
    },
    "Lovász": {
        "Jaccard": {"Thalamus": 73.56, "Caudate": 54.44, "Putamen": 62.57, "Pallidum": 55.74},
        "Dice": {"Thalamus": 84.74, "Caudate": 70.25, "Putamen": 76.89, "Pallidum": 71.50},
    },
}


def run(size: Size, runs: Runs) -> Outcome:
    """Three folds for each loss, with the learning rate that the first of them chose."""
    if size == "default":
        raise SkippedError(
            "it needs the brain that `make data` fetches; `python -m reproductions lovasz/table-b2"
            " --full` runs it."
        )
    place("brain")  # tells what is missing before anything runs
    setting, folds = SETTINGS[size], list(range(FOLDS))
    cases = {loss: {**setting, "loss": loss} for loss in LOSSES}
    found = tuned(runs, train_brain, cases, product({"learning_rate": RATES}), folds)
    numbers = {
        loss: {kind: each(case.results, "test", kind) for kind in INDICES}
        for loss, case in found.items()
    }
    rows = [_row(numbers[loss][kind], loss, kind) for loss in LOSSES for kind in INDICES]
    columns = [
        "loss",
        "index",
        *NAMES,
        "mean",
        *(f"paper: {name}" for name in NAMES),
        "paper: mean",
    ]
    table = Table("Test slices, mean of left and right (%)", columns, rows)
    return Outcome(
        numbers,
        _setting(setting, {loss: case.point["learning_rate"] for loss, case in found.items()}),
        folds,
        [table],
    )


def _setting(setting: Mapping[str, Any], chosen: Mapping[str, float]) -> str:
    rates = ", ".join(f"{loss} {rate:g}" for loss, rate in chosen.items())
    return (
        "one brain (T1, 1 mm) with its atlas in place of 18 patients; axial slices with a"
        f" structure, cropped around the structures, in blocks of {setting['block']}, every third"
        " block for test: three folds. Neighbouring slices are alike, so the scores are not those"
        f" of a new brain. Network of table B.1 with {setting['width']} filters in its first block"
        f" in place of 64 and the others in proportion, SGD with momentum, {setting['epochs']}"
        f" epochs of batches of 4, learning rate falling to a hundredth, first rate of {RATES} by"
        f" validation Jaccard of the first fold: {rates}. The spread is over the folds."
    )


def _row(found: list[dict[str, float]], loss: str, kind: str) -> list[str]:
    reported = TABLE_B2[loss][kind]
    ours = [spread(each(found, name)) for name in NAMES]
    mean = spread([fmean(one.values()) for one in found])
    return [
        loss,
        kind,
        *ours,
        mean,
        *(f"{reported[name]:.2f}" for name in NAMES),
        f"{fmean(reported.values()):.2f}",
    ]


def verdict(numbers: Mapping[str, Any]) -> Verdict:
    """Is Lovász ahead in every structure and on average, in both indices;
    `numbers[loss][index][fold][structure]`.
    """
    gains = {
        kind: gap(
            *(
                [fmean(fold.values()) for fold in numbers[loss][kind]]
                for loss in ("Lovász", "cross-entropy")
            )
        )
        for kind in INDICES
    }
    ahead = {
        kind: [
            name
            for name in NAMES
            if _mean(numbers, "Lovász", kind, name) > _mean(numbers, "cross-entropy", kind, name)
        ]
        for kind in INDICES
    }
    behind = [name for name in NAMES if name not in ahead["Jaccard"]]
    return judge(
        [
            claim
            for kind in INDICES
            for claim in (gains[kind].mean > 0, len(ahead[kind]) == len(NAMES))
        ],
        f"averaged over the structures Lovász-Softmax is {in_words(gains['Jaccard'])} points of"
        f" Jaccard and {in_words(gains['Dice'])} of Dice from cross-entropy (paper +1.4 and +1.2);"
        f" it is ahead in Jaccard in {len(ahead['Jaccard'])} of {len(NAMES)}"
        f" structures{', not in ' + ', '.join(behind) if behind else ''}.",
    )


def _mean(numbers: Mapping[str, Any], loss: str, kind: str, name: str) -> float:
    return fmean(each(numbers[loss][kind], name))


BRAIN = Experiment(
    "lovasz/table-b2",
    "Subcortical structures of the brain",
    "Table B.2, with the network of table B.1",
    "Lovász-Softmax improves the Jaccard and the Dice index of every structure.",
    TABLE_B2,
    run,
    verdict,
)
