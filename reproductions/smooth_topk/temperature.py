"""Figure 2 and table 6: the temperature, whether the network learns, and dense gradients."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from evalgrad_lab.runs import Runs
from evalgrad_lab.tune import product
from reproductions.drawing import new_figure
from reproductions.experiment import Experiment, Outcome, Size, Table
from reproductions.smooth_topk.sizes import SCALES
from reproductions.smooth_topk.training import gradient_density, smooth
from reproductions.verdicts import Verdict, each, judge, spread

TEMPERATURES = (0.0, 1e-3, 1e-2, 1e-1, 1e0, 1e1, 1e2)
REPORTED = {
    "temperature": TEMPERATURES,
    "train": (10.01, 17.40, 98.95, 99.73, 99.78, 99.62, 99.42),
    "test": (10.38, 18.19, 91.35, 91.70, 91.52, 90.92, 90.46),
}
WIDTHS = {"narrow": 6, "wide": 128}
GRID = product({"learning_rate": [0.001, 0.003, 0.01], "weight_decay": [0.01]})


def run(size: Size, runs: Runs) -> Outcome:
    """Every temperature in a narrow and in a wide network, the learning rate tuned for each."""
    scale = SCALES[size]
    temperatures = TEMPERATURES if size != "tiny" else (0.0, 0.01, 1.0)
    cases = {
        (width, temperature): {"objective": smooth(temperature), "width": WIDTHS[width]}
        for width in WIDTHS
        for temperature in temperatures
    }
    found = scale.tuned(runs, cases, GRID)
    common = {"data": scale.data, "sizes": list(scale.sizes), "seed": scale.seeds[0]}
    density = runs.run(gradient_density, [{**common, "temperature": t} for t in temperatures])
    numbers: dict[str, Any] = {"temperature": list(temperatures), "density": density}
    for width in WIDTHS:
        rows = [found[width, temperature] for temperature in temperatures]
        numbers[width] = {
            part: [each(results, key, "top5") for results in rows]
            for part, key in (("train", "train"), ("test", "last"))
        }
        numbers[width]["curves"] = [results[0]["curve"] for results in rows]
    setting = (
        f"{scale._replace(grid=GRID).sentence()} Narrow: {WIDTHS['narrow']} hidden units in each"
        f" layer; wide: {WIDTHS['wide']}."
    )
    caption = (
        "Top-5 training error of the narrow (left) and the wide network, and the share of non-zero"
        " derivatives (right)"
    )
    return Outcome(numbers, setting, scale.seeds, [_table(numbers)], {caption: _draw(numbers)})


def _table(numbers: Mapping[str, Any]) -> Table:
    names = [(width, part) for width in WIDTHS for part in ("train", "test")]
    columns = ["temperature", "paper train", "paper test", *map(" ".join, names)]
    columns.append("non-zero derivatives (%)")
    rows = []
    for row, temperature in enumerate(numbers["temperature"]):
        at = TEMPERATURES.index(temperature)
        ours = [spread(numbers[width][part][row]) for width, part in names]
        paper = (REPORTED["train"][at], REPORTED["test"][at])
        rows.append([f"{temperature:g}", *paper, *ours, numbers["density"][row]])
    return Table("Top-5 accuracy in %", columns, rows)


def _draw(numbers: Mapping[str, Any]) -> Any:
    figure = new_figure(9.0)
    narrow, wide, right = figure.subplots(1, 3)
    for axes, width in ((narrow, "narrow"), (wide, "wide")):
        curves = zip(numbers["temperature"], numbers[width]["curves"], strict=True)
        for temperature, curve in curves:
            axes.plot(*zip(*curve, strict=True), linewidth=1, label=f"{temperature:g}")
        axes.axhline(95, linestyle="--", linewidth=0.8, color="grey")
        axes.set(xlabel="step", ylabel="top-5 training error (%)", title=width, ylim=(0, 100))
    wide.legend(title="temperature", fontsize=7)
    right.bar([f"{temperature:g}" for temperature in numbers["temperature"]], numbers["density"])
    right.set(xlabel="temperature", ylabel="non-zero derivatives (%)", title="at the start")
    right.tick_params(axis="x", labelsize=7)
    return figure


def verdict(numbers: Mapping[str, Any]) -> Verdict:
    """The hinge fails to train in both networks; derivatives become denser with temperature."""
    temperatures, density = numbers["temperature"], numbers["density"]
    train = {width: [fmean(values) for values in numbers[width]["train"]] for width in WIDTHS}
    one = temperatures.index(1.0)
    fails = {width: values[0] < values[one] - 20 for width, values in train.items()}
    denser = density[0] < density[-1] / 2 and density == sorted(density)
    tests = {width: [fmean(values) for values in numbers[width]["test"]] for width in WIDTHS}
    best = {width: temperatures[values.index(max(values))] for width, values in tests.items()}
    sentence = (
        f"the hinge (temperature 0) reaches {train['narrow'][0]:.0f} % in training in the narrow"
        f" network and {train['wide'][0]:.0f} % in the wide one (paper 10 %); {density[0]:.0f} % of"
        f" its derivatives are not zero, {density[-1]:.0f} % at temperature {temperatures[-1]:g};"
        f" the best test accuracy is at temperature {best['narrow']:g} (narrow) and"
        f" {best['wide']:g} (wide; paper 0.1). {_why(fails)}"
    )
    return judge([fails["narrow"], fails["wide"], denser], sentence)


def _why(fails: Mapping[str, bool]) -> str:
    if fails["narrow"] and not fails["wide"]:
        return (
            "The width decides: the narrow network needs the smoothing, the wide one learns"
            " without it."
        )
    if all(fails.values()):
        return "Both networks need the smoothing."
    return "The narrow network does not need the smoothing here."


EXPERIMENT = Experiment(
    "smooth_topk/figure-2",
    "The temperature",
    "Figures 2a and 2b, table 6",
    "with a temperature below 0.01 the gradients are sparse and the network does not learn; 0.1"
    " tests best.",
    REPORTED,
    run,
    verdict,
)
