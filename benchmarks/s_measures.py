"""S-measures: cost of a step against BCE, and both solvers against linear programs. The cost of
projections is in `projections.py`.

`python benchmarks/s_measures.py` prints all, writes `results/s_measures.json` and the costs into
docs/s_measures.md; `--cost` leaves the linear programs out.
"""

import itertools
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from timing import machine, write_between
from torch import Tensor, nn

import evalgrad as eg

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))  # the problems and their oracles


def processor_time(
    jobs: dict[str, Callable[[], object]], rounds: int, repeat: int
) -> dict[str, float]:
    """Least seconds of processor time per call, the jobs in turn; `repeat` calls make one sample.
    What else runs on the machine only adds to it.
    """
    samples: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            start = time.process_time()
            for _ in range(repeat):
                job()
            samples[name].append((time.process_time() - start) / repeat)
    return {name: min(times) for name, times in samples.items()}


def step_cost(*, network: bool, batch: int = 4096, items: int = 65536) -> dict[str, float]:
    """Microseconds of forward + backward on scores alone, or with a network of 32 features and 64
    hidden units.
    """
    torch.manual_seed(0)
    labels = torch.rand(items) < 0.1
    scores, features = torch.randn(batch, requires_grad=True), torch.randn(batch, 32)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1), nn.Flatten(0))
    leaves = list(model.parameters()) if network else [scores]
    index = torch.randperm(items)[:batch]
    target = labels[index]
    floats = target.float()  # outside of the time of BCE
    average, cached, masked = (eg.FBeta(labels=labels) for _ in range(3))
    lagrangian, area = eg.FBeta(labels=labels, solver="lagrangian"), eg.ROCAUC(labels=labels)
    mask = torch.rand(batch) < 0.9

    def job(loss: Callable[[Tensor], Tensor]) -> Callable[[], None]:
        def run() -> None:
            for leaf in leaves:
                leaf.grad = None
            loss(model(features) if network else scores).backward()

        return run

    losses = {
        "bce": lambda s: F.binary_cross_entropy_with_logits(s, floats),
        "ratio, moving average": lambda s: average(s, target),
        "ratio, cache": lambda s: cached(s, target, index=index),
        "ratio, mask": lambda s: masked(s, target, mask=mask),
        "Lagrangian": lambda s: lagrangian(s, target, index=index),
        "`ROCAUC`, moving average": lambda s: area(s, target),
    }
    # 32 calls are two whole cycles of the multipliers: every sample pays for their moves
    times = processor_time({name: job(loss) for name, loss in losses.items()}, rounds=20, repeat=32)
    return {name: 1e6 * seconds for name, seconds in times.items()}


def linear_programs(seeds: Sequence[int] = (1, 2, 3)) -> list[dict[str, object]]:
    """Certified share of every optimum and the multipliers at the end, both solvers, full batches
    and eighths.
    """
    from test_s_measures_linear import PROBLEMS, linear_problem, train

    rows = []
    for seed, name, solver in itertools.product(seeds, PROBLEMS, ("ratio", "lagrangian")):
        x, y = linear_problem(seed)
        measure, argument, optimum = PROBLEMS[name]
        best = optimum(x, y)
        row: dict[str, object] = {"seed": seed, "problem": name, "solver": solver, "optimum": best}
        for batches, steps in ((1, 1500), (8, 3000)):
            reg = measure(argument, labels=y, solver=solver)
            train(reg, x, y, steps=steps, batches=batches)
            row |= {
                f"{key}, 1/{batches} batches": value
                for key, value in _solved(reg.diagnostics(), argument, best).items()
            }
        print(row, flush=True)
        rows.append(row)
    return rows


def _solved(report: dict[str, Any], argument: Any, best: float) -> dict[str, float]:
    """Certificate over optimum; for F-beta mu over -V*; for the Lagrangian the largest lambda over
    its ceiling.
    """
    row = {"share": report["certificate"] / best}
    if "V" in report:
        row["mu / -V"] = report["mu"][0][0] / (1 - (1 + argument**2) / best)
    if "lambda_range" in report:
        row["lambda / ceiling"] = report["lambda_range"][1] / max(report["lambda_ceiling"])
    return row


def projection_figure(seeds: Sequence[int] = (1, 2, 3)) -> list[dict[str, object]]:
    """Projections and certified F1 at every step and once per epoch of eight batches, as in the
    paper's figure 3.
    """
    from training_s_measures import linear_problem, projection_counts

    return [
        {"seed": seed, **projection_counts(*linear_problem(seed), epochs=300, batches=8)}
        for seed in seeds
    ]


def cost_table(scores: dict[str, float], network: dict[str, float]) -> str:
    lines = [
        f"| forward + backward, batch 4,096, µs of one thread | {' | '.join(scores)} |",
        "|---" * (len(scores) + 1) + "|",
    ]
    for name, times in (
        ("scores alone", scores),
        ("with a network of 32 features, 64 hidden units", network),
    ):
        cells = [f"{time:.0f} ({time / times['bce']:.2f}x)" for time in times.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    torch.set_num_threads(1)
    costs = step_cost(network=False), step_cost(network=True)
    write_between(HERE.parent / "docs" / "s_measures.md", "cost", cost_table(*costs))
    print(cost_table(*costs), flush=True)
    result: dict[str, object] = {"machine": machine(), "costs": costs}
    if "--cost" not in sys.argv:
        result["projections, figure 3"] = projection_figure()
        print(result["projections, figure 3"], flush=True)
        result["linear programs"] = linear_programs()
    (HERE / "results").mkdir(exist_ok=True)
    (HERE / "results" / "s_measures.json").write_text(json.dumps(result, indent=1))
