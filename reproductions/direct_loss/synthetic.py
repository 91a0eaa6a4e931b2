"""Figures 3, 4 and 5: nine algorithms on synthetic rankings, tuned for every seed, on its training
set as in the paper, and on validation.
"""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from evalgrad_lab.data.embedded.points import PAPER
from evalgrad_lab.runs import Runs
from evalgrad_lab.tune import best_mean, product
from reproductions.claims import Claim, above, best, each, similar, spread
from reproductions.direct_loss.training import ALGORITHMS, DIRECT, WIDTH, Hyper, train_scorer
from reproductions.drawing import mean_curve, new_figure
from reproductions.experiment import Experiment, Outcome, Table
from reproductions.sizes import Size

SIZES = {"tiny": [200, 100, 200], "default": list(PAPER)}
ITERATIONS = {"tiny": 6, "default": 300}
SEEDS = {
    "teacher": {"tiny": 1, "default": 5},
    "linear": {"tiny": 1, "default": 5},
}
# Eight settings for each algorithm. The epsilons follow the scales of the two scores F: a mean over
# pairs, and one item.
RATES, DIRECT_RATES = (0.003, 0.01, 0.03, 0.1), (0.01, 0.03)
DECAYS, EPSILONS = (0.0, 0.01), {"AP": (0.001, 0.01, 0.1, 1.0), "01": (0.1, 1.0, 10.0, 100.0)}
# heading, what chose the setting, what it shows, digits
COLUMNS = (
    ("chosen on train: AP", "train", "test", 2),
    ("accuracy", "train", "accuracy", 1),
    ("chosen on validation: AP", "validation", "test", 2),
    ("accuracy", "validation", "accuracy", 1),
    ("accuracy, threshold from train", "validation", "tuned accuracy", 1),
)
SAME = 1.0  # point of AP: alike
BASELINES = [name for name in ALGORITHMS if name not in DIRECT]


def candidates(algorithm: str, size: Size) -> list[Hyper]:
    """The learning rate, and epsilon for the direct losses, weight decay for the others."""
    axes: dict[str, Sequence[float]] = {"learning_rate": RATES, "weight_decay": DECAYS}
    if algorithm in DIRECT:
        axes = {"learning_rate": DIRECT_RATES, "epsilon": EPSILONS[algorithm[-2:]]}
    found = [dict(point) for point in product(axes)]
    return found[3:5] if size == "tiny" else found


class Chosen(NamedTuple):
    """The setting that was chosen for each seed, and the result with it."""

    points: list[Hyper]
    results: list[Any]


def chosen(data: str, size: Size, runs: Runs, seeds: Sequence[int]) -> dict[str, dict[str, Chosen]]:
    """Selection -> algorithm -> for every seed the setting with the best AP on its training points,
    as in the paper, or on its validation points: a setting that suits one teacher fails on another.
    """
    common = {"data": data, "sizes": SIZES[size], "iterations": ITERATIONS[size]}
    tried = {name: candidates(name, size) for name in ALGORITHMS}
    settings = [
        {**common, "algorithm": name, "seed": seed, "hyper": hyper}
        for name, seed in itertools.product(ALGORITHMS, seeds)
        for hyper in tried[name]
    ]
    found = iter(runs.run(train_scorer, settings))
    every = {name: [[next(found) for _ in tried[name]] for _ in seeds] for name in ALGORITHMS}

    def best_of(name: str, by: str) -> Chosen:
        places = [best_mean([[result[by]] for result in results]) for results in every[name]]
        results = [results[at] for results, at in zip(every[name], places, strict=True)]
        return Chosen([tried[name][at] for at in places], results)

    return {by: {name: best_of(name, by) for name in ALGORITHMS} for by in ("train", "validation")}


def in_words(points: Sequence[Hyper]) -> str:
    """The values of each setting; for how many seeds, where they differ.

    >>> in_words([{"learning_rate": 0.1, "epsilon": 1.0}, {"learning_rate": 0.01, "epsilon": 1.0}])
    'learning rate 0.01 (1), 0.1 (1); epsilon 1'
    """
    words = []
    for key in points[0]:
        counts = sorted(Counter(point[key] for point in points).items())
        values = [f"{value:g} ({count})" for value, count in counts]
        shown = ", ".join(values) if len(counts) > 1 else f"{counts[0][0]:g}"
        words.append(f"{key.replace('_', ' ')} {shown}")
    return "; ".join(words)


def table(title: str, found: Mapping[str, Mapping[str, Chosen]]) -> Table:
    """One row per algorithm; the paper has curves only, hence no column of its own."""
    rows = []
    for name in ALGORITHMS:
        literal, careful = found["train"][name], found["validation"][name]
        found_by = {"train": literal.results, "validation": careful.results}
        cells = [spread(each(found_by[by], key), digits) for _, by, key, digits in COLUMNS]
        rows.append([name, *cells, in_words(careful.points)])
    columns = [column[0] for column in COLUMNS]
    setting = "setting on validation (for how many seeds)"
    return Table(title, ["algorithm", *columns, setting], rows)


