"""Experiment 1, figure 3: does the size of the digits help to tell them; the projections."""

from collections.abc import Mapping
from itertools import product as product_of
from statistics import fmean
from typing import Any

from evalgrad_lab.runs import Runs, Settings
from evalgrad_lab.tune import product
from reproductions.drawing import draw_epochs
from reproductions.experiment import Experiment, Outcome, Size, Table, by_size
from reproductions.s_measures.literal import PRIMAL_STEP
from reproductions.s_measures.regulariser import ALPHAS
from reproductions.s_measures.training import train_digits, train_measure
from reproductions.training import repeated, tuned
from reproductions.verdicts import Verdict, each, gap, in_words, judge, spread

SETTINGS = by_size(
    "data epochs seeds rates",  # the paper's 40 epochs
    tiny=("s-digits", 1, [0], (0.01,)),
    default=("s-digits", 40, [0, 1, 2, 3, 4], (0.003, 0.01, 0.03)),
    full=("s-mnist", 40, [0, 1, 2], (0.001, 0.003, 0.01)),
)
HIDDEN = 64
BASE = "baseline"
NAMES = {BASE: 0.0, **{f"alpha {alpha:g}": alpha for alpha in ALPHAS}}


PAPERS = {"solver": "paper", "learning_rate": PRIMAL_STEP}  # its algorithm and its step sizes


def by_alpha(common: Settings, how: Settings) -> dict[str, Settings]:
    """The settings of the baseline and of every alpha."""
    return {name: {**common, **how, "alpha": alpha} for name, alpha in NAMES.items()}


def run(size: Size, runs: Runs) -> Outcome:
    """The paper's linear model, a shared hidden layer tuned, and that with the paper's steps."""
    data, epochs, seeds, rates = SETTINGS[size].values()
    common = {"data": data, "epochs": epochs, "project": "epoch"}
    literal, theirs = (
        repeated(runs, train_digits, by_alpha({**common, "hidden": hidden}, PAPERS), seeds)
        for hidden in (0, HIDDEN)
    )
    cases = by_alpha({**common, "hidden": HIDDEN}, {"solver": "ratio"})
    ours = tuned(runs, train_digits, cases, product({"learning_rate": rates}), seeds)
    curves, validation = (
        {name: each(method.results, key) for name, method in ours.items()}
        for key in ("curve", "validation")
    )
    numbers: dict[str, dict[str, Any]] = {
        "linear weights": {name: each(some, "weights") for name, some in literal.items()},
        "ours": {name: each(method.results, "test") for name, method in ours.items()},
        "course": {name: list(map(fmean, some)) for name, some in curves.items()},
        "validation": {name: fmean(some) for name, some in validation.items()},
        "paper's steps": {name: each(some, "test") for name, some in theirs.items()},
    }
    weights = numbers["linear weights"]
    rows = [
        [
            name,
            spread(each(literal[name], "test")),
            "yes" if weights[name] == weights[BASE] else "no",
            *(spread(numbers[kind][name]) for kind in ("ours", "course", "paper's steps")),
        ]
        for name in ours
    ]
    columns = [
        "",
        "linear",
        "same weights as the baseline, bit by bit",
        "shared layer, ours",
        "mean over the epochs",
        "paper's steps",
    ]
    return Outcome(
        numbers,
        f"{data}: digits of single or double size, half of each; batches of 100,"
        f" {epochs} epochs, Adam, as in the paper. The linear model and `paper's steps` use"
        " the paper's algorithm and step sizes (0.01 for the network, tau and epsilon, 0.001 for"
        " lambda, 1e-5 for mu); `ours` the ratio solver and a learning rate from"
        f" {', '.join(f'{rate:g}' for rate in rates)} chosen on validation for each alpha."
        f" The shared layer has {HIDDEN} units.",
        seeds,
        [Table("Test accuracy, %", columns, rows)],
        {
            "Figure 3, column 1: accuracy per epoch with the shared layer, mean over the seeds": (
                draw_epochs(ours, "test accuracy, %")
            )
        },
    )


def verdict(numbers: Mapping[str, Any]) -> Verdict:
    """The claim for the linear model, and for one in which it could hold."""
    weights, ours = numbers["linear weights"], numbers["ours"]
    identical = all(values == weights[BASE] for values in weights.values())
    best = best_alpha(numbers)
    lead, course = (gap(some[best], some[BASE]) for some in (ours, numbers["course"]))
    literal = "the linear model's weights depend on alpha"
    if identical:
        literal = (
            "read literally it cannot: the extra node shares no parameter with the digit nodes,"
            " whose weights are bitwise identical for every alpha"
        )
    return judge(
        [not identical, lead.verdict == "win"],
        f"{literal}. With a shared hidden layer the best alpha on validation ({best}) is"
        f" {in_words(lead)} points from the baseline at the end and {in_words(course)} averaged"
        f" over the epochs; with the paper's steps {with_steps(numbers)}.",
    )


