"""Tables 3, 4 and 5 of the smooth top-k paper, with ours beside its algorithms: `python benchmarks/smooth_topk_paper.py [--full]`.

The paper uses k = 5, batches of 256 for the times (on a GPU; here on CPU) and 128 images for the stability. Its scores come from a
network on ImageNet; here they are normal with deviation 3. `--full` goes to n = 100,000, which takes minutes and gigabytes.
"""

import json
import sys
from collections.abc import Callable

import torch
from timing import RESULTS, interleaved, machine
from topk_references import divide_and_conquer, linear_summation, smooth_topk_paper, summation
from torch import Tensor

import evalgrad as eg
from evalgrad.smooth_topk.expansion import expand
from evalgrad.smooth_topk.loss import smooth_topk

K = 5
TEMPERATURES = (1e1, 1e0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-36)
Row = dict[str, object]


def draw(rows: int, classes: int, deviation: float = 3.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return deviation * torch.randn(rows, classes, generator=generator), torch.randint(classes, (rows,), generator=generator)


def ours(x: Tensor, target: Tensor, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    value, gradient = smooth_topk(x, target, x.new_ones(len(x)), K, temperature, 1.0)
    return value, gradient


def table_3(n: int) -> Row:
    """Forward pass: the summation algorithm (SA), divide and conquer (DC), the expansion of the library in torch."""
    x = draw(256, n)[0] / K
    functions = {"SA": lambda: summation(x, K), "DC": lambda: divide_and_conquer(x, K), "torch": lambda: expand(x, K, 1.0)}
    return {"n": n} | interleaved(functions, rounds=1 if n > 1000 else 3)


def table_4(n: int) -> Row:
    """Forward and backward: DC with automatic differentiation (AD) and with Algorithm 2 (CB), ours (value and gradient at once)."""
    x, y = draw(256, n)
    functions: dict[str, Callable[[], object]] = {
        "DC (AD)": lambda: smooth_topk_paper(x, y, K, 1.0, 1.0, custom_backward=False),
        "DC (CB)": lambda: smooth_topk_paper(x, y, K, 1.0, 1.0),
        "SA (CB)": lambda: smooth_topk_paper(x, y, K, 1.0, 1.0, forward=summation),
        "kernel": lambda: ours(x, y),
    }
    return {"n": n} | interleaved(functions, rounds=1 if n > 1000 else 3)


def table_5(temperature: float) -> Row:
    """Stability: is every value finite? And the error of the gradient in float32 over its maximum, against our float64."""
    x, y = draw(128, 1000)
    exact = ours(x.double(), y, temperature)[1]
    row: Row = {"temperature": temperature}
    algorithms = {
        "SA": lambda z: smooth_topk_paper(z, y, K, temperature, 1.0, forward=linear_summation),
        "SA log": lambda z: smooth_topk_paper(z, y, K, temperature, 1.0, forward=summation),
        "DC log": lambda z: smooth_topk_paper(z, y, K, temperature, 1.0),
        "ours": lambda z: ours(z, y, temperature),
    }
    for name, algorithm in algorithms.items():
        for letter, scores in (("S", x), ("D", x.double())):
            value, gradient = algorithm(scores)
            row[f"{name} ({letter})"] = "finite" if bool(value.isfinite().all()) else "no"
            if letter == "S":
                error = (gradient.double() - exact).abs().amax(1) / exact.abs().amax(1).clamp_min(1e-30)
                row[f"{name} error"] = error.max().item()
    return row


def show(title: str, rows: list[Row]) -> None:
    print(f"\n{title}")
    print("  ".join(name.rjust(11) for name in rows[0]))
    for row in rows:
        print("  ".join((f"{v:.2g}" if isinstance(v, float) else str(v)).rjust(11) for v in row.values()))


if __name__ == "__main__":
    assert eg._native.library is not None, "the kernel is part of the comparison"
    torch.set_num_threads(1)
    sizes = (100, 1000, 10000, 100000) if "--full" in sys.argv else (100, 1000, 10000)
    tables = {
        "table 3: forward, seconds": [table_3(n) for n in sizes],
        "table 4: forward and backward, seconds": [table_4(n) for n in sizes],
        "table 5: stability and error of the gradient": [table_5(temperature) for temperature in TEMPERATURES],
    }
    for title, rows in tables.items():
        show(title, rows)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "smooth_topk_paper.json").write_text(json.dumps({"machine": machine(), **tables}, indent=1) + "\n")
