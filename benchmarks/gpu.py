"""On a GPU: is every loss right there, and what does it cost? `python benchmarks/gpu.py`.

First value and gradient against float64 on the CPU, then milliseconds and megabytes of a step next
to cross-entropy on the same tensor, or binary cross-entropy. Writes benchmarks/results/gpu.json, to
send to us. EVALGRAD_TRITON=1 measures the Triton kernels, without it torch alone. `--device cpu`
goes through the motions on a machine without a GPU.
"""

import argparse
import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

import evalgrad as eg
from evalgrad import _triton

RESULTS = Path(__file__).parent / "results" / "gpu.json"
Loss = Callable[[Tensor, Tensor], Tensor]

SOFTMAX: dict[str, Loss] = {
    "cross-entropy": F.cross_entropy,
    "lovasz_softmax_loss": eg.lovasz_softmax_loss,
    "lovasz_softmax_loss(bins=4096)": eg.LovaszSoftmaxLoss(bins=4096),
    "LossMaxPooling": eg.LossMaxPooling(torch.nn.CrossEntropyLoss(reduction="none")),
}
BINARY: dict[str, Loss] = {
    "cross-entropy": lambda x, y: F.binary_cross_entropy_with_logits(x, y.to(x.dtype)),
    "lovasz_hinge_loss": eg.lovasz_hinge_loss,
    "lovasz_hinge_loss(bins=4096)": eg.LovaszHingeLoss(bins=4096),
}
SHAPES = {
    "small": ((2, 5, 64, 64), (2, 64, 64)),
    "large": ((2, 19, 512, 1024), (8, 512, 512)),
}


def draw(shape: tuple[int, ...], classes: int) -> tuple[Tensor, Tensor]:
    """Logits of a half-trained network, and labels."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator)
    if not classes:
        target = torch.rand(shape, generator=generator) < 0.3
        return x + 2.0 * target - 1.0, target.long()
    target = torch.randint(classes, (shape[0], *shape[2:]), generator=generator)
    return x + 3.0 * F.one_hot(target, classes).movedim(-1, 1), target


def step(loss: Loss, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Value and gradient, from a fresh leaf."""
    leaf = x.detach().requires_grad_()
    value = loss(leaf, target)
    value.backward()
    assert leaf.grad is not None
    return value.detach(), leaf.grad


def off(loss: Loss, x: Tensor, target: Tensor, device: str) -> dict[str, float]:
    """How far value and gradient on the device are from float64 on the CPU, relative."""
    value, gradient = (t.cpu().double() for t in step(loss, x.to(device), target.to(device)))
    expected, exact = step(loss, x.double(), target)
    return {
        "value": ((value - expected).abs() / expected.abs()).item(),
        "gradient": ((gradient - exact).norm() / exact.norm()).item(),
    }


def cost(loss: Loss, x: Tensor, target: Tensor, rounds: int = 20) -> dict[str, float]:
    """Median milliseconds, and megabytes at the peak, of a step on a GPU."""
    step(loss, x, target)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before, times = torch.cuda.memory_allocated(), []
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        step(loss, x, target)
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    peak = (torch.cuda.max_memory_allocated() - before) / 1e6
    return {"ms": sorted(times)[rounds // 2], "MB": peak}


def measure(device: str, sizes: list[str]) -> list[dict[str, object]]:
    """One row per loss and size; times only on a GPU, and only where the loss is right."""
    rows: list[dict[str, object]] = []
    for size in sizes:
        maps, binary = SHAPES[size]
        for losses, shape, classes in ((SOFTMAX, maps, maps[1]), (BINARY, binary, 0)):
            x, target = draw(shape, classes)
            for name, loss in losses.items():
                row: dict[str, object] = {"loss": name, "shape": shape}
                row["off"] = wrong = off(loss, x, target, device)
                # in bins the gradient is that of bins, on either device
                row["right"] = right = wrong["value"] < 1e-5 and wrong["gradient"] < 1e-2
                if right and device == "cuda":
                    row.update(cost(loss, x.to(device), target.to(device)))
                rows.append(row)
                print(json.dumps(row), flush=True)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--sizes", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("benchmarks/gpu.py: torch finds no GPU; --device cpu runs the comparison alone.")
        return 1
    gpu = torch.cuda.get_device_name() if options.device == "cuda" else platform.processor()
    rows = measure(options.device, options.sizes)
    about = {"device": gpu, "torch": torch.__version__, "triton": _triton.ENABLED}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({**about, "rows": rows}, indent=2) + "\n")
    print(f"{RESULTS}: please send it to us.")
    return 0 if all(row["right"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