def best_alpha(numbers: Mapping[str, Any]) -> str:
    """The one that validation chooses."""
    validation = {name: score for name, score in numbers["validation"].items() if name != BASE}
    return max(validation, key=validation.__getitem__)


def with_steps(numbers: Mapping[str, Any]) -> str:
    """How far the paper's algorithm and steps lead from the baseline, by alpha."""
    steps = dict(numbers["paper's steps"])
    base = steps.pop(BASE)
    return ", ".join(f"{name} {in_words(gap(values, base))}" for name, values in steps.items())


WAYS = [("ratio", "epoch"), *product_of(("lagrangian", "paper"), ("epoch", "step"))]
MEASURE_EPOCHS, MEASURE_SIZES = {"tiny": 1, "default": 150, "full": 600}, [1000, 100, 1000]
MEASURE_RATE = 0.03


def run_projections(size: Size, runs: Runs) -> Outcome:
    """A projection per epoch or per step, by the corrected and the paper's steps."""
    data, epochs, seeds, _ = SETTINGS[size].values()
    common = {"data": data, "epochs": epochs, "hidden": HIDDEN, "alpha": ALPHAS[0]}
    common |= {"learning_rate": PRIMAL_STEP}
    alone = {"size": MEASURE_SIZES, "epochs": MEASURE_EPOCHS[size], "learning_rate": MEASURE_RATE}
    ways = {way: {"solver": way[0], "project": way[1]} for way in WAYS}
    digits, measure = (
        repeated(runs, function, {way: {**settings, **how} for way, how in ways.items()}, seeds)
        for function, settings in ((train_digits, common), (train_measure, alone))
    )
    words = {"lagrangian": "corrected steps", "paper": "paper's steps"}
    rows = []
    for way in WAYS:
        name = f"{words[way[0]]}, once per {way[1]}" if way[0] in words else "ratio (no projection)"
        accuracy = spread(each(digits[way], "test"))
        bound = [spread(each(measure[way], key)) for key in ("certificate", "f1")]
        rows.append([name, digits[way][0]["projections"], accuracy, *bound])
    columns = ["algorithm", "projections", "test accuracy, %"]
    columns += ["measure alone: certified F1, %", "test F1, %"]
    return Outcome(
        {
            "projections": {way[1]: digits[way][0]["projections"] for way in WAYS[1:3]},
            "accuracy": {" ".join(way): each(digits[way], "test") for way in WAYS},
            "certificate": {" ".join(way): each(measure[way], "certificate") for way in WAYS},
        },
        f"{data} with the shared layer, alpha {ALPHAS[0]:g}, as in experiment 1; and the"
        f" measure alone, without a main loss, for a linear scorer of {MEASURE_SIZES[0]} points of"
        f" two modes that no plane divides (designed), {MEASURE_EPOCHS[size]} epochs; a training"
        " that ends in NaN counts as 0.",
        seeds,
        [Table("Projections, and what they buy", columns, rows)],
    )


def verdict_projections(numbers: Mapping[str, Any]) -> Verdict:
    """One projection per epoch loses nothing, with corrected steps and with the paper's."""
    once, every = numbers["projections"]["epoch"], numbers["projections"]["step"]
    accuracy, bound = numbers["accuracy"], numbers["certificate"]
    losses, bounds = (
        [gap(some[f"{solver} epoch"], some[f"{solver} step"]) for solver in ("lagrangian", "paper")]
        for some in (accuracy, bound)
    )
    kept = [all(loss.verdict != "loss" for loss in some) for some in (losses, bounds)]
    return judge(
        [once < every, *kept],
        f"{once} projections instead of {every} change the accuracy by {in_words(losses[0])} points"
        f" (corrected steps) and {in_words(losses[1])} (paper's steps), and the certified F1 of the"
        f" measure alone by {in_words(bounds[0])} and {in_words(bounds[1])}. There the paper's step"
        f" sizes reach {fmean(bound['paper epoch']):.1f} % against"
        f" {fmean(bound['ratio epoch']):.1f} % of the ratio solver and"
        f" {fmean(bound['lagrangian epoch']):.1f} % of the corrected steps.",
    )


DIGITS = Experiment(
    "s_measures/experiment-1",
    "The size of digits as a regulariser",
    "Section 4, experiment 1, figure 3 column 1",
    "on S-MNIST a linear classifier with the F1 of the size node added is uniformly more accurate"
    " than the baseline.",
    {},
    run,
    verdict,
)
PROJECTIONS = Experiment(
    "s_measures/projections",
    "Projections: once per epoch or after every step",
    "Section 4, experiment 1, figure 3 column 2",
    "one projection per epoch obtains solutions of high quality, with significantly fewer"
    " projections.",
    {},
    run_projections,
    verdict_projections,
)
