"""Tables 1 and 9: label noise within the coarse class, by two protocols."""

import itertools
from collections.abc import Mapping
from statistics import fmean
from typing import Any

from evalgrad_lab.runs import Runs
from reproductions.claims import Claim, above, each, gap, in_words, minus, similar, spread
from reproductions.drawing import new_figure
from reproductions.experiment import Experiment, Outcome, Table
from reproductions.sizes import Size
from reproductions.smooth_topk.sizes import SCALES
from reproductions.smooth_topk.training import CROSS_ENTROPY, smooth, train_pairs
from reproductions.training import repeated

NOISE = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
TOP1 = (76.68, 68.20, 61.18, 52.50, 35.53, 14.06), (69.33, 71.30, 70.02, 67.97, 55.85, 15.28)
TOP5 = (94.34, 87.89, 83.04, 79.59, 74.80, 67.70), (94.29, 90.59, 87.39, 83.86, 79.32, 72.93)
REPORTED: dict[str, Any] = {
    "noise": NOISE,
    "top1": {"CE": TOP1[0], "L5,1": TOP1[1]},
    "top5": {"CE": TOP5[0], "L5,1": TOP5[1]},
}
NOISES: dict[Size, tuple[float, ...]] = {
    "tiny": (0.0, 1.0),
    "default": NOISE,
    "full": (0.0, 0.4, 1.0),
}
OBJECTIVES = {"CE": CROSS_ENTROPY, "L5,1": smooth(1.0), "L5,0.1": smooth(0.1)}
PROTOCOLS = {"paper": "the paper's schedule", "tuned": "AdamW, tuned"}
# of the paper's schedule; its weight decay is 1e-4
RATES = {"CE": 0.1, "L5,1": 0.1, "L5,0.1": 0.3}
EPOCHS = {"tiny": 1, "default": 120, "full": 60}  # enough for cross-entropy to fit all noise
# The paper stops cross-entropy early and says that its own loss does not need it. Its text has a
# validation set with noisy labels, its code one with clean labels.
SHOWN = {
    "CE, stopped early": ("CE", "best"),
    "CE, stopped on clean labels": ("CE", "best clean"),
    "CE, last step": ("CE", "last"),
    "L5,1": ("L5,1", "last"),
    "L5,1, stopped early": ("L5,1", "best"),
    "L5,0.1": ("L5,0.1", "last"),
}
SAME = 1.0  # point of accuracy: less is no need of early stopping


def run(size: Size, runs: Runs) -> Outcome:
    """Every noise level and objective, by both protocols."""
    scale, noises = SCALES[size], NOISES[size]
    cases = {
        (name, noise): {"noise": noise, "objective": OBJECTIVES[name]}
        for noise, name in itertools.product(noises, OBJECTIVES)
    }
    steps = EPOCHS[size] * scale.sizes[0] // 100
    literal = {
        key: {**scale.common, **case, "steps": steps, "learning_rate": RATES[key[0]]}
        for key, case in cases.items()
    }
    fixed = {"weight_decay": 1e-4, "protocol": "paper"}
    asked = {key: {**case, **fixed} for key, case in literal.items()}
    found = {
        "paper": repeated(runs, train_pairs, asked, scale.seeds),
        "tuned": scale.tuned(runs, cases),
    }
    numbers: dict[str, Any] = {"noise": list(noises)}
    for protocol, metric in itertools.product(PROTOCOLS, ("top5", "top1")):
        numbers.setdefault(protocol, {})[metric] = {
            row: [each(found[protocol][name, noise], which, metric) for noise in noises]
            for row, (name, which) in SHOWN.items()
        }
    tables = [_table(numbers, *how) for how in itertools.product(PROTOCOLS, ("top5", "top1"))]
    words = (
        f"{scale.sentence()} The paper's schedule: SGD with Nesterov momentum, weight decay 1e-4,"
        f" learning rates {RATES}, divided by ten after half and after three quarters of"
        f" {EPOCHS[size]} epochs; nothing is tuned."
    )
    figures = {"Top-5 and top-1 accuracy against the label noise": _draw(numbers)}
    return Outcome(numbers, words, scale.seeds, tables, figures)


