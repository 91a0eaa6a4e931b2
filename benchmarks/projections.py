"""What the projection onto the ceiling costs against the positives n, the batch B and the steps T.
Section 7.3 of the paper on S-measures counts T B log B for projections of the batch after each of T
steps, and n log n for one of all positives.

`python benchmarks/projections.py` prints the tables, writes them into docs/s_measures.md, and all
numbers into `results/projections.json`, in about a minute of one core.
"""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from timing import RESULTS, interleaved, machine, write_between
from torch import nn

import evalgrad as eg

PAGE = Path(__file__).parents[1] / "docs" / "s_measures.md"
SIZES = tuple(10**power for power in range(3, 8))
COMPARED = (10**4, 10**6)  # positives of a pass, in batches of a logarithm and of a root of them
TRAINED = tuple(10**power for power in range(3, 7))  # positives of a training
BATCH = 256  # items of a training step, half of them positives
SAMPLE = 200_000  # values that one sample projects at least: small projections are repeated
Row = dict[str, Any]


def batches_of(n: int) -> dict[str, int]:
    """The two that the paper compares."""
    return {"log n": round(math.log(n)), "√n": round(math.sqrt(n))}


def projection_times(sizes: Sequence[int], rounds: int = 15) -> dict[int, float]:
    """Seconds of one projection of each size, in one interleaved run."""
    torch.manual_seed(0)
    repeats = {size: max(1, SAMPLE // max(size, 500)) for size in sizes}
    jobs = {str(size): repeated(projection(size), times) for size, times in repeats.items()}
    found = interleaved(jobs, rounds)
    return {size: found[str(size)] / times for size, times in repeats.items()}


def projection(size: int) -> Callable[[], object]:
    """Of values on both sides of the ceiling, in the metric of the library's steps."""
    tau, epsilon = torch.randn(size), torch.tensor(0.3)
    return lambda: eg.project_onto_ceiling(tau, epsilon, rho=1 / size)


def repeated(job: Callable[[], object], times: int) -> Callable[[], None]:
    def run() -> None:
        for _ in range(times):
            job()

    return run


def exponent(times: dict[int, float]) -> float:
    """Slope of the line of least squares through log time over log size."""
    size, time = (
        torch.tensor(list(values), dtype=torch.float64).log() for values in (times, times.values())
    )
    centred = size - size.mean()
    return (centred @ (time - time.mean()) / (centred @ centred)).item()


def pass_costs(n: int, batch: int, times: dict[int, float]) -> dict[str, float]:
    """Seconds that projections take in a pass of n / batch steps; and the passes after which those
    of the batches have cost one of all n, by T B log B = n log n and by the times.
    """
    steps = n / batch
    return {
        "once": times[n],
        "batches": steps * times[batch],
        "every step": steps * times[n],
        "counted": math.log(n) / math.log(batch),
        "measured": times[n] / (steps * times[batch]),
    }


def training_times(sizes: Sequence[int], rounds: int = 15) -> list[Row]:
    """Seconds of a step without projection, of a projection and of a dual step, and the share of
    the projections.
    """
    jobs: dict[str, Callable[[], None]] = {}
    repeats = {size: max(1, SAMPLE // max(size, 10_000)) for size in sizes}
    for size, times in repeats.items():
        for name, job in training_jobs(size).items():
            jobs[f"{name} {size}"] = repeated(job, times)
    found = interleaved(jobs, rounds)
    rows = []
    for size, times in repeats.items():
        took = {name: found[f"{name} {size}"] / times for name in ("step", "project", "dual")}
        rows.append({"n": size, **took, **shares(**took, steps=2 * size / BATCH)})
    return rows


def training_jobs(positives: int) -> dict[str, Callable[[], object]]:
    """Of an MLP with 32 features and 64 hidden units, on as many negatives as positives."""
    torch.manual_seed(0)
    labels = torch.arange(2 * positives) % 2 == 0
    measure = eg.FBeta(labels=labels, solver="lagrangian")
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1), nn.Flatten(0))
    own = torch.optim.SGD(measure.primal_groups(1e-4))
    optimisers = (torch.optim.Adam(model.parameters(), lr=1e-3), own)
    features, moved = torch.randn(BATCH, 32), 1 + torch.randn(1, positives)

    def step() -> None:
        index = torch.randint(2 * positives, (BATCH,))
        for optimiser in optimisers:
            optimiser.zero_grad()
        measure(model(features), labels[index], index=index).backward()
        for optimiser in optimisers:
            optimiser.step()

    def project() -> None:
        with torch.no_grad():  # what has been projected is quicker to sort
            measure.groups[0].tau.copy_(moved)
        measure.project_()

    return {"step": step, "project": project, "dual": measure.dual_step}


def shares(step: float, project: float, dual: float, *, steps: float) -> dict[str, float]:
    """Of the time of a pass of so many steps and one dual step, what projections take."""
    rest = steps * step + dual
    return {
        "every step": steps * project / (rest + steps * project),
        "once per pass": project / (rest + project),
    }


def tables(times: dict[int, float], passes: list[Row], trained: list[Row]) -> str:
    law = exponent({size: size * math.log(size) for size in times})
    said = f"The time grows as n^{exponent(times):.2f}; n log n, over these sizes, as n^{law:.2f}."
    milliseconds = [short(1e3 * seconds) for seconds in times.values()]
    one = table(["positives", *map(power, times)], [["ms of a projection", *milliseconds]])
    head = ["n", "B", "ms of a pass, all n once", "each batch", "all n at every step"]
    two = table([*head, "passes, counted", "measured"], [pass_line(row) for row in passes])
    head = ["n", "ms of a step", "of a projection", "share, at every step", "once per pass"]
    three = table(head, [trained_line(row) for row in trained])
    return "\n".join([*one, "", said, "", *two, "", *three])


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    lines = [f"| {' | '.join(line)} |" for line in (head, *rows)]
    return [lines[0], "|---" * len(head) + "|", *lines[1:]]


def pass_line(row: Row) -> list[str]:
    milliseconds = (short(1e3 * row[name]) for name in ("once", "batches", "every step"))
    passes = (short(row[name]) for name in ("counted", "measured"))
    return [power(row["n"]), row["B"], *milliseconds, *passes]


def trained_line(row: Row) -> list[str]:
    milliseconds = (short(1e3 * row[name]) for name in ("step", "project"))
    parts = (f"{short(100 * row[name])} %" for name in ("every step", "once per pass"))
    return [power(row["n"]), *milliseconds, *parts]


def short(value: float) -> str:
    """Two significant digits, without an exponent."""
    digits = 1 - math.floor(math.log10(value))
    return f"{round(value, digits):,.{max(0, digits)}f}"


def power(size: int) -> str:
    return f"10^{round(math.log10(size))}"


def measure() -> tuple[dict[int, float], list[Row], list[Row]]:
    """Of the sizes, of a pass in batches, and of a training."""
    compared = [(n, name, size) for n in COMPARED for name, size in batches_of(n).items()]
    times = projection_times([*SIZES, *(size for *_, size in compared if size not in SIZES)])
    passes = [
        {"n": n, "B": f"{name} = {size:,}", **pass_costs(n, size, times)}
        for n, name, size in compared
    ]
    return {size: times[size] for size in SIZES}, passes, training_times(TRAINED)


if __name__ == "__main__":
    torch.set_num_threads(1)
    times, passes, trained = measure()
    text = tables(times, passes, trained)
    print(text)
    write_between(PAGE, "projections", text)
    RESULTS.mkdir(exist_ok=True)
    result = {"machine": machine(), "sizes": times, "passes": passes, "training": trained}
    (RESULTS / "projections.json").write_text(json.dumps(result, indent=1) + "\n")
