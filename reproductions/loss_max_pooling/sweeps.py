"""Table 1: the sensitivity to p with a support of a quarter, then to the support at the best p."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from evalgrad_lab.runs import Runs
from reproductions.experiment import Experiment, Outcome, Size, Table
from reproductions.loss_max_pooling.sizes import BLEND, BUDGETS, METHODS, Method, pooled, trained
from reproductions.verdicts import Verdict, each, gap, in_words, judge, spread

EXPONENTS = ["1", "1.1", "1.2", "1.3", "1.4", "1.5", "1.6", "1.7", "1.8", "1.9", "2.3"]
FOUND = (74.54, 74.52, 74.60, 74.64, 74.44, 74.02, 74.33, 74.57, 74.00, 74.22, 74.09)
REPORTED: dict[str, dict[str, float]] = {
    "p": dict(zip(EXPONENTS, FOUND, strict=True)),
    "support": {"0.1": 74.09, "0.25": 74.64, "0.5": 73.44},
    "BASE+": {"": 73.13},
}


def methods(size: Size) -> dict[tuple[str, str], Method]:
    """What is swept, its value, and the method; BASE+ is the plain mean."""
    exponents = {"tiny": ["1", "1.3"], "default": ["1", "1.3", "2.3"], "full": EXPONENTS}[size]
    supports = ["0.25"] if size == "tiny" else list(REPORTED["support"])
    found: dict[tuple[str, str], Method] = {("BASE+", ""): METHODS["BASE+"]}
    found |= {("p", p): {"loss": pooled(p=float(p)), "blend": BLEND} for p in exponents}
    return found | {
        ("support", m): {"loss": pooled(support=float(m)), "blend": BLEND} for m in supports
    }


def run(size: Size, runs: Runs) -> Outcome:
    """Every value with a learning rate of its own."""
    budget, swept = BUDGETS[size], methods(size)
    names = {" ".join(key).strip(): key for key in swept}
    asked = {name: swept[key] for name, key in names.items()}
    found = trained(runs, budget, asked, budget.iterations)
    numbers: dict[str, dict[str, list[float]]] = {}
    for name, (kind, value) in names.items():
        numbers.setdefault(kind, {})[value] = each(found[name].results, "test")
    rows = []
    for name, (kind, value) in names.items():
        rate = f"{found[name].point['learning_rate']:g}"
        rows.append([name, spread(numbers[kind][value]), rate, REPORTED[kind][value]])
    return Outcome(
        numbers,
        f"{budget.words()} {budget.iterations} iterations, with the paper's sampling throughout; p"
        " is swept at support 0.25, the support at p = 1.3.",
        budget.seeds,
        [Table("Test mIoU, %", ["setting", "mIoU", "learning rate", "paper (Cityscapes)"], rows)],
    )


def verdict(numbers: Mapping[str, Any]) -> Verdict:
    """Every p beats BASE+; small p do better than large ones; a quarter is the best support."""
    base, by_p, by_support = numbers["BASE+"][""], numbers["p"], numbers["support"]
    means = {p: fmean(values) for p, values in by_p.items()}
    supports = {m: fmean(values) for m, values in by_support.items()}
    best_p, best_support = (max(some, key=some.__getitem__) for some in (means, supports))
    worst = min(means, key=means.__getitem__)
    least = gap(by_p[worst], base)
    claims = [least.mean > 0, float(best_p) <= 1.4, best_support == "0.25"]
    return judge(
        claims,
        f"the best p is {best_p} (paper 1.3) and the best support {best_support} (paper 0.25); the"
        f" worst p, {worst}, is {in_words(least)} points from BASE+, the best"
        f" {in_words(gap(by_p[best_p], base))}. The range over p is"
        f" {max(means.values()) - min(means.values()):.1f} points (paper 0.6).",
    )


TABLE_1 = Experiment(
    "loss_max_pooling/table-1",
    "The exponent and the support",
    "Section 5.2, table 1 and text",
    "every p from 1 to 2.3 beats the plain loss, p = 1.3 with a quarter of the pixels is best.",
    REPORTED,
    run,
    verdict,
)
