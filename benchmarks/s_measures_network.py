"""A small network on a rare class of scikit-learn's digits: our regularisers against cross-entropy,
five seeds.

`python benchmarks/s_measures_network.py` trains all, prints a table, writes
`results/s_measures_network.json` and puts the table into docs/s_measures.md. Every method has six
trials per seed and measure, chosen by that measure on the validation set.

The positives are the eights, thinned to 30 %: 3 % of the data. P@R and R@P are over all thresholds,
so that the choice of a threshold, the third baseline, changes F1 alone.
"""

import itertools
import json
import statistics
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from timing import RESULTS, machine, write_between
from torch import Tensor, nn

import evalgrad as eg
from evalgrad import metrics
from evalgrad_lab.report.panels import paired_difference

DOCS = Path(__file__).parent.parent / "docs" / "s_measures.md"
SEEDS, EPOCHS, BATCH, RATE = range(5), 30, 64, 0.9
LEARNING_RATES = (0.003, 0.01)

Split = tuple[Tensor, Tensor]
Metric = Callable[[Tensor, Tensor], Tensor]
METRICS: dict[str, Metric] = {
    "F1": lambda s, y: metrics.fbeta_score(s, y, ties="worst"),
    f"P@R {RATE}": lambda s, y: metrics.precision_at_recall(s, y, recall=RATE),
    f"R@P {RATE}": lambda s, y: metrics.recall_at_precision(s, y, precision=RATE),
}
MEASURES: dict[str, Callable[[Tensor], nn.Module]] = {
    "F1": lambda labels: eg.FBeta(labels=labels),
    f"P@R {RATE}": lambda labels: eg.PrecisionAtRecall(RATE, labels=labels),
    f"R@P {RATE}": lambda labels: eg.RecallAtPrecision(RATE, labels=labels),
}


def data(seed: int) -> tuple[Split, Split, Split]:
    """Training, validation and test set: a half and two quarters, each with its share of the
    positives.
    """
    digits = load_digits()
    x, y = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target) == 8
    draw = torch.Generator().manual_seed(seed)
    parts: list[list[Tensor]] = [[], [], []]
    for members, share in ((y.nonzero()[:, 0], 0.3), ((~y).nonzero()[:, 0], 1.0)):
        kept = members[torch.randperm(len(members), generator=draw)][: int(share * len(members))]
        for part, chosen in zip(
            parts, kept.tensor_split([len(kept) // 2, 3 * len(kept) // 4]), strict=True
        ):
            part.append(chosen)
    train, validation, test = ((x[torch.cat(part)], y[torch.cat(part)]) for part in parts)
    return train, validation, test


def train(
    split: Split, seed: int, lr: float, loss: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> nn.Module:
    """Adam on one hidden layer, the same start and the same batches for every method of a seed."""
    torch.manual_seed(seed)
    x, y = split
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
    optimiser = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(EPOCHS):
        for index in torch.randperm(len(x)).split(BATCH):
            optimiser.zero_grad()
            loss(model(x[index]), y[index], index).backward()
            optimiser.step()
    return model.eval()


def cross_entropy(weight: float) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    positive = torch.tensor(weight)
    return lambda s, y, _: F.binary_cross_entropy_with_logits(s, y.float(), pos_weight=positive)


def regularised(measure: nn.Module, alpha: float) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    return lambda s, y, index: (
        F.binary_cross_entropy_with_logits(s, y.float()) + alpha * measure(s, y, index=index)
    )


def trials(split: Split, seed: int, method: str, measure: str) -> list[nn.Module]:
    """Six networks: two learning rates, three strengths of what the method adds (cross-entropy:
    three starts).
    """
    rarity = float((~split[1]).sum() / split[1].sum())
    models = []
    for lr, k in itertools.product(LEARNING_RATES, range(3)):
        if method == "cross-entropy":
            models.append(train(split, 100 * k + seed, lr, cross_entropy(1.0)))
        elif method == "weighted cross-entropy":
            models.append(train(split, seed, lr, cross_entropy(rarity ** (0.25, 0.5, 1.0)[k])))
        else:
            models.append(
                train(split, seed, lr, regularised(MEASURES[measure](split[1]), (0.1, 0.5, 2.0)[k]))
            )
    return models


@torch.no_grad()
def scored(
    models: list[nn.Module],
    validation: Split,
    test: Split,
    metric: Metric,
    *,
    shifted: bool = False,
) -> float:
    """The measure on the test set of the network that is best by it on the validation set, each at
    threshold 0 or at its best.
    """
    candidates = []
    for model in models:
        s = model(validation[0])
        levels = s.sort().values if shifted else torch.zeros(1)
        middles = (levels[1:] + levels[:-1]) / 2 if shifted else levels
        value, level = max((float(metric(s - b, validation[1])), float(b)) for b in middles)
        candidates.append((value, len(candidates), level))
    _, best, level = max(candidates)
    return float(metric(models[best](test[0]) - level, test[1]))


def measure_all() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for seed in SEEDS:
        training, validation, test = data(seed)
        for method in ("cross-entropy", "weighted cross-entropy", "ours"):
            shared = None if method == "ours" else trials(training, seed, method, "")
            for name, metric in METRICS.items():
                models = shared or trials(training, seed, method, name)
                rows.append(
                    {
                        "seed": seed,
                        "method": method,
                        "metric": name,
                        "test": scored(models, validation, test, metric),
                    }
                )
                if method == "cross-entropy" and name == "F1":
                    value = scored(models, validation, test, metric, shifted=True)
                    rows.append(
                        {
                            "seed": seed,
                            "method": "cross-entropy, best threshold",
                            "metric": name,
                            "test": value,
                        }
                    )
        print(f"seed {seed} done", flush=True)
    return rows


def table(rows: list[dict[str, object]]) -> str:
    """Mean and standard deviation over the seeds, methods down, measures across."""
    lines = [
        f"| mean ± standard deviation, {len(SEEDS)} seeds | {' | '.join(METRICS)} |",
        "|---" * (len(METRICS) + 1) + "|",
    ]
    for method in dict.fromkeys(row["method"] for row in rows):
        cells = []
        for name in METRICS:
            values = [
                float(str(r["test"])) for r in rows if r["method"] == method and r["metric"] == name
            ]
            cells.append(
                f"{statistics.mean(values):.3f} ± {statistics.stdev(values):.3f}"
                if values
                else "as cross-entropy"
            )
        lines.append(f"| {method} | {' | '.join(cells)} |")
    lines.append(
        f"| ours - cross-entropy at its best threshold, 95 % | {' | '.join(leads(rows))} |"
    )
    return "\n".join(lines)


def leads(rows: list[dict[str, object]]) -> list[str]:
    """The paired difference over the seeds for each measure, with Student's interval."""
    cells = []
    for name in METRICS:
        rival = "cross-entropy, best threshold" if name == "F1" else "cross-entropy"
        both = [
            {
                int(str(r["seed"])): float(str(r["test"]))
                for r in rows
                if (r["method"], r["metric"]) == (method, name)
            }
            for method in ("ours", rival)
        ]
        found = paired_difference(*both)
        assert found is not None
        assert found.interval is not None
        low, high = found.interval
        cells.append(f"{found.mean:+.3f} ({low:+.3f} to {high:+.3f})")
    return cells


if __name__ == "__main__":
    torch.set_num_threads(1)
    results = measure_all()
    print(table(results))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "s_measures_network.json").write_text(
        json.dumps({"machine": machine(), "rows": results}, indent=1) + "\n"
    )
    write_between(DOCS, "network", table(results))
