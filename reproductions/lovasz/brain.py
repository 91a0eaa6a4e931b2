"""Table B.2: subcortical structures of the brain, cross-entropy against Lovász-Softmax."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from evalgrad_lab.runs import Runs
from evalgrad_lab.tune import product
from reproductions.claims import Claim, above, each, obstacle, spread
from reproductions.experiment import Experiment, Outcome, Table
from reproductions.lovasz.brain_pieces import BEND, FOLDS, LOSSES, NAMES, train_brain
from reproductions.sizes import Size, by_size, on_fetched_data
from reproductions.training import rates_in_words, tuned

INDICES = ("Jaccard", "Dice")
RATES = [0.03, 0.1]
SETTINGS = by_size("width epochs count slices", tiny=(4, 1, 9, 2), full=(8, 30, 18, 8))
PRINTED = ("Thalamus", "Caudate", "Putamen", "Pallidum", "mean")
TABLE_B2 = {
    loss: {k: dict(zip(PRINTED, row, strict=True)) for k, row in zip(INDICES, rows, strict=True)}
    for loss, rows in (
        (
            "cross-entropy",
            ((72.74, 52.31, 61.55, 54.04, 60.16), (84.17, 68.33, 76.07, 70.02, 74.65)),
        ),
        ("Lovász", ((73.56, 54.44, 62.57, 55.74, 61.55), (84.74, 70.25, 76.89, 71.50, 75.84))),
    )
}


def run(size: Size, runs: Runs) -> Outcome:
    """Three folds for each loss, with the learning rate that the first of them chose."""
    on_fetched_data("lovasz/table-b2", size, "brain")
    setting, folds = SETTINGS[size], list(range(FOLDS))
    cases = {loss: {**setting, "loss": loss} for loss in LOSSES}
    found = tuned(runs, train_brain, cases, product({"learning_rate": RATES}), folds)
    numbers = {
        loss: {kind: each(case.results, "test", kind) for kind in INDICES}
        for loss, case in found.items()
    }
    rows = [_row(numbers[loss][kind], loss, kind) for loss in LOSSES for kind in INDICES]
    blank = [""] * (len(NAMES) + 1)
    rows.append(["constant prediction", "both", *["0.0"] * len(blank), *blank])
    columns = ["loss", "index", *NAMES, "mean", *(f"paper: {name}" for name in (*NAMES, "mean"))]
    table = Table("Test slices, mean of left and right (%)", columns, rows)
    return Outcome(numbers, _setting(setting, rates_in_words(found)), folds, [table])


def _setting(setting: Mapping[str, Any], rates: str) -> str:
    return (
        f"{setting['count']} virtual patients in place of the 18 of IBSR: one brain (T1, 1 mm)"
        " with its atlas, deformed smoothly and at random for each patient (shifts with a standard"
        f" deviation of {BEND:g} mm), each with its own bias field and noise. Folds are by"
        " patient, so the scores are on new patients, though all have one anatomy."
        f" {setting['slices']} axial slices per patient, cropped around the structures; every"
        " third patient is for test, which gives three folds. The network of table B.1 with"
        f" {setting['width']} filters instead of 64 in its first block and the other blocks in"
        f" proportion; SGD with momentum, {setting['epochs']} epochs, batches of 4; the learning"
        f" rate decays to a hundredth, from a value chosen from {RATES} by the validation Jaccard"
        f" index of the first fold: {rates}. The spread is over the folds."
    )


def _row(found: list[dict[str, float]], loss: str, kind: str) -> list[str]:
    reported = TABLE_B2[loss][kind]
    ours = [*(each(found, name) for name in NAMES), [fmean(one.values()) for one in found]]
    theirs = [reported[name] for name in (*NAMES, "mean")]
    return [loss, kind, *map(spread, ours), *(f"{value:.2f}" for value in theirs)]


def judge(numbers: Mapping[str, Any]) -> list[Claim]:
    """Is Lovász ahead on average and in every structure? `numbers[loss][index][fold][structure]`"""
    rows = []
    for kind in INDICES:
        ours, theirs = (numbers[loss][kind] for loss in ("Lovász", "cross-entropy"))
        paper = [TABLE_B2[loss][kind] for loss in ("Lovász", "cross-entropy")]
        means = [[fmean(fold.values()) for fold in one] for one in (ours, theirs)]
        effects = {name: paper[0][name] - paper[1][name] for name in (*NAMES, "mean")}
        # nothing but background has an index of 0 in every structure
        unless = obstacle(dict(zip(("Lovász", "cross-entropy"), means, strict=True)), 0.0)
        how: Any = {"unless": unless}
        text = f"Lovász-Softmax has the higher {kind} index"
        rows.append(above(f"{text}, mean", *means, paper=effects["mean"], **how))
        rows += [
            above(f"{text}, {n}", each(ours, n), each(theirs, n), paper=effects[n], **how)
            for n in NAMES
        ]
    return rows


BRAIN = Experiment(
    "lovasz/table-b2",
    "Subcortical structures of the brain",
    "Table B.2, with the network of table B.1",
    "Lovász-Softmax improves the Jaccard and the Dice index of every structure.",
    run,
    judge,
    full=True,
)
