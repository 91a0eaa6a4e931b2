"""Table 2 and figure 6: multi-class, and the three kinds of mIoU during training."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import correlation, fmean
from typing import Any

from matplotlib.figure import Figure

from evalgrad_lab.runs import Runs
from evalgrad_lab.tune import Tuned, product
from reproductions.drawing import mean_curve, new_figure, plot_lines
from reproductions.experiment import Experiment, Outcome, Size, Table, by_size
from reproductions.lovasz.scenes_pieces import train_scenes
from reproductions.training import rates_in_words, repeated, tuned
from reproductions.verdicts import Verdict, each, judge, spread

RATES = {"tiny": [0.01], "default": [0.003, 0.01, 0.03], "full": [0.003, 0.01, 0.03]}
SETTINGS = by_size(
    "sizes iterations every",
    tiny=([32, 16, 16], 2, 1),
    default=([1000, 200, 400], 400, 50),
    full=([2000, 400, 1000], 2000, 200),
)
SEEDS = {"tiny": [0], "default": [0, 1, 2], "full": [0, 1, 2, 3, 4]}
KINDS = ("dataset", "batch", "image")  # of mIoU
# variant: loss, equibatch, factor of the iterations (the paper's 20K and 30K)
VARIANTS: dict[str, tuple[str, bool, float]] = {
    "cross-entropy": ("cross-entropy", False, 1.0),
    "cross-entropy + equibatch": ("cross-entropy", True, 1.0),
    "cross-entropy + equibatch, longer": ("cross-entropy", True, 1.5),
    "Lovász": ("Lovász", False, 1.0),
    "Lovász + equibatch": ("Lovász", True, 1.0),
    "Lovász + equibatch, longer": ("Lovász", True, 1.5),
    "Lovász per image": ("Lovász per image", False, 1.0),
}
# Validation mIoU of table 2: single-scale and multi-scale
TABLE_2 = {
    "cross-entropy": (74.64, 76.23),
    "cross-entropy + equibatch": (75.53, 76.70),
    "cross-entropy + equibatch, longer": (74.97, 76.24),
    "Lovász": (76.56, 77.24),
    "Lovász + equibatch": (76.53, 77.28),
    "Lovász + equibatch, longer": (77.41, 78.22),
}


def _trained(
    size: Size, runs: Runs, variants: Sequence[str]
) -> tuple[dict[str, Tuned], dict[str, list[Any]]]:
    """Each loss at the rate chosen with the first seed; the results of each variant by seed."""
    setting, seeds = SETTINGS[size], SEEDS[size]
    wanted = dict.fromkeys(VARIANTS[name][0] for name in variants)
    plain = {loss: {**setting, "loss": loss, "equibatch": False} for loss in wanted}
    grid = product({"learning_rate": RATES[size]})
    searched = tuned(runs, train_scenes, plain, grid, [], search=seeds[:1])
    cases = {}
    for name in variants:
        loss, equibatch, factor = VARIANTS[name]
        steps = round(factor * setting["iterations"])
        case = {**plain[loss], **searched[loss].point, "iterations": steps}
        cases[name] = {**case, "equibatch": equibatch}
    return searched, repeated(runs, train_scenes, cases, seeds)


def _setting(size: Size, rates: Mapping[str, Tuned]) -> str:
    setting = SETTINGS[size]
    train, validation, test = setting["sizes"]
    return (
        f"digit scenes of 32 x 32, 11 classes, {train} + {validation} + {test} scenes; U-Net of 16"
        f" channels from scratch, Adam, poly schedule, {setting['iterations']} iterations of 16"
        f" scenes, `longer` half as many again; learning rates of {RATES[size]} by validation mIoU"
        f" of the first seed, without equibatch and at the shorter length:"
        f" {rates_in_words(rates)}. No CRF."
    )


def run_table(size: Size, runs: Runs) -> Outcome:
    """Table 2 without the CRF."""
    rates, found = _trained(size, runs, list(TABLE_2))
    scales = ("dataset", "multi-scale")
    seen = {name: [each(runs, "test", key) for key in scales] for name, runs in found.items()}
    numbers = {
        name: dict(zip(scales, map(fmean, values), strict=True)) for name, values in seen.items()
    }
    rows = [
        [name, *map(spread, values), *(f"{value:.2f}" for value in TABLE_2[name])]
        for name, values in seen.items()
    ]
    names = ["single-scale", "multi-scale"]
    columns = ["training", *names, *(f"paper: {name}" for name in names)]
    table = Table("Dataset mIoU (%) on test scenes", columns, rows)
    return Outcome(numbers, _setting(size, rates), SEEDS[size], [table])


def table_verdict(numbers: Mapping[str, Any]) -> Verdict:
    """Lovász is above; equibatch helps cross-entropy more, longer training Lovász."""
    miou = {name: values["dataset"] for name, values in numbers.items()}
    ends, losses = ("", " + equibatch", " + equibatch, longer"), ("cross-entropy", "Lovász")
    gains = [miou[f"Lovász{end}"] - miou[f"cross-entropy{end}"] for end in ends]
    equi, longer = (
        {loss: miou[f"{loss}{end}"] - miou[f"{loss}{start}"] for loss in losses}
        for start, end in pairwise(ends)
    )
    scales = fmean(values["multi-scale"] - values["dataset"] for values in numbers.values())
    reported = fmean(several - single for single, several in TABLE_2.values())
    far = longer["cross-entropy"] > longer["Lovász"]
    why = "Trained from scratch, cross-entropy is still far from its end. " if far else ""
    more = longer["Lovász"] > longer["cross-entropy"]
    return judge(
        [min(gains) > 0, equi["cross-entropy"] > equi["Lovász"], more],
        f"Lovász is {gains[0]:+.1f}, {gains[1]:+.1f} and {gains[2]:+.1f} points of mIoU from"
        " cross-entropy (plain, equibatch, longer; paper +1.9, +1.0, +2.4). Equibatch gives"
        f" cross-entropy {equi['cross-entropy']:+.1f} and Lovász {equi['Lovász']:+.1f} (paper +0.9,"
        f" 0.0). Longer training gives cross-entropy {longer['cross-entropy']:+.1f} and Lovász"
        f" {longer['Lovász']:+.1f} (paper -0.6, +0.9). {why}Several scales change the mIoU by"
        f" {scales:+.1f} (paper {reported:+.1f}).",
    )


def run_curves(size: Size, runs: Runs) -> Outcome:
    """Figure 6: mIoU on validation during training, with three losses."""
    names = ["cross-entropy", "Lovász", "Lovász per image"]
    rates, found = _trained(size, runs, names)
    curves = {name: each(runs, "curve") for name, runs in found.items()}
    tests = {name: {key: each(runs, "test", key) for key in KINDS} for name, runs in found.items()}
    last = {name: {key: fmean(some[key]) for key in KINDS} for name, some in tests.items()}
    course = {key: mean_curve(curves["Lovász"], key)[1] for key in KINDS}
    follows = {key: correlation(course[key], course["dataset"]) for key in ("batch", "image")}
    rows = [[name, *map(spread, some.values())] for name, some in tests.items()]
    columns = ["trained with", "dataset", "batches of 16, present classes", "image, all classes"]
    table = Table("mIoU (%) on test scenes at the end", columns, rows)
    kinds = "dataset, batch and image mIoU on validation"
    caption = f"Figure 6: {kinds} during training, mean over the seeds"
    numbers, figures = {"test": last, "correlation": follows}, {caption: _draw(curves)}
    return Outcome(numbers, _setting(size, rates), SEEDS[size], [table], figures)


def _draw(curves: Mapping[str, Sequence[Any]]) -> Figure:
    figure = new_figure(8.0, 2.8)
    for panel, key in zip(figure.subplots(1, 3), KINDS, strict=True):
        lines = {name: mean_curve(some, key) for name, some in curves.items()}
        plot_lines(panel, lines, title=f"{key} mIoU, %", xlabel="iteration")
    return figure


def curves_verdict(numbers: Mapping[str, Any]) -> Verdict:
    """Batch mIoU follows dataset mIoU; training per image wins image mIoU and loses the other."""
    batch, image = (numbers["test"][name] for name in ("Lovász", "Lovász per image"))
    follows, won = numbers["correlation"]["batch"], image["image"] - batch["image"]
    lost = batch["dataset"] - image["dataset"]
    return judge(
        [follows > 0.9, lost > 0, won > 0],
        f"during training the batch mIoU has a correlation of {follows:.3f} with the dataset mIoU"
        f" (the image mIoU {numbers['correlation']['image']:.3f}). At the end training per image"
        f" gives {won:+.1f} points of image mIoU and {-lost:+.1f} of dataset mIoU against training"
        " per batch, where the paper finds a gain and a loss.",
    )


TABLE = Experiment(
    "lovasz/table-2",
    "Multi-class: cross-entropy and Lovász, equibatch, longer training",
    "Table 2",
    "Lovász-Softmax has the higher mIoU in every setting; equibatch helps cross-entropy and hardly"
    " Lovász; longer training helps Lovász alone.",
    TABLE_2,
    run_table,
    table_verdict,
)
CURVES = Experiment(
    "lovasz/figure-6",
    "Batch, image and dataset mIoU during training",
    "Figure 6",
    "the batch mIoU over present classes follows the dataset mIoU; the image mIoU is a poor"
    " surrogate: optimising one harms the other.",
    {},
    run_curves,
    curves_verdict,
)
