"""Figure 2 and table 6: the temperature, whether the network learns, and dense gradients."""

from collections.abc import Mapping
from typing import Any

from evalgrad_lab.runs import Runs
from evalgrad_lab.tune import product
from reproductions.claims import Claim, above, best, each, exact, similar, spread
from reproductions.drawing import new_figure
from reproductions.experiment import Experiment, Outcome, Table
from reproductions.sizes import Size
from reproductions.smooth_topk.sizes import SCALES
from reproductions.smooth_topk.training import gradient_density, smooth

TEMPERATURES = (0.0, 1e-3, 1e-2, 1e-1, 1e0, 1e1, 1e2)
REPORTED = {
    "temperature": TEMPERATURES,
    "train": (10.01, 17.40, 98.95, 99.73, 99.78, 99.62, 99.42),
    "test": (10.38, 18.19, 91.35, 91.70, 91.52, 90.92, 90.46),
}
WIDTHS = {"narrow": 6, "wide": 128}  # hidden units of each layer
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
    common |= {"width": scale.width}
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
        f"{scale._replace(grid=GRID).sentence()} The narrow network has {WIDTHS['narrow']} of"
        f" them, the wide one {WIDTHS['wide']}."
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


def judge(numbers: Mapping[str, Any]) -> list[Claim]:
    """The hinge fails to train in both networks; derivatives become denser with temperature."""
    temperatures, density = numbers["temperature"], numbers["density"]
    one = temperatures.index(1.0)
    effect = REPORTED["train"][TEMPERATURES.index(1.0)] - REPORTED["train"][0]
    denser = density[0] < density[-1] / 2 and density == sorted(density)
    told = f"{density[0]:.0f} % not zero at 0, {density[-1]:.0f} % at {temperatures[-1]:g}"
    rows = []
    for width in WIDTHS:
        train, test = (numbers[width][part] for part in ("train", "test"))
        text = f"{width}: the hinge trains worse than temperature 1, top-5 on training"
        rows.append(above(text, train[one], train[0], paper=effect))
        by_name = {f"{t:g}": some for t, some in zip(temperatures, test, strict=True)}
        expected = "0.1" if "0.1" in by_name else "0.01"  # tiny has no 0.1
        rows.append(
            best(f"{width}: {expected} has the best test accuracy", by_name, expected, paper=0.18)
        )
    return [*rows, exact("derivatives become denser with the temperature", denser, told)]


ANNEALED = {"fixed at 0.1": smooth(0.1), "from 1 to 0.1": smooth(1.0, end=0.1)}
SAME = 0.5  # points of accuracy


def run_annealing(size: Size, runs: Runs) -> Outcome:
    """A fixed temperature, and one that falls to it from where half of the training left it."""
    scale = SCALES[size]
    found = scale.tuned(runs, {name: {"objective": o} for name, o in ANNEALED.items()})
    numbers = {name: each(results, "best", "top5") for name, results in found.items()}
    rows = [[name, spread(scores)] for name, scores in numbers.items()]
    table = Table(
        "Top-5 accuracy in %, of the network that is best on validation", ["temperature", ""], rows
    )
    words = f"{scale.sentence()} The temperature is 1 for half of the training, then decreases."
    return Outcome(numbers, words, scale.seeds, [table])


def judge_annealing(numbers: Mapping[str, Any]) -> list[Claim]:
    """Claim: the same performance."""
    words = "annealing the temperature gives the same accuracy as fixing it"
    return [similar(words, *(numbers[name] for name in reversed(ANNEALED)), bound=SAME)]


EXPERIMENT = Experiment(
    "smooth_topk/figure-2",
    "The temperature",
    "Figures 2a and 2b, table 6",
    "with a temperature below 0.01 the gradients are sparse and the network does not learn; 0.1"
    " has the best test accuracy.",
    run,
    judge,
)
ANNEALING = Experiment(
    "smooth_topk/annealing",
    "Annealing the temperature",
    "Appendix D.1.3",
    "a temperature that is fixed to an appropriate value yields the same performance as annealing.",
    run_annealing,
    judge_annealing,
)
