"""Table 2, figures 3 and 4: loss and sampling, apart and together; which classes gain, and when."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from evalgrad_lab.report.panels import rank_correlation
from evalgrad_lab.runs import Runs
from reproductions.claims import Claim, above, best, each, last_looks, minus, spread
from reproductions.data_sets import APART, SCENES, SHARED, DataSet
from reproductions.drawing import new_figure
from reproductions.experiment import Experiment, Outcome, Table, elsewhere
from reproductions.loss_max_pooling.sizes import (
    METHODS,
    SEEDS,
    obstacle_of,
    obstacle_of_loss,
    seeds_of,
    tuned,
)
from reproductions.sizes import Size

# bootstrapping is a deeper network of others, without a number for its own base
REPORTED = dict(zip(METHODS, (72.55, 73.63, 69.81, 74.64, 74.17, 75.06), strict=True))
LATE = "mean and deviation over the last three"
RIVALS = {name: METHODS[name] for name in ("BASE+", "LMP")}


def run_table(size: Size, runs: Runs, data: DataSet = SCENES) -> Outcome:
    """The methods, beside the base and the constant prediction; on CamVid in tiles as well."""
    found = tuned(size, runs, METHODS, data)
    numbers = found.numbers()
    tiles = {name: each(method.results, "tiles") for name, method in found.methods.items()}
    known = {name: spread(some) for name, some in tiles.items() if None not in some}
    rows = [
        [name, spread(scores), *([known.get(name, "")] if known else []), REPORTED.get(name, "")]
        for name, scores in found.tests().items()
    ]
    extra = ["ours, in tiles"] if known else []
    table = Table("Test mIoU, %", ["method", "ours", *extra, "paper (Cityscapes)"], rows)
    words = (
        " Tiles: five of full height; neighbours overlap by a tenth of the width." if known else ""
    )
    return Outcome(numbers, found.words + words, seeds_of(data, size), [table])


def judge_table(numbers: Mapping[str, Any]) -> list[Claim]:
    """The paper's order, weights < BASE < BASE+ < loss only < LMP, as separate steps."""
    plain, loss = obstacle_of(numbers), obstacle_of_loss(numbers)
    steps = {
        "loss and sampling together are above BASE+": ("LMP", "BASE+"),
        "the loss alone is above BASE": ("proposed loss only", "BASE"),
        "the sampling alone is above BASE": ("BASE+", "BASE"),
        "class weights by inverse median frequency hurt": ("BASE", "inverse median frequency"),
    }
    rows = [
        above(
            text,
            numbers[a],
            numbers[b],
            paper=REPORTED[a] - REPORTED[b],
            unless=loss if "loss" in text else plain,
        )
        for text, (a, b) in steps.items()
    ]
    methods = {name: numbers[name] for name in METHODS}
    return [*rows, best("LMP is the best of all", methods, "LMP", paper=0.42, unless=loss)]


def run_classes(size: Size, runs: Runs, data: DataSet = SCENES) -> Outcome:
    """Figure 3."""
    found = tuned(size, runs, {**RIVALS, "BASE": METHODS["BASE"]}, data)
    pixels = [sum(some) for some in zip(*each(found.methods["LMP"].results, "pixels"), strict=True)]
    ours, others = (each(found.methods[name].results, "per_class") for name in ("LMP", "BASE+"))
    gains = [minus(*pair) for pair in zip(ours, others, strict=True)]  # of seed and class
    kept = sorted((n, fmean(seed[at] for seed in gains), at) for at, n in enumerate(pixels))
    most = max(pixels)  # of the class that the constant prediction names
    rows = [
        [
            data.classes[at],
            count,
            *(spread([seed[at] for seed in some]) for some in (others, ours, gains)),
            f"{100 * most / sum(pixels):.1f}" if count == most else "0.0",
        ]
        for count, _, at in kept
    ]
    title = "IoU per class, %, from the rarest to the most frequent"
    caption = "Figure 3: the gain of each class against its number of pixels"
    columns = ["class", "test pixels, all seeds", "BASE+", "LMP", "gain", "constant"]
    tables = [Table(title, columns, rows)]
    numbers = {"pixels": pixels, "ours": ours, "others": others, "tests": found.numbers()}
    named = [(count, gain, data.classes[at]) for count, gain, at in kept]
    figures = {caption: _draw_gains(named)}
    return Outcome(numbers, found.words, seeds_of(data, size), tables, figures)


def _draw_gains(classes: Sequence[tuple[int, float, str]]) -> Figure:
    figure = new_figure(5.5, 3.0)
    panel = figure.subplots()
    panel.axhline(0, color="grey", linewidth=0.8)
    offset: Any = {"textcoords": "offset points", "xytext": (4, 4), "fontsize": 7}
    for count, gain, label in classes:
        panel.semilogx(count, gain, "o", color="C0")
        panel.annotate(label, (count, gain), **offset)
    panel.set(xlabel="test pixels of the class", ylabel="LMP - BASE+, points of IoU")
    return figure