def _table(numbers: Mapping[str, Any], protocol: str, metric: str) -> Table:
    rows = []
    for row, noise in enumerate(numbers["noise"]):
        paper = [REPORTED[metric][name][NOISE.index(noise)] for name in ("CE", "L5,1")]
        ours = [spread(values[row]) for values in numbers[protocol][metric].values()]
        rows.append([noise, *paper, *ours])
    columns = ["noise", "paper CE", "paper L5,1", *SHOWN]
    return Table(f"Top-{metric[3:]} accuracy in %, {PROTOCOLS[protocol]}", columns, rows)


def _draw(numbers: Mapping[str, Any]) -> Any:
    figure = new_figure(8.0, 5.6)
    panels = figure.subplots(2, 2).flat
    for axes, (protocol, metric) in zip(
        panels, itertools.product(PROTOCOLS, ("top5", "top1")), strict=True
    ):
        for name in ("CE, stopped early", "CE, last step", "L5,1", "L5,0.1"):
            means = [fmean(v) for v in numbers[protocol][metric][name]]
            axes.plot(numbers["noise"], means, "o-", markersize=3, label=name)
        words = f"top-{metric[3:]} accuracy (%)"
        axes.set(xlabel="label noise p", ylabel=words, title=PROTOCOLS[protocol])
    lines = axes.get_legend_handles_labels()
    figure.legend(*lines, loc="outside lower center", ncols=4, fontsize=7)
    return figure


def judge(numbers: Mapping[str, Any]) -> list[Claim]:
    """By both protocols: the gain at full noise, its growth, early stopping, and top-1. The paper's
    gains are those at the noises that were run.
    """
    at = [NOISE.index(noise) for noise in numbers["noise"]]
    paper = {}
    for metric in ("top5", "top1"):
        every = minus(REPORTED[metric]["L5,1"], REPORTED[metric]["CE"])
        paper[metric] = [every[place] for place in at]
    between = slice(1, -1) if len(numbers["noise"]) > 2 else slice(1, None)
    rows = []
    for protocol, words in PROTOCOLS.items():
        top5, top1 = (numbers[protocol][metric] for metric in ("top5", "top1"))
        early, stays = top5["CE, stopped early"], top5["L5,1"]
        gains = [minus(*pair) for pair in zip(stays, early, strict=True)]
        clean = gap(stays[-1], top5["CE, stopped on clean labels"][-1])
        text = f"{words}: L5,1 is above early-stopped CE in top-5 at p = 1"
        more = f" (stopped on clean labels {in_words(clean)})"
        first = [minus(*pair) for pair in zip(top1["L5,1"], top1["CE, stopped early"], strict=True)]
        mean = [fmean(seed) for seed in zip(*first[between], strict=True)]
        cold = [minus(top5["L5,0.1"][-1], early[-1])]
        rows += [
            above(f"{text}{more}", gains[-1], 0.0, paper=paper["top5"][-1]),
            above(
                f"{words}: that gain grows from p = 0 to 1",
                gains[-1],
                gains[0],
                paper=paper["top5"][-1] - paper["top5"][0],
            ),
            above(
                f"{words}: CE needs early stopping at p = 1", early[-1], top5["CE, last step"][-1]
            ),
            similar(
                f"{words}: L5,1 does not",
                top5["L5,1, stopped early"][-1],
                stays[-1],
                bound=SAME,
            ),
            above(
                f"{words}: L5,1 is above CE in top-1 where 0 < p < 1",
                mean,
                0.0,
                paper=fmean(paper["top1"][between]),
            ),
            above(f"{words}: so is L5,0.1 in top-5 at p = 1 (not in the paper)", cold[0], 0.0),
        ]
    return rows


EXPERIMENT = Experiment(
    "smooth_topk/table-1",
    "Label noise within the coarse class",
    "Tables 1 and 9, section 5.1",
    "with noisy labels L5,1 beats cross-entropy in top-5 and in top-1 accuracy, by more the more"
    " noise there is.",
    run,
    judge,
    full=True,
)
