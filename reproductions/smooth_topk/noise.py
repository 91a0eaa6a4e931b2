"""Tables 1 and 9: label noise within the coarse class; cross-entropy stops early."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from evalgrad_lab.runs import Runs
from reproductions.drawing import new_figure
from reproductions.experiment import Experiment, Outcome, Size, Table
from reproductions.smooth_topk.sizes import SCALES
from reproductions.smooth_topk.training import CROSS_ENTROPY, smooth
from reproductions.verdicts import Verdict, each, judge, spread

NOISE = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
TOP1 = (76.68, 68.20, 61.18, 52.50, 35.53, 14.06), (69.33, 71.30, 70.02, 67.97, 55.85, 15.28)
TOP5 = (94.34, 87.89, 83.04, 79.59, 74.80, 67.70), (94.29, 90.59, 87.39, 83.86, 79.32, 72.93)
REPORTED: dict[str, Any] = {
    "noise": NOISE,
    "top1": {"CE": TOP1[0], "L5,1": TOP1[1]},
    "top5": {"CE": TOP5[0], "L5,1": TOP5[1]},
}
OBJECTIVES = {"CE": CROSS_ENTROPY, "L5,1": smooth(1.0), "L5,0.1": smooth(0.1)}
# The paper stops cross-entropy early and says that its own loss does not need it: what each is
# judged by.
JUDGED = {"CE": "best", "L5,1": "last", "L5,0.1": "last"}


def run(size: Size, runs: Runs) -> Outcome:
    """Every noise level and objective, tuned."""
    scale = SCALES[size]
    noises = NOISE if size != "tiny" else (0.0, 1.0)
    cases = {
        (name, noise): {"noise": noise, "objective": objective}
        for noise in noises
        for name, objective in OBJECTIVES.items()
    }
    numbers: dict[str, Any] = {"noise": list(noises), "top1": {}, "top5": {}}
    for (name, _), results in scale.tuned(runs, cases).items():
        for metric in ("top1", "top5"):
            for row, network in ((name, JUDGED[name]), (f"{name} last", "last")):
                numbers[metric].setdefault(row, []).append(each(results, network, metric))
    tables = [_table(numbers, metric) for metric in ("top5", "top1")]
    figures = {"Top-5 and top-1 accuracy against the label noise": _draw(numbers)}
    return Outcome(numbers, scale.sentence(), scale.seeds, tables, figures)


def _table(numbers: Mapping[str, Any], metric: str) -> Table:
    ours = ["CE", "CE last", "L5,1", "L5,0.1"]
    headings = ["CE, stopped early", "CE, last step", "L5,1", "L5,0.1"]
    rows = []
    for row, noise in enumerate(numbers["noise"]):
        paper = [REPORTED[metric][name][NOISE.index(noise)] for name in ("CE", "L5,1")]
        rows.append([noise, *paper, *(spread(numbers[metric][name][row]) for name in ours)])
    columns = ["noise", "paper CE", "paper L5,1", *headings]
    return Table(f"Top-{metric[3:]} accuracy in %", columns, rows)


def _draw(numbers: Mapping[str, Any]) -> Any:
    figure = new_figure()
    for axes, metric in zip(figure.subplots(1, 2), ("top5", "top1"), strict=True):
        for number, (name, style) in enumerate((("CE", "o-"), ("L5,1", "s-"), ("L5,0.1", "^-"))):
            colour, means = f"C{number}", [fmean(v) for v in numbers[metric][name]]
            axes.plot(numbers["noise"], means, style, color=colour, label=name)
            if reported := REPORTED[metric].get(name):
                label = f"{name}, paper on CIFAR-100"
                axes.plot(NOISE, reported, ":", color=colour, label=label)
        axes.set(xlabel="label noise p", ylabel=f"top-{metric[3:]} accuracy (%)")
    lines = axes.get_legend_handles_labels()
    figure.legend(*lines, loc="outside lower center", ncols=5, fontsize=7)
    return figure


def gains(numbers: Mapping[str, Any], metric: str, name: str) -> list[float]:
    """What the loss gains over cross-entropy at each noise level."""
    pairs = zip(numbers[metric][name], numbers[metric]["CE"], strict=True)
    return [fmean(ours) - fmean(theirs) for ours, theirs in pairs]


def verdict(numbers: Mapping[str, Any]) -> Verdict:
    """The top-5 gain appears and grows with the noise; top-1 gains too where there is noise."""
    best = max(("L5,1", "L5,0.1"), key=lambda name: gains(numbers, "top5", name)[-1])
    top5, top1 = gains(numbers, "top5", best), gains(numbers, "top1", best)
    grows = top5[-1] > 0 and top5[-1] > top5[0]
    between = top1[1:-1] or top1[1:]
    also_top1 = fmean(between) > 0
    early = fmean(numbers["top5"]["CE"][-1]) - fmean(numbers["top5"]["CE last"][-1])
    paper5, paper1 = (
        [a - b for a, b in zip(REPORTED[m]["L5,1"], REPORTED[m]["CE"], strict=True)]
        for m in ("top5", "top1")
    )
    sentence = (
        f"the top-5 gain of {best} over early-stopped CE goes from {top5[0]:+.1f} points without"
        f" noise to {top5[-1]:+.1f} at p = 1 (paper {paper5[0]:+.1f} to {paper5[-1]:+.1f}); that of"
        f" L5,1 is {gains(numbers, 'top5', 'L5,1')[-1]:+.1f} there. Between no noise and p = 1 the"
        f" top-1 accuracy of {best} is {fmean(between):+.1f} points from CE's on average (paper"
        f" {fmean(paper1[1:-1]):+.1f}). Early stopping changes CE's top-5 accuracy by"
        f" {early:+.1f} points at p = 1, where its weight decay is tuned as well."
    )
    return judge([grows, also_top1], sentence)


EXPERIMENT = Experiment(
    "smooth_topk/table-1",
    "Label noise within the coarse class",
    "Tables 1 and 9, section 5.1",
    "with noisy labels L5,1 beats cross-entropy in top-5 and in top-1 accuracy, the more the"
    " more noise.",
    REPORTED,
    run,
    verdict,
)
