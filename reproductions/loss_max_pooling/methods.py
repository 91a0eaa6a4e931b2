"""Table 2, figures 3 and 4: loss and sampling, apart and together; which classes gain, and when."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from evalgrad_lab.report.panels import rank_correlation
from evalgrad_lab.runs import Runs
from evalgrad_lab.tune import Tuned
from reproductions.drawing import new_figure
from reproductions.experiment import Experiment, Outcome, Size, Table
from reproductions.loss_max_pooling.sizes import BUDGETS, METHODS, trained
from reproductions.verdicts import Verdict, each, gap, in_words, judge, spread

REPORTED = dict(zip(METHODS, (72.55, 73.63, 69.81, 74.17, 75.06), strict=True))
RIVALS = {name: METHODS[name] for name in ("BASE+", "LMP")}


def run_table(size: Size, runs: Runs) -> Outcome:
    """Five methods at the short budget, the two rivals at the long one: what of it is speed?"""
    budget = BUDGETS[size]
    short = trained(runs, budget, METHODS, budget.iterations)
    long = trained(runs, budget, RIVALS, budget.long)
    numbers = {
        length: {name: each(method.results, "test") for name, method in found.items()}
        for length, found in (("short", short), ("long", long))
    }
    rows = []
    for name in METHODS:
        later = spread(numbers["long"][name]) if name in long else ""
        rate = f"{short[name].point['learning_rate']:g}"
        rows.append([name, spread(numbers["short"][name]), later, rate, REPORTED[name]])
    lengths = [f"{steps} iterations" for steps in (budget.iterations, budget.long)]
    columns = ["method", *lengths, "learning rate (short)", "paper (Cityscapes)"]
    table = Table("Test mIoU, %", columns, rows)
    return Outcome(numbers, budget.words(), budget.seeds, [table])


def verdict_table(numbers: Mapping[str, Any]) -> Verdict:
    """The paper's order: weights < BASE < BASE+ < loss only < LMP, told by its four steps."""
    short, long = numbers["short"], numbers["long"]
    steps = {
        "the loss (loss only against BASE)": gap(short["proposed loss only"], short["BASE"]),
        "the sampling (BASE+ against BASE)": gap(short["BASE+"], short["BASE"]),
        "both (LMP against BASE+)": gap(short["LMP"], short["BASE+"]),
    }
    gains = list(steps.values())
    weights = gap(short["inverse median frequency"], short["BASE"])
    steps["class weights (against BASE; the paper loses 2.7)"] = weights
    later = gap(long["LMP"], long["BASE+"])
    claims = [gain.mean > 0 and gain.verdict != "loss" for gain in gains] + [weights.mean < 0]
    told = "; ".join(f"{name} {in_words(step)}" for name, step in steps.items())
    return judge(
        claims,
        f"points of mIoU by {told}. With the longer training LMP is {in_words(later)} from BASE+.",
    )


def run_classes(size: Size, runs: Runs) -> Outcome:
    """Figure 3."""
    budget = BUDGETS[size]
    found = trained(runs, budget, RIVALS, budget.iterations)
    pixels = [sum(some) for some in zip(*each(found["LMP"].results, "pixels"), strict=True)]
    gains = [_mean_gain(found, label) for label in range(len(pixels))]
    pairs = enumerate(zip(pixels, gains, strict=True))
    kept = sorted((count, gain, label) for label, (count, gain) in pairs if gain is not None)
    rows = [[label, count, f"{gain:+.1f}"] for count, gain, label in kept]
    numbers = {"pixels": [count for count, _, _ in kept], "gains": [gain for _, gain, _ in kept]}
    title = "IoU of LMP minus BASE+ per class, mean over the seeds"
    caption = "Figure 3: the gain of each class against its number of pixels"
    tables = [Table(title, ["class", "test pixels", "gain"], rows)]
    figures = {caption: _draw_gains(kept)}
    return Outcome(numbers, budget.words(), budget.seeds, tables, figures)