def judge_classes(numbers: Mapping[str, Any]) -> list[Claim]:
    """Most classes gain, and the rarer a class the more. A class that neither network finds can
    neither gain nor lose.
    """
    how: Any = {"unless": obstacle_of_loss(numbers["tests"])}
    share, ranks = [], []
    for pair in zip(numbers["ours"], numbers["others"], strict=True):
        classes = zip(numbers["pixels"], *pair, strict=True)
        alive = [(count, ours - other) for count, ours, other in classes if ours or other]
        gains = [gain for _, gain in alive]
        share.append(100 * fmean(gain > 0 for gain in gains))
        ranks.append(-(rank_correlation([count for count, _ in alive], gains) or 0.0))
    words = "the rarer a class, the larger its gain (rank correlation with rarity)"
    return [
        above(
            "more than half of the classes gain (% of the classes, minus 50)",
            share,
            50.0,
            paper=44.7,
            **how,
        ),
        above(words, ranks, 0.0, digits=2, **how),
    ]


def run_evolution(size: Size, runs: Runs) -> Outcome:
    """Figure 4, and the IoU of the rarer classes at the same moments."""
    found = tuned(size, runs, {**RIVALS, "BASE": METHODS["BASE"]})
    methods = {name: found.methods[name].results for name in RIVALS}
    curves = {
        name: [[y for _, y in one["curve"]] for one in some] for name, some in methods.items()
    }
    moments = [step for step, _ in methods["LMP"][0]["curve"]]
    means = {name: map(fmean, zip(*curves[name], strict=True)) for name in RIVALS}
    rows = [
        [name, *(f"{mean:.1f}" for mean in course), last_looks(curves[name])]
        for name, course in means.items()
    ]
    rows.append(["constant prediction", *["0.0"] * (len(moments) + 1)])  # none of the rarer classes
    pictures = {name: some[0]["pictures"] for name, some in methods.items()}
    title = "Validation IoU of the rarer half of the classes, %, at each iteration"
    caption = (
        "Figure 4: image and truth, then the prediction during fine-tuning, BASE+ (odd rows) and"
        " LMP (even rows)"
    )
    means_of = {name: [fmean(curve) for curve in curves[name]] for name in RIVALS}
    return Outcome(
        {**means_of, "tests": found.numbers()},
        f"{found.words} The pictures are two training images of the first seed.",
        SEEDS[size],
        [Table(title, ["method", *map(str, moments), LATE], rows)],
        {caption: _strip(pictures, moments)},
    )


def _strip(pictures: Mapping[str, Any], moments: Sequence[int]) -> Figure:
    figure = new_figure(7.5, 3.8)
    panels = figure.subplots(4, 1 + len(moments))
    labelled = {"cmap": mpl.colormaps["tab20"], "vmin": 0, "vmax": 19}
    firsts: Any = (("images", {"cmap": "grey"}), ("target", labelled))
    for image in range(2):
        for row, (name, found) in enumerate(pictures.items()):
            line, (first, style) = panels[2 * image + row], firsts[row]
            line[0].imshow(found[first][image], **style)
            line[0].set_ylabel(name, fontsize=7)
            for panel, labels, moment in zip(line[1:], found["course"], moments, strict=True):
                panel.imshow(labels[image], **labelled)
                panel.set_title(str(moment), fontsize=6)
    for panel in panels.flat:
        panel.set(xticks=[], yticks=[])
    return figure


def judge_evolution(numbers: Mapping[str, Any]) -> list[Claim]:
    """Sooner: the IoU of the rarer classes, averaged over the training, is higher."""
    words = "the IoU of the rarer classes, averaged over the training, is higher with LMP"
    unless = obstacle_of_loss(numbers["tests"])
    return [above(words, numbers["LMP"], numbers["BASE+"], unless=unless)]


TABLE_2 = Experiment(
    "loss_max_pooling/table-2",
    "The loss and the sampling, apart and together",
    "Section 5.2, table 2",
    "the loss alone and the sampling alone both beat the baseline, and together they are best;"
    " class weights by inverse median frequency hurt.",
    run_table,
    judge_table,
)
FIGURE_3 = Experiment(
    "loss_max_pooling/figure-3",
    "Which classes gain",
    "Section 5.2, figure 3",
    "18 of 19 classes gain, the under-represented ones most, although the loss does not depend on"
    " the classes.",
    run_classes,
    judge_classes,
)
FIGURE_4 = Experiment(
    "loss_max_pooling/figure-4",
    "Predictions during training",
    "Section 5.2, figure 4",
    "loss max-pooling improves under-represented classes sooner than the plain loss.",
    run_evolution,
    judge_evolution,
)
CAMVID = [elsewhere(one, data) for data in (SHARED, APART) for one in (TABLE_2, FIGURE_3)]
