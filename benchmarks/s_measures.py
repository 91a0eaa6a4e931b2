"""S-measures: cost of a step against BCE, of a projection against a sort, and both solvers against linear programs.

`python benchmarks/s_measures.py` prints all and writes `results/s_measures.json`; `--cost` leaves the linear programs out.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import evalgrad as eg

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))  # the problems and their oracles


def processor_time(jobs: dict[str, Callable[[], object]], rounds: int, repeat: int = 1) -> dict[str, float]:
    """Median seconds of processor time per call, the jobs in turn; `repeat` calls make one sample."""
    samples: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds + 2):
        for name, job in jobs.items():
            start = time.process_time()
            for _ in range(repeat):
                job()
            samples[name].append((time.process_time() - start) / repeat)
    return {name: statistics.median(times[2:]) for name, times in samples.items()}


def step_cost(*, network: bool, batch: int = 4096, items: int = 65536) -> dict[str, float]:
    """Microseconds of forward + backward on scores alone, or with a network of 32 features and 64 hidden units."""
    torch.manual_seed(0)
    labels = torch.rand(items) < 0.1
    scores, features = torch.randn(batch, requires_grad=True), torch.randn(batch, 32)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1), nn.Flatten(0))
    leaves = list(model.parameters()) if network else [scores]
    index = torch.randperm(items)[:batch]
    target = labels[index]
    average, cached = eg.FBeta(labels=labels), eg.FBeta(labels=labels)

    def job(loss: Callable[[Tensor], Tensor]) -> Callable[[], None]:
        def run() -> None:
            for leaf in leaves:
                leaf.grad = None
            loss(model(features) if network else scores).backward()

        return run

    losses = {
        "bce": lambda s: F.binary_cross_entropy_with_logits(s, target.float()),
        "ratio, moving average": lambda s: average(s, target),
        "ratio, cache": lambda s: cached(s, target, index=index),
    }
    # 32 calls are a whole cycle of the totals, so that every sample pays for one.
    times = processor_time({name: job(loss) for name, loss in losses.items()}, rounds=20, repeat=32)
    return {name: 1e6 * seconds for name, seconds in times.items()}


def projection_cost(size: int = 10**6) -> dict[str, float]:
    """Milliseconds for one projection of `size` positives, and for the sort alone."""
    tau, epsilon = torch.randn(size), torch.tensor(0.3)
    jobs = {
        "projection": lambda: eg.project_onto_ceiling(tau, epsilon, rho=1 / size),
        "sort": lambda: tau.sort(descending=True),
    }
    return {name: 1e3 * seconds for name, seconds in processor_time(jobs, rounds=5).items()}


def linear_programs() -> list[dict[str, object]]:
    """Certified share of every optimum, both solvers, full batches and eighths."""
    from test_s_measures_linear import PROBLEMS, X, Y, train

    rows = []
    for name, (measure, argument, optimum) in PROBLEMS.items():
        for solver in ("ratio", "lagrangian"):
            row: dict[str, object] = {"problem": name, "solver": solver, "optimum": optimum()}
            for batches, steps in ((1, 1500), (8, 3000)):
                reg = measure(argument, labels=Y, solver=solver)
                train(reg, X, Y, steps=steps, batches=batches)
                report = reg.diagnostics()
                row[f"share, 1/{batches} batches"] = report["certificate"] / optimum()
                row[f"mu, 1/{batches} batches"] = report["mu"][0][0]
            print(row, flush=True)
            rows.append(row)
    return rows


def multipliers() -> list[dict[str, float]]:
    """How far mu of the Lagrangian is from -V* once the certified F-beta has come close to the optimum."""
    from oracles_s_measures import fbeta_program
    from training_s_measures import linear_problem, train

    rows = []
    for seed in (2, 3, 4):
        x, y = linear_problem(seed)
        for beta in (0.5, 2.0):
            best, reg = fbeta_program(x, y, beta), eg.FBeta(beta, labels=y, solver="lagrangian")
            train(reg, x, y, steps=1500)
            report = reg.diagnostics()
            share, mu = report["certificate"] * (1 + best) / (1 + beta**2), report["mu"][0][0]
            rows.append({"seed": seed, "beta": beta, "share": share, "mu": mu, "-V*": -best})
            print(rows[-1], flush=True)
    return rows


if __name__ == "__main__":
    torch.set_num_threads(1)
    result: dict[str, object] = {
        "step on scores alone, us": step_cost(network=False),
        "step with a small network, us": step_cost(network=True),
        "projection of 10^6, ms": projection_cost(),
    }
    for name, value in result.items():
        print(f"{name}: {value}", flush=True)
    if "--cost" not in sys.argv:
        result["multipliers"] = multipliers()
        result["linear programs"] = linear_programs()
    (HERE / "results").mkdir(exist_ok=True)
    (HERE / "results" / "s_measures.json").write_text(json.dumps(result, indent=1))