def _draw_gains(classes: Sequence[tuple[int, float, int]]) -> Figure:
    figure = new_figure(5.5, 3.0)
    panel = figure.subplots()
    panel.axhline(0, color="grey", linewidth=0.8)
    offset: Any = {"textcoords": "offset points", "xytext": (4, 4), "fontsize": 7}
    for count, gain, label in classes:
        panel.semilogx(count, gain, "o", color="C0")
        panel.annotate(str(label), (count, gain), **offset)
    panel.set(xlabel="test pixels of the class", ylabel="LMP - BASE+, points of IoU")
    return figure


def _mean_gain(found: Mapping[str, Tuned], label: int) -> float | None:
    """Over the seeds in whose test part the class occurs."""
    ours, others = (each(found[name].results, "per_class") for name in ("LMP", "BASE+"))
    pairs = [(one[label], other[label]) for one, other in zip(ours, others, strict=True)]
    gains = [ours - other for ours, other in pairs if ours is not None and other is not None]
    return fmean(gains) if gains else None


def verdict_classes(numbers: Mapping[str, Any]) -> Verdict:
    """Most classes gain, and the rarer a class the more."""
    gains = numbers["gains"]
    correlation = rank_correlation(numbers["pixels"], gains)
    better = sum(gain > 0 for gain in gains)
    half = len(gains) // 2
    return judge(
        [better > len(gains) / 2, correlation is not None and correlation < 0],
        f"{better} of {len(gains)} classes gain (paper: 18 of 19); the rarer half gains"
        f" {fmean(gains[:half]):+.1f} points on average, the others {fmean(gains[half:]):+.1f};"
        " rank correlation of gain and pixel count "
        + ("undefined." if correlation is None else f"{correlation:+.2f}."),
    )


def run_evolution(size: Size, runs: Runs) -> Outcome:
    """Figure 4, and the IoU of the rarer classes at the same moments."""
    budget = BUDGETS[size]
    found = trained(runs, budget, RIVALS, budget.iterations)
    curves = {
        name: [[row[2] for row in result["curve"]] for result in method.results]
        for name, method in found.items()
    }
    moments = [row[0] for row in found["LMP"].results[0]["curve"]]
    means = {name: map(fmean, zip(*curves[name], strict=True)) for name in RIVALS}
    rows = [[name, *(f"{mean:.1f}" for mean in course)] for name, course in means.items()]
    pictures = {name: method.results[0]["pictures"] for name, method in found.items()}
    title = "Validation IoU of the rarer half of the classes, %, at each iteration"
    caption = (
        "Figure 4: image and truth, then the prediction during training, BASE+ (odd rows) and LMP"
        " (even rows)"
    )
    return Outcome(
        {name: [fmean(curve) for curve in curves[name]] for name in RIVALS},
        budget.words() + " The pictures are two training images of the first seed.",
        budget.seeds,
        [Table(title, ["method", *map(str, moments)], rows)],
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


def verdict_evolution(numbers: Mapping[str, Any]) -> Verdict:
    """Sooner: the IoU of the rarer classes, averaged over the training, is higher."""
    lead = gap(numbers["LMP"], numbers["BASE+"])
    return judge(
        [lead.mean > 0 and lead.verdict != "loss"],
        "the IoU of the rarer classes, averaged over the moments of the training, is"
        f" {in_words(lead)} points with LMP against BASE+.",
    )


TABLE_2 = Experiment(
    "loss_max_pooling/table-2",
    "The loss and the sampling, apart and together",
    "Section 5.2, table 2",
    "both the loss alone and the sampling alone beat the baseline, together they are best; weights"
    " by inverse median frequency harm.",
    REPORTED,
    run_table,
    verdict_table,
)
FIGURE_3 = Experiment(
    "loss_max_pooling/figure-3",
    "Which classes gain",
    "Section 5.2, figure 3",
    "18 of 19 classes gain, the under-represented ones most, although the loss knows nothing of"
    " classes.",
    {"classes that gain": 18, "classes": 19},
    run_classes,
    verdict_classes,
)
FIGURE_4 = Experiment(
    "loss_max_pooling/figure-4",
    "Predictions during training",
    "Section 5.2, figure 4",
    "loss max-pooling improves under-represented classes sooner than the plain loss.",
    {},
    run_evolution,
    verdict_evolution,
)
