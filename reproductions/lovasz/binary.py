"""Tables 1 and A.2: losses and image IoU after training with cross-entropy, hinge, Lovász hinge and
the soft Jaccard loss, each on from a network that cross-entropy has trained, as in the paper.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from evalgrad_lab.data.fetched import place
from evalgrad_lab.runs import Runs
from evalgrad_lab.tune import Tuned
from reproductions.claims import Claim, above, best, each, minus, obstacle, spread
from reproductions.experiment import Experiment, Outcome, Table
from reproductions.lovasz.binary_pieces import EVALUATED, fine_tune_binary
from reproductions.sizes import Size, by_size
from reproductions.training import best_forks, rates_in_words

RATES = [0.001, 0.003, 0.01, 0.03]
SETTINGS = by_size(
    "data sizes base_iterations iterations rates",
    tiny=("strokes", [16, 8, 8], 2, 2, RATES[:1]),
    default=("strokes", [2000, 200, 400], 1000, 200, RATES),
    full=("nuclei", [128, 48, 80], 600, 150, RATES),
)
SEEDS = {"tiny": [0], "default": list(range(5)), "full": list(range(10))}
DATA = {
    "strokes": (
        "strokes (24 x 24 pixels, the thin inner line of a digit with noise of standard deviation"
        " 1; every image has foreground)"
    ),
    "nuclei": "nuclei (256 tiles of 32 x 32 pixels of one microscope image, some without a"
    " nucleus)",
}


def numbers_in(row: str) -> list[float]:
    """Those of a row of a table."""
    return [float(number) for number in row.split()]


# Table 1, in units of the losses themselves, and image IoU: by the loss that was trained with
MEASURED = ("cross-entropy", "hinge", "Lovász hinge", "iou")
TABLE_1 = {
    name: dict(zip(MEASURED, row, strict=True))
    for name, row in (
        ("cross-entropy", (0.0684, 0.0781, 0.837, 77.14)),
        ("hinge", (0.0696, 0.0695, 0.745, 75.8)),
        ("Lovász hinge", (0.0791, 0.0711, 0.544, 80.5)),
    )
}
# per-class image IoU
TABLE_A2 = {
    "soft Jaccard": numbers_in(
        "79.9 54.7 75.5 72.5 68.7 86.2 73.3 78.4 56.6 75.4 72.2 76.9 68.8 79.4 71.7 62.1 76.5 69.9"
        " 77.8 77.1"
    ),
    "Lovász hinge": numbers_in(
        "89.6 66.3 86.9 79.9 70.5 91.2 80.5 89.8 59.6 86.3 73.8 87.6 84.8 85.4 82.0 68.0 85.3 72.1"
        " 89.7 80.6"
    ),
}


EMPTY = "Lovász hinge, empty left out"  # on nuclei, where tiles are empty
Found = Mapping[str, Tuned]  # by loss
OWN = "iou with threshold"


def _tuned(size: Size, runs: Runs, names: list[str]) -> Found:
    """Each loss at its best rate, and the base and its own further training beside them."""
    setting, seeds = SETTINGS[size], SEEDS[size]
    if setting["data"] == "nuclei":
        place("nuclei")  # tells what is missing before anything runs
    # All losses in one piece, so that both tables share it and it trains its base once.
    every = [*EVALUATED, "soft Jaccard", *([EMPTY] if setting["data"] == "nuclei" else [])]
    found = runs.run(fine_tune_binary, [{**setting, "names": every, "seed": s} for s in seeds])
    tuned = best_forks(names, each(found, "tuned"), setting["rates"])
    return {"base": Tuned({}, each(found, "base"), []), **tuned}


def _outcome(size: Size, found: Found, table: Table) -> Outcome:
    setting = SETTINGS[size]
    train, validation, test = setting["sizes"]
    chosen = rates_in_words({name: tuned for name, tuned in found.items() if tuned.point})
    return Outcome(
        {name: tuned.results for name, tuned in found.items()},
        f"{DATA[setting['data']]}, {train} + {validation} + {test} images; U-Net of 16 channels,"
        f" Adam, poly schedule, batches of 16. Base: {setting['base_iterations']} iterations of"
        f" cross-entropy; then {setting['iterations']} more iterations with each loss,"
        f" cross-entropy included; learning rates chosen from {setting['rates']} by image IoU on"
        f" validation: {chosen}. For images without foreground the Lovász hinge is their largest"
        " error, except where such images are left out. Tuned thresholds are chosen on"
        " validation.",
        SEEDS[size],
        [table],
    )


def run_matrix(size: Size, runs: Runs) -> Outcome:
    """Table 1, with a tuned threshold beside it; on nuclei also with empty tiles left out."""
    names = [*EVALUATED, *([EMPTY] if SETTINGS[size]["data"] == "nuclei" else [])]
    found = _tuned(size, runs, names)
    columns: list[Any] = [tuned.results for tuned in found.values()]
    reported = {name: ["", *(TABLE_1[loss][name] for loss in EVALUATED)] for name in MEASURED}
    blank = [""] * (1 + len(EVALUATED))
    rows = [
        [name, *_spreads([each(runs, "losses") for runs in columns], name, 3), *reported[name]]
        for name in EVALUATED
    ]
    rows.append(["image IoU", *_spreads(columns, "iou"), *reported["iou"]])
    for words, key in (("constant prediction", "constant"), ("tuned threshold", OWN)):
        rows.append([f"image IoU, {words}", *_spreads(columns, key), *blank])
    if all(alarms is not None for runs in columns for alarms in each(runs, "false alarms")):
        alarms = _spreads(columns, "false alarms")
        rows.append(["empty images with a false alarm, %", *alarms, *blank])
    names = [f"trained on {name}" for name in found] + [f"paper: {name}" for name in found][:4]
    title = "Table 1: every loss after further training with each of them"
    return _outcome(size, found, Table(title, ["measured on test", *names], rows))


def _spreads(columns: Sequence[Sequence[Any]], key: str, digits: int = 1) -> list[str]:
    return [spread(each(runs, key), digits) for runs in columns]


def judge_matrix(numbers: Mapping[str, Any]) -> list[Claim]:
    """The order of the image IoU, and the diagonal of the losses."""
    how: Any = {"unless": _obstacle(numbers)}
    text = "the Lovász hinge has the best image IoU"
    own, *others = (TABLE_1[name]["iou"] for name in EVALUATED[::-1])
    iou, tuned = ({n: each(numbers[n], key) for n in EVALUATED} for key in ("iou", OWN))
    rows = [best(text, iou, "Lovász hinge", paper=own - max(others), **how)]
    for name in EVALUATED:
        values = {
            loss: [-value for value in each(numbers[loss], "losses", name)] for loss in EVALUATED
        }
        effect = min(TABLE_1[loss][name] for loss in EVALUATED if loss != name)
        effect -= TABLE_1[name][name]
        words = f"{name} is smallest after training with it"
        rows.append(best(words, values, name, paper=effect, digits=3, **how))
    words = f"{text} with thresholds from validation (not in the paper)"
    return [*rows, best(words, tuned, "Lovász hinge", **how)]


def _obstacle(numbers: Mapping[str, Any]) -> str:
    """Every network against the constant prediction; how far cross-entropy moves the base."""
    every = {name: each(results, "iou") for name, results in numbers.items()}
    moved = minus(every["cross-entropy"], every["base"])
    return obstacle(every, each(numbers["base"], "constant"), moved)


def run_prior_work(size: Size, runs: Runs) -> Outcome:
    """Table A.2: the Lovász hinge against the soft Jaccard loss, both at their best rate."""
    found = _tuned(size, runs, ["cross-entropy", "soft Jaccard", "Lovász hinge"])
    rows = [
        [
            name,
            spread(each(tuned.results, "iou")),
            f"{fmean(TABLE_A2[name]):.1f}" if name in TABLE_A2 else "",
        ]
        for name, tuned in found.items()
    ]
    rows.append(["constant prediction", spread(each(found["base"].results, "constant")), ""])
    columns = ["loss", "image IoU", "paper, mean of 20 classes"]
    return _outcome(size, found, Table("Image IoU, best learning rate", columns, rows))


def judge_prior_work(numbers: Mapping[str, Any]) -> list[Claim]:
    """Is the Lovász hinge above?"""
    effect = fmean(TABLE_A2["Lovász hinge"]) - fmean(TABLE_A2["soft Jaccard"])
    how: Any = {"paper": effect, "unless": _obstacle(numbers)}
    pair = (each(numbers[name], "iou") for name in ("Lovász hinge", "soft Jaccard"))
    return [above("the Lovász hinge is above the soft Jaccard loss in image IoU", *pair, **how)]


MATRIX = Experiment(
    "lovasz/table-1",
    "Training loss against evaluated loss, binary",
    "Table 1",
    "each loss is lowest on new images after training with it, and the Lovász hinge gives the"
    " best image IoU.",
    run_matrix,
    judge_matrix,
    full=True,
)
PRIOR_WORK = Experiment(
    "lovasz/table-a2",
    "The soft Jaccard loss of Rahman and Wang",
    "Table A.2",
    "with the best of three learning rates, the soft Jaccard loss does not reach the image IoU of"
    " the Lovász hinge.",
    run_prior_work,
    judge_prior_work,
    full=True,
)
