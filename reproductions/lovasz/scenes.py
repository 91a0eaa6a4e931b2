"""Table 2 and figure 6: multi-class, and the three kinds of mIoU during fine-tuning."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import correlation
from typing import Any

from matplotlib.figure import Figure

from evalgrad_lab.runs import Runs
from evalgrad_lab.tune import Tuned
from reproductions.claims import Claim, above, each, minus, obstacle, similar, spread
from reproductions.drawing import mean_curve, new_figure, plot_lines
from reproductions.experiment import Experiment, Outcome, Size, Table, by_size
from reproductions.lovasz.scenes_pieces import fine_tune_scenes
from reproductions.scene_base import SCENES, in_words, with_bases
from reproductions.training import best_forks, rates_in_words

RATES = [0.001, 0.003]
SETTINGS = by_size(
    "rates iterations every",
    tiny=(RATES[:1], 2, 1),
    default=(RATES, 300, 50),
    full=(RATES, 400, 50),
)
SEEDS = {"tiny": [0], "default": list(range(5)), "full": list(range(10))}
KINDS = ("dataset", "batch", "image")  # of mIoU
SCALES = ("dataset", "multi-scale")
ENDS, LOSSES = ("", " + equibatch", " + equibatch, longer"), ("cross-entropy", "Lovász")
# variant: loss, equibatch, factor of the iterations (the paper's 20K and 30K)
FACTORS = dict(zip(ENDS, ((False, 1.0), (True, 1.0), (True, 1.5)), strict=True))
VARIANTS = {f"{loss}{end}": [loss, *how] for loss in LOSSES for end, how in FACTORS.items()}
VARIANTS["Lovász per image"] = ["Lovász per image", False, 1.0]
# Validation mIoU of table 2: single-scale and multi-scale
TABLE_2 = {
    "cross-entropy": (74.64, 76.23),
    "cross-entropy + equibatch": (75.53, 76.70),
    "cross-entropy + equibatch, longer": (74.97, 76.24),
    "Lovász": (76.56, 77.24),
    "Lovász + equibatch": (76.53, 77.28),
    "Lovász + equibatch, longer": (77.41, 78.22),
}
SAME = 0.5  # points of mIoU: a gain within this is called none


def _tuned(size: Size, runs: Runs) -> tuple[dict[str, Tuned], dict[str, list[Any]], str]:
    """Every variant at its best rate; base and constant prediction by seed; the setting in words.
    Table and figure share the runs.
    """
    setting = SETTINGS[size]
    asked = [
        {**start, **setting, "variants": VARIANTS} for start in with_bases(runs, size, SEEDS[size])
    ]
    found = runs.run(fine_tune_scenes, asked)
    tuned = best_forks(VARIANTS, each(found, "tuned"), setting["rates"])
    words = (
        f"{in_words(SCENES[size])}. From it each variant trains {setting['iterations']} iterations,"
        " `longer` half as many again, cross-entropy as well; learning rate of"
        f" {setting['rates']} by validation mIoU: {rates_in_words(tuned)}."
    )
    return tuned, {name: each(found, name) for name in ("constant", "base")}, words


def run_table(size: Size, runs: Runs) -> Outcome:
    """Table 2 without the CRF."""
    tuned, fixed, words = _tuned(size, runs)
    seen = {name: {k: each(tuned[name].results, "test", k) for k in SCALES} for name in TABLE_2}
    numbers = seen | {name: {"dataset": each(some, "dataset")} for name, some in fixed.items()}
    rows = [[name, spread(numbers[name]["dataset"]), "", "", ""] for name in fixed]
    rows += [
        [name, *map(spread, some.values()), *(f"{value:.2f}" for value in TABLE_2[name])]
        for name, some in seen.items()
    ]
    names = ["single-scale", "multi-scale"]
    columns = ["network", *names, *(f"paper: {name}" for name in names)]
    table = Table("Dataset mIoU (%) on test scenes", columns, rows)
    return Outcome(numbers, f"{words} No CRF.", SEEDS[size], [table])


def judge_table(numbers: Mapping[str, Any]) -> list[Claim]:
    """Lovász is above; equibatch helps cross-entropy, longer training Lovász."""
    miou = {name: some["dataset"] for name, some in numbers.items()}
    networks = {name: miou[name] for name in TABLE_2}
    moved = minus(miou["cross-entropy"], miou["base"])
    unless = obstacle(networks, miou["constant"], moved)
    paper = {name: single for name, (single, _) in TABLE_2.items()}
    rows = [
        above(
            f"Lovász is above cross-entropy{end}",
            miou[f"Lovász{end}"],
            miou[f"cross-entropy{end}"],
            paper=paper[f"Lovász{end}"] - paper[f"cross-entropy{end}"],
            unless=unless,
        )
        for end in ENDS
    ]
    steps = dict(zip(("equibatch", "longer training"), pairwise(ENDS), strict=True))
    helped = {"equibatch": "cross-entropy", "longer training": "Lovász"}
    for what, (start, end) in steps.items():
        for loss in LOSSES:
            pair, how = (miou[f"{loss}{end}"], miou[f"{loss}{start}"]), {"unless": unless}
            effect: Any = {"paper": paper[f"{loss}{end}"] - paper[f"{loss}{start}"], **how}
            if helped[what] == loss:
                rows.append(above(f"{what} helps {loss}", *pair, **effect))
            else:
                text = f"{what} hardly moves {loss}"
                rows.append(similar(text, *pair, bound=SAME, **effect))
    scales = [minus(*(numbers[name][k] for k in SCALES[::-1])) for name in TABLE_2]
    gain = [sum(seed) / len(seed) for seed in zip(*scales, strict=True)]
    reason = unless or "trained without the paper's random rescaling"
    return [*rows, above("several scales help", gain, 0.0, paper=1.0, unless=reason)]


def run_curves(size: Size, runs: Runs) -> Outcome:
    """Figure 6: mIoU on validation during fine-tuning, with three losses."""
    tuned, fixed, words = _tuned(size, runs)
    names = ["cross-entropy", "Lovász", "Lovász per image"]
    curves = {name: each(tuned[name].results, "curve") for name in names}
    tests = fixed | {name: each(tuned[name].results, "test") for name in names}
    numbers = {name: {key: each(some, key) for key in KINDS} for name, some in tests.items()}
    rows = [[name, *map(spread, some.values())] for name, some in numbers.items()]
    columns = ["network", "dataset", "batches of 16, present classes", "image, all classes"]
    table = Table("mIoU (%) on test scenes at the end", columns, rows)
    kinds = "dataset, batch and image mIoU on validation"
    caption = f"Figure 6: {kinds} during fine-tuning, mean over the seeds"
    course = [{key: each(one, key) for key in KINDS} for one in curves["Lovász"]]
    follows = {k: [correlation(c[k], c["dataset"]) for c in course] for k in KINDS[1:]}
    figures = {caption: _draw(curves)}
    return Outcome(numbers | {"correlation": follows}, words, SEEDS[size], [table], figures)


def _draw(curves: Mapping[str, Sequence[Any]]) -> Figure:
    figure = new_figure(8.0, 2.8)
    for panel, key in zip(figure.subplots(1, 3), KINDS, strict=True):
        lines = {name: mean_curve(some, key) for name, some in curves.items()}
        plot_lines(panel, lines, title=f"{key} mIoU, %", xlabel="iteration")
    return figure


def judge_curves(numbers: Mapping[str, Any]) -> list[Claim]:
    """Training per image wins image mIoU and loses dataset mIoU, which batch mIoU follows."""
    networks = {name: numbers[name]["dataset"] for name in ("cross-entropy", "Lovász")}
    single, batch = numbers["Lovász per image"], numbers["Lovász"]
    moved = minus(networks["cross-entropy"], numbers["base"]["dataset"])
    every = networks | {"Lovász per image": single["dataset"]}
    unless = obstacle(every, numbers["constant"]["dataset"], moved)
    how: Any = {"unless": unless}
    follows = numbers["correlation"]
    words = "the batch mIoU follows the dataset mIoU more closely than the image mIoU does"
    return [
        above("training per image gains image mIoU", single["image"], batch["image"], **how),
        above("and loses dataset mIoU", batch["dataset"], single["dataset"], **how),
        above(f"{words} (correlation)", follows["batch"], follows["image"], digits=2, **how),
    ]


TABLE = Experiment(
    "lovasz/table-2",
    "Multi-class: cross-entropy and Lovász, equibatch, longer training",
    "Table 2",
    "Lovász-Softmax has the higher mIoU in every setting; equibatch helps cross-entropy and hardly"
    " Lovász; longer training helps Lovász alone.",
    run_table,
    judge_table,
)
CURVES = Experiment(
    "lovasz/figure-6",
    "Batch, image and dataset mIoU during training",
    "Figure 6",
    "the batch mIoU over present classes follows the dataset mIoU; the image mIoU is a poor"
    " surrogate: optimising one harms the other.",
    run_curves,
    judge_curves,
)
