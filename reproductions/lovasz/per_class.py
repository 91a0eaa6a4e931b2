"""Table A.1: training loss against evaluated loss, class by class."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from evalgrad_lab.runs import Runs
from evalgrad_lab.tune import Tuned
from reproductions.experiment import Experiment, Outcome, Size, Table, by_size
from reproductions.lovasz.binary import TABLE_A2, numbers_in
from reproductions.lovasz.binary_pieces import EVALUATED
from reproductions.lovasz.per_class_pieces import one_by_one
from reproductions.training import best_forks, rates_in_words
from reproductions.verdicts import Verdict, each, judge, spread

RATES = [0.001, 0.003, 0.01]
SETTINGS = by_size(
    "labels sizes base_iterations iterations rates",
    tiny=([1, 2], [32, 32, 32], 2, 1, RATES[:2]),
    default=(list(range(1, 11)), [1000, 200, 400], 1200, 30, RATES),
    full=(list(range(1, 11)), [2000, 400, 1000], 2000, 250, RATES),
)
SEEDS = {"tiny": [0], "default": [0, 1], "full": [0, 1, 2]}


# Image IoU of table A.1: base network, cross-entropy, hinge, Lovász hinge; aeroplane to tvmonitor
TABLE_A1 = {
    "base": numbers_in(
        "86.2 63.2 84.5 80.3 71.9 90.7 76.3 88.7 59.3 83.4 66.7 83.8 82.4 83.8 78.2 66.1 83.7 69.7"
        " 88.8 78.1"
    ),
    "cross-entropy": numbers_in(
        "88.6 61.2 82.1 75.8 70.1 90.2 77.0 86.0 54.0 84.0 70.6 82.1 82.1 82.6 79.1 65.6 80.3 69.6"
        " 83.9 77.8"
    ),
    "hinge": numbers_in(
        "87.7 58.7 81.3 73.2 68.0 90.4 75.5 86.5 51.2 82.6 70.0 81.7 79.1 82.8 77.1 65.3 78.1 67.7"
        " 81.3 77.8"
    ),
    "Lovász hinge": TABLE_A2["Lovász hinge"],
}


def choose(found: list[Any], rates: list[float]) -> dict[str, Tuned]:
    """Every loss at the learning rate with the best validation IoU, over classes and seeds."""

    def mean(classes: list[Any]) -> float:
        return fmean(each(classes, "validation"))

    return best_forks(EVALUATED, each(found, "tuned"), rates, mean)


def run(size: Size, runs: Runs) -> Outcome:
    """Fine-tune to every digit with every loss."""
    setting, seeds = SETTINGS[size], SEEDS[size]
    found = runs.run(one_by_one, [{**setting, "seed": seed} for seed in seeds])
    chosen = choose(found, setting["rates"])
    seen = {"base": each(found, "base"), **{loss: chosen[loss].results for loss in EVALUATED}}
    by_class: list[dict[str, Any]] = [
        {name: [classes[at] for classes in results] for name, results in seen.items()}
        for at in range(len(setting["labels"]))
    ]

    def means(loss: str, *keys: str) -> list[float]:
        return [fmean(each(entry[loss], *keys)) for entry in by_class]

    losses = {loss: {name: means(loss, "losses", name) for name in EVALUATED} for loss in EVALUATED}
    iou = {"base": means("base"), **{loss: means(loss, "iou") for loss in EVALUATED}}
    numbers = {"iou": iou, "losses": losses}
    tables = [_matrix(setting["labels"], by_class), _means(numbers)]
    return Outcome(numbers, _setting(setting, rates_in_words(chosen)), seeds, tables)


def _setting(setting: Mapping[str, Any], rates: str) -> str:
    train, validation, test = setting["sizes"]
    return (
        f"digit scenes, {train} + {validation} + {test}; one U-Net per seed trained for all 11"
        f" classes with cross-entropy ({setting['base_iterations']} iterations), then fine-tuned to"
        f" the log-odds of one digit ({setting['iterations']} iterations of 16 scenes, half of them"
        " with the digit); test scenes half with the digit, an empty scene predicted empty counts"
        f" as 1. Learning rates of {setting['rates']} by validation IoU: {rates}."
    )


def _matrix(labels: list[int], by_class: list[dict[str, Any]]) -> Table:
    """Four rows per digit, as in the paper."""
    rows = []
    for label, entry in zip(labels, by_class, strict=True):
        for name in EVALUATED:
            losses = [spread(each(entry[loss], "losses", name), 3) for loss in EVALUATED]
            rows.append([f"digit {label - 1}: {name}", "", *losses])
        ious = [spread(each(entry[loss], "iou")) for loss in EVALUATED]
        rows.append([f"digit {label - 1}: **image IoU**", spread(entry["base"]), *ious])
    columns = ["", "base network", *(f"trained on {loss}" for loss in EVALUATED)]
    return Table("Table A.1: measured on test, class by class", columns, rows)


def _means(numbers: Mapping[str, Any]) -> Table:
    rows = [
        [name, "", *(fmean(numbers["losses"][loss][name]) for loss in EVALUATED), "", "", "", ""]
        for name in EVALUATED
    ]
    ious = [f"{fmean(values):.1f}" for values in numbers["iou"].values()]
    rows.append(["image IoU", *ious, *(f"{fmean(values):.1f}" for values in TABLE_A1.values())])
    names = [f"{who}: {name}" for who in ("ours", "paper") for name in numbers["iou"]]
    return Table("Mean over the classes", ["", *names], rows)


def verdict(numbers: Mapping[str, Any]) -> Verdict:
    """How often the Lovász hinge has the best IoU, and the diagonal the best loss."""
    iou, losses = numbers["iou"], numbers["losses"]
    classes = len(iou["base"])
    wins = sum(max(iou, key=lambda name: iou[name][at]) == "Lovász hinge" for at in range(classes))
    diagonal = sum(
        min(EVALUATED, key=lambda loss: losses[loss][name][at]) == name
        for name in EVALUATED
        for at in range(classes)
    )
    gain = fmean(iou["Lovász hinge"]) - max(fmean(iou["cross-entropy"]), fmean(iou["hinge"]))
    return judge(
        [gain > 0, 2 * wins > classes, 2 * diagonal > 3 * classes],
        f"the Lovász hinge has the best image IoU in {wins} of {classes} classes (paper 18 of 20)"
        f" and on average {gain:+.1f} points from the better of cross-entropy and hinge (paper"
        f" +3.3); {diagonal} of {3 * classes} losses are smallest after training with that very"
        " loss.",
    )


PER_CLASS = Experiment(
    "lovasz/table-a1",
    "Training loss against evaluated loss, class by class",
    "Table A.1",
    "the best value of a loss comes from training with it, and the Lovász hinge has the best image"
    " IoU in nearly every class.",
    TABLE_A1,
    run,
    verdict,
)
