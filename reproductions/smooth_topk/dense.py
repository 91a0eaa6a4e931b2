"""Tables 1 and 6 with a small DenseNet-BC on pairs of photographs: the authors' own network is one,
of six layers in a block in place of two.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from evalgrad_lab.runs import Runs
from reproductions.claims import Claim, above, each, spread
from reproductions.experiment import Experiment, Outcome, Table
from reproductions.sizes import Size, by_size, on_fetched_data
from reproductions.smooth_topk.training import CROSS_ENTROPY, smooth, train_pairs
from reproductions.training import repeated

SETTINGS = by_size(
    "sizes growth steps seeds",
    tiny=([100, 50, 50], 2, 1, [0]),
    full=([4000, 1000, 2000], 8, 2400, [0, 1, 2]),
)
CLEAN, NOISY = ("hinge", "L5,1"), ("CE", "L5,1")
OBJECTIVES = {"CE": CROSS_ENTROPY, "L5,1": smooth(1.0), "hinge": smooth(0.0)}
PAPER = {"noise": 72.93 - 67.70, "hinge": 99.78 - 10.01}
FITTED = 90.0  # top-5 on training that a network reaches when it is trained to the end


def run(size: Size, runs: Runs) -> Outcome:
    """Clean labels with the hinge and its smoothing, labels of noise 1 with cross-entropy too."""
    on_fetched_data("smooth_topk/densenet", size, "cifar-10")
    sizes, growth, steps, seeds = SETTINGS[size].values()
    common = {"data": "cifar", "sizes": sizes, "growth": growth, "steps": steps}
    common |= {"learning_rate": 0.1, "weight_decay": 1e-4, "protocol": "paper"}
    cases = {f"{name}, noise 0": {"objective": OBJECTIVES[name], "noise": 0.0} for name in CLEAN}
    cases |= {f"{name}, noise 1": {"objective": OBJECTIVES[name], "noise": 1.0} for name in NOISY}
    asked = {name: {**common, **case} for name, case in cases.items()}
    found = repeated(runs, train_pairs, asked, seeds)
    shown = {"train": "train", "test": "last", "stopped early": "best"}
    numbers = {
        name: {part: each(results, key, "top5") for part, key in shown.items()}
        for name, results in found.items()
    }
    rows = [[name, *(spread(parts[part]) for part in shown)] for name, parts in numbers.items()]
    words = (
        f"CIFAR-10 pairs, {' + '.join(map(str, sizes))}; DenseNet-BC of depth 16 and growth"
        f" {growth} (paper: 40 and 40); SGD with Nesterov momentum, weight decay 1e-4, learning"
        f" rate 0.1, divided by ten after half and after three quarters of {steps} steps with"
        " batches of 100; nothing is tuned. Early stopping uses noisy labels."
    )
    table = Table("Top-5 accuracy in %", ["loss", "on training", "on test", *list(shown)[2:]], rows)
    return Outcome(numbers, words, seeds, [table])


def judge(numbers: Mapping[str, Any]) -> list[Claim]:
    """The gain at full noise, what early stopping is to cross-entropy, and the hinge."""
    ours, ce = (numbers[f"{name}, noise 1"] for name in ("L5,1", "CE"))
    smoothed, hinge = (numbers[f"{name}, noise 0"]["train"] for name in ("L5,1", "hinge"))
    short = {"CE": _short("cross-entropy", ce["train"]), "L5,1": _short("L5,1", ours["train"])}
    gain = "L5,1 is above early-stopped CE in top-5 at p = 1"
    trains = "the hinge trains worse than temperature 1, top-5 on training"
    return [
        above(
            gain,
            ours["test"],
            ce["stopped early"],
            paper=PAPER["noise"],
            unless=short["CE"] or short["L5,1"],
        ),
        above(
            "CE needs early stopping at p = 1",
            ce["stopped early"],
            ce["test"],
            unless=short["CE"],
        ),
        above(trains, smoothed, hinge, paper=PAPER["hinge"], unless=_short("L5,1", smoothed)),
    ]


def _short(name: str, train: Sequence[float]) -> str:
    """Why a network that has not learned its training data decides nothing."""
    reached = fmean(train)
    told = f"{name} is not trained to the end: top-5 {reached:.0f} % on training"
    return "" if reached >= FITTED else told


EXPERIMENT = Experiment(
    "smooth_topk/densenet",
    "A small DenseNet-BC",
    "Tables 1 and 6",
    "with noisy labels L5,1 beats cross-entropy in top-5 accuracy; with the hinge the network does"
    " not learn.",
    run,
    judge,
    full=True,
)
