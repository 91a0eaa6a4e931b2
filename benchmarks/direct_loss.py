"""Cost of the direct losses, forward and backward, against a sort of the same scores: `python
benchmarks/direct_loss.py`.
"""

import math

import numpy as np
import torch
from timing import interleaved, main, peak_memory, step
from torch import Tensor

import evalgrad as eg

SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)


def lists(rows: int, n: int, shift: float = 0.5) -> tuple[Tensor, Tensor]:
    """Scores of a network that ranks 20 % positives `shift` standard deviations above the
    negatives.
    """
    generator = torch.Generator().manual_seed(0)
    target = torch.rand(rows, n, generator=generator) < 0.2
    return torch.randn(rows, n, generator=generator) + shift * target, target


def sort_and_gather(scores: Tensor) -> Tensor:
    return scores.gather(1, scores.sort(dim=1, descending=True).indices)


def paper_table(scores: Tensor, target: Tensor, epsilon: float, sign: int) -> np.ndarray:
    """The paper's dynamic programme, a row of its table at a time: n_i of y_direct. One list."""
    s, y = scores.double().numpy(), target.numpy()
    phi, psi = -np.sort(-s[y]), -np.sort(-s[~y])
    P, N = len(phi), len(psi)
    j, sums = np.arange(N + 1), np.concatenate([[0.0], np.cumsum(psi)])
    best, took_negative = np.zeros(N + 1), np.zeros((P, N + 1), dtype=bool)
    for i in range(1, P + 1):
        here = best - sign * epsilon * i / (P * (i + j)) - (j * phi[i - 1] - sums) / (P * N)
        # gain of the first j negatives, below i positives
        below = (j * phi[:i].sum() - i * sums) / (P * N)
        best_so_far = np.maximum.accumulate(here - below)
        took_negative[i - 1] = here - below < best_so_far
        best = best_so_far + below
    above, places = N, np.empty(P, dtype=np.int64)
    for i in reversed(range(P)):
        while took_negative[i, above]:
            above -= 1
        places[i] = above
    return places


def against_sort(rows: int, n: int) -> dict[str, object]:
    """Milliseconds of the sort, multiples of it for the losses."""
    scores, target = lists(rows, n)
    untrained, _ = lists(rows, n, shift=0.0)
    graded, grades = eg.direct_graded_ndcg_loss, target * (1 + torch.arange(n) % 4)
    ap, ndcg, jaccard = (
        eg.direct_average_precision_loss,
        eg.direct_ndcg_loss,
        eg.direct_jaccard_loss,
    )
    functions = {
        "sort": lambda: sort_and_gather(scores),
        "AP+": step(lambda x: ap(x, target), scores),
        "AP-": step(lambda x: ap(x, target, direction="negative"), scores),
        "AP- untrained": step(lambda x: ap(x, target, direction="negative"), untrained),
        "AP hinge": step(lambda x: eg.average_precision_hinge_loss(x, target), scores),
        "NDCG+": step(lambda x: ndcg(x, target), scores),
        "NDCG@100-": step(lambda x: ndcg(x, target, k=100, direction="negative"), scores),
        "graded NDCG+": step(lambda x: graded(x, grades), scores),
        "Jaccard+": step(lambda x: jaccard(x, target), scores),
    }
    times = interleaved(functions)
    if rows == 1:
        times |= interleaved(
            {"paper's table": lambda: paper_table(scores[0], target[0], 0.1, -1)}, rounds=1
        )
    row: dict[str, object] = {"what": f"{rows} x {n}", "sort ms": 1e3 * times.pop("sort")}
    return row | {f"{name} ms": 1e3 * seconds for name, seconds in times.items()}


def growth() -> dict[str, object]:
    """Slope of log time over log n in the positive direction, from n = 10^4 to 10^6: n log n has
    1.1 there.
    """
    seconds = []
    for n in SIZES:
        scores, target = lists(1, n)
        loss = step(lambda x, target=target: eg.direct_average_precision_loss(x, target), scores)
        seconds.append(interleaved({"AP+": loss}, rounds=5)["AP+"])
    slope = math.log(seconds[-1] / seconds[0]) / math.log(SIZES[-1] / SIZES[0])
    return {"what": "AP+ growth", "slope": slope, "ms at 10^6": 1e3 * seconds[-1]}


def large_chain() -> dict[str, object]:
    """20,000 positives x 200,000 negatives in the negative direction, untrained and with every pair
    in the wrong order.
    """
    target = torch.arange(220_000)[None] < 20_000
    row: dict[str, object] = {"what": "AP- 20,000 x 200,000"}
    for name, shift in (("AUC 0.5", 0.0), ("AUC 0", -20.0)):
        scores = (
            torch.randn(1, 220_000, generator=torch.Generator().manual_seed(0)) + shift * target
        )
        run = step(
            lambda x: eg.direct_average_precision_loss(x, target, direction="negative"), scores
        )
        row |= {f"{name} MB": peak_memory(run), f"{name} s": interleaved({"": run}, rounds=1)[""]}
    return row


def measure() -> list[dict[str, object]]:
    return [against_sort(1, 10_000), against_sort(80, 2048), growth(), large_chain()]


if __name__ == "__main__":
    main("direct_loss", measure)
