"""S-measures on three imbalanced tables against cross-entropy with a tuned threshold, five seeds.

`make data/keel`, then `python benchmarks/s_measures_tables.py` trains all in minutes, prints a
table, writes `results/s_measures_tables.json` and puts the table into docs/s_measures.md. Every
method has 15 epochs in batches of 64, and three learning rates to choose from by its measure on
the validation set; cross-entropy also has its threshold for F1 from there. P@R and R@P are over all
thresholds, so that there is none to tune.

The tables are the three largest of KEEL with at least 90 positives, at least 8 negatives per
positive, and something left to learn: on vowel0 and shuttle-c0-vs-c4 everything reaches 100.
"""

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from timing import RESULTS, machine, write_between
from torch import Tensor, nn

import evalgrad as eg
from evalgrad import metrics
from evalgrad_lab.data.fetched.labelled import table

DOCS = Path(__file__).parent.parent / "docs" / "s_measures.md"
TABLES = ("page-blocks0", "yeast3", "yeast-0-2-5-6_vs_3-7-8-9")
SEEDS, EPOCHS, BATCH, RATE = range(5), 15, 64, 0.8
LEARNING_RATES = (0.003, 0.01, 0.03)
T_95 = 2.776  # Student's, of five seeds

Split = tuple[Tensor, Tensor]
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
METRICS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "F1": lambda s, y: metrics.fbeta_score(s, y, ties="worst"),
    f"P@R {RATE}": lambda s, y: metrics.precision_at_recall(s, y, recall=RATE),
    f"R@P {RATE}": lambda s, y: metrics.recall_at_precision(s, y, precision=RATE),
}
MEASURES: dict[str, Callable[[Tensor], nn.Module]] = {
    "F1": lambda labels: eg.FBeta(labels=labels),
    f"P@R {RATE}": lambda labels: eg.PrecisionAtRecall(RATE, labels=labels),
    f"R@P {RATE}": lambda labels: eg.RecallAtPrecision(RATE, labels=labels),
}


def split(name: str, seed: int) -> list[Split]:
    """Training, validation and test: a half and two quarters of each class, features scaled by the
    first.
    """
    part, draw = table(name), torch.Generator().manual_seed(seed)
    x, y, parts = part.inputs.float(), part.target.bool(), [[], [], []]
    for members in (y.nonzero()[:, 0], (~y).nonzero()[:, 0]):
        order = members[torch.randperm(len(members), generator=draw)]
        ends = [len(order) // 2, 3 * len(order) // 4]
        for chosen, some in zip(parts, order.tensor_split(ends), strict=True):
            chosen.append(some)
    train, *_ = rows = [torch.cat(chosen) for chosen in parts]
    scaled = (x - x[train].mean(0)) / x[train].std(0).clamp_min(1e-6)
    return [(scaled[some].clamp(-10, 10), y[some]) for some in rows]


def train(data: Split, seed: int, lr: float, loss: Loss) -> nn.Module:
    """Adam on one hidden layer, the same start and the same batches for every method of a seed."""
    torch.manual_seed(seed)
    x, y = data
    hidden = nn.Linear(x.shape[1], 32)
    model = nn.Sequential(hidden, nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
    optimiser = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(EPOCHS):
        for index in torch.randperm(len(x)).split(BATCH):
            optimiser.zero_grad()
            loss(model(x[index]), y[index], index).backward()
            optimiser.step()
    return model.eval()


def cross_entropy(scores: Tensor, target: Tensor, _: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(scores, target.float())


def measured(measure: nn.Module) -> Loss:
    return lambda scores, target, index: measure(scores, target, index=index)


@torch.no_grad()
def best(models: list[nn.Module], parts: list[Split], name: str, tune: bool) -> float:
    """Test value, in per cent, of the network that is best on validation, each at its threshold."""
    (_, (seen, truth), (x, y)), metric, found = parts, METRICS[name], []
    for place, model in enumerate(models):
        scores = model(seen)
        levels = scores.sort().values if tune else torch.zeros(2)
        middles = (levels[1:] + levels[:-1]) / 2
        found.append(max((float(metric(scores - b, truth)), place, float(b)) for b in middles))
    _, place, level = max(found)
    return 100 * float(metric(models[place](x) - level, y))


def measure_all() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for name in TABLES:
        for seed in SEEDS:
            parts = split(name, seed)
            base = [train(parts[0], seed, lr, cross_entropy) for lr in LEARNING_RATES]
            for measure, make in MEASURES.items():
                own = [
                    train(parts[0], seed, lr, measured(make(parts[0][1]))) for lr in LEARNING_RATES
                ]
                ours = best(own, parts, measure, tune=False)
                theirs = best(base, parts, measure, tune=measure == "F1")
                rows.append(
                    {"table": name, "seed": seed, "measure": measure, "bce": theirs, "ours": ours}
                )
            print(rows[-3:], flush=True)
    return rows


def in_words(rows: list[dict[str, object]]) -> str:
    """Both means, and the paired difference with its 95 % interval."""
    theirs, ours = ([float(str(row[key])) for row in rows] for key in ("bce", "ours"))
    gaps = [a - b for a, b in zip(ours, theirs, strict=True)]
    mean, half = statistics.mean(gaps), T_95 * statistics.stdev(gaps) / len(gaps) ** 0.5
    return (
        f"{statistics.mean(theirs):.1f} → {statistics.mean(ours):.1f}, {mean:+.1f}"
        f" [{mean - half:+.1f}, {mean + half:+.1f}]"
    )


def text(rows: list[dict[str, object]]) -> str:
    lines = [
        f"| cross-entropy → ours, difference [95 %], {len(SEEDS)} seeds | {' | '.join(METRICS)} |",
        "|---" * (len(METRICS) + 1) + "|",
    ]
    for name in TABLES:
        cells = [
            in_words([row for row in rows if (row["table"], row["measure"]) == (name, measure)])
            for measure in METRICS
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    torch.set_num_threads(1)
    results = measure_all()
    print(text(results))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "s_measures_tables.json").write_text(
        json.dumps({"machine": machine(), "rows": results}, indent=1) + "\n"
    )
    if "--no-docs" not in sys.argv:
        write_between(DOCS, "tables", text(results))