def draw(methods: Mapping[str, Chosen]) -> Figure:
    """AP and accuracy on test over the iterations, mean over the seeds."""
    figure = new_figure(7.0, 3.2)
    labels = ("AP on test, %", "accuracy on test, % (decision at 0)")
    for column, (panel, label) in enumerate(zip(figure.subplots(1, 2), labels, strict=True), 1):
        for position, name in enumerate(ALGORITHMS):
            x, y = mean_curve(each(methods[name].results, "curve"), column)
            style = "-" if name in DIRECT else "--"
            panel.plot(x, y, style, color=f"C{position}", linewidth=1, label=name)
        panel.set(xlabel="iteration", ylabel=label)
    panel.legend(fontsize=6, ncols=2)
    return figure


def numbers_of(found: Mapping[str, Mapping[str, Chosen]]) -> dict[str, Any]:
    """AP on test by selection, algorithm and seed."""
    return {
        by: {name: each(methods[name].results, "test") for name in methods}
        for by, methods in found.items()
    }


def run_teacher(size: Size, runs: Runs) -> Outcome:
    """Figure 3."""
    seeds = list(range(SEEDS["teacher"][size]))
    found = chosen("teacher", size, runs, seeds)
    points = SIZES[size][0] + SIZES[size][2]
    return Outcome(
        numbers_of(found),
        f"{points:,} points of a 10-dimensional Gaussian, the 20 % with the highest score of a"
        " random network of 4 layers are positive; half of the points are for training, half for"
        f" test, and {SIZES[size][1]:,} further points for validation. The paper does not give"
        f" the width; ours is {WIDTH}. A network of the same architecture is trained with full"
        f" batches, Adam and a cosine schedule for {ITERATIONS[size]} iterations;"
        f" {len(candidates('pos-AP', size))} settings per algorithm are tried for every seed, of"
        " which the one with the best AP is taken: on the training points of that seed, as in the"
        " paper, or on its validation points. A seed determines the teacher, its points and the"
        " initial weights.",
        seeds,
        [table("Test AP and accuracy, %", found)],
        {
            "Figure 3: AP and accuracy over the iterations, chosen on the training set as in"
            " the paper": draw(found["train"])
        },
    )


def judge_teacher(numbers: Mapping[str, Any]) -> list[Claim]:
    """Positive AP beats all baselines, negative AP does not, perceptrons are poor."""
    rows = []
    for by, words in (
        ("train", "chosen on train as in the paper"),
        ("validation", "on validation"),
    ):
        found = numbers[by]
        rivals = {name: found[name] for name in ("pos-AP", *BASELINES)}
        ours = found["pos-AP"]
        rows += [
            best(f"pos-AP beats all baselines, {words}", rivals, "pos-AP", digits=2),
            above(f"pos-AP is above logistic, {words}", ours, found["logistic"], digits=2),
            *(
                above(f"pos-AP is above {name}, {words}", ours, found[name])
                for name in ("neg-AP", "per-AP", "per-01")
            ),
        ]
    return rows


def run_linear(size: Size, runs: Runs) -> Outcome:
    """Figures 4 and 5."""
    seeds = list(range(SEEDS["linear"][size]))
    found = {data: chosen(data, size, runs, seeds) for data in ("linear", "noisy")}
    titles = {
        "linear": "Figure 4: clean labels",
        "noisy": "Figure 5: 20 % of the labels flipped, in all parts",
    }
    return Outcome(
        {data: numbers_of(methods)["validation"] for data, methods in found.items()},
        f"{SIZES[size][0] + SIZES[size][2]:,} points of a 10-dimensional Gaussian, positive where"
        " the sum is above 0; a linear scorer; everything else as for figure 3.",
        seeds,
        [table(f"{titles[data]}: test AP and accuracy, %", some) for data, some in found.items()],
        {
            f"{titles[data]}, chosen on the training set as in the paper": draw(methods["train"])
            for data, methods in found.items()
        },
    )


def judge_linear(numbers: Mapping[str, Any]) -> list[Claim]:
    """Clean: negative AP is a little above positive, perceptrons do well. Noisy: negative AP and
    perceptrons are alike.
    """
    clean, noisy = numbers["linear"], numbers["noisy"]
    worst = min(fmean(values) for values in clean.values())
    level = f"every algorithm has at least {worst:.2f}: no room to differ" if worst > 99 else ""
    positive = clean["pos-AP"]
    pairs = {name: (noisy["pos-AP"], noisy[name]) for name in ("neg-AP", "per-AP")}
    negative, perceptron = noisy["neg-AP"], noisy["per-AP"]
    return [
        above("clean: neg-AP is above pos-AP", clean["neg-AP"], positive, unless=level, digits=3),
        similar(
            "clean: per-AP does as well as pos-AP",
            clean["per-AP"],
            positive,
            bound=SAME,
            unless=level,
        ),
        *(
            above(f"noisy: pos-AP is above {name} (not in the paper)", *pair)
            for name, pair in pairs.items()
        ),
        similar("noisy: neg-AP and per-AP are alike", negative, perceptron, bound=SAME),
    ]


TEACHER = Experiment(
    "direct_loss/figure-3",
    "Points ranked by a random network: nine algorithms",
    "Section 4.1, figure 3",
    "with positive updates the direct loss beats all baselines by a large margin; negative updates"
    " are not competitive and the perceptron does not perform well.",
    run_teacher,
    judge_teacher,
)
LINEAR = Experiment(
    "direct_loss/figures-4-5",
    "Points ranked by a plane, with clean and with noisy labels",
    "Appendix 5.3, figures 4 and 5",
    "without noise the negative update is slightly better than the positive one and the perceptron"
    " does well; with noise the negative update and the perceptron perform similarly.",
    run_linear,
    judge_linear,
)
