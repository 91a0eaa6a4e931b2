"""On a GPU: is every loss right there, and what does it cost? `python benchmarks/gpu.py`.

First value and gradient against float64 on the CPU, then milliseconds and megabytes of a step next
to cross-entropy on the same tensor, or binary cross-entropy, and to the losses of MONAI and
segmentation_models_pytorch if they are installed. Writes benchmarks/results/gpu.json, to send to
us. EVALGRAD_TRITON=1 measures the Triton kernels, without it torch alone; a kernel whose first use
fell back to torch is in the file. `--device cpu` goes through the motions on a machine without a
GPU.
"""

import argparse
import copy
import json
import platform
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

import evalgrad as eg
from evalgrad import _triton

RESULTS = Path(__file__).parent / "results" / "gpu.json"
Loss = Callable[[Tensor, Tensor], Tensor]


class Kind(NamedTuple):
    """Losses on tensors of one kind, and what they are compared with."""

    usual: Loss
    losses: dict[str, Loss]
    small: tuple[int, ...]
    large: tuple[int, ...]
    classes: bool = True  # class indices, or 0 and 1 of the shape of the scores
    peers: bool = False


def bce(x: Tensor, target: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(x, target.to(x.dtype))


KINDS = (
    Kind(
        F.cross_entropy,
        {
            "lovasz_softmax_loss": eg.lovasz_softmax_loss,
            "lovasz_softmax_loss(bins=4096)": eg.LovaszSoftmaxLoss(bins=4096),
            "LossMaxPooling": eg.LossMaxPooling(torch.nn.CrossEntropyLoss(reduction="none")),
        },
        (2, 5, 64, 64),
        (2, 19, 512, 1024),
        peers=True,
    ),
    Kind(
        bce,
        {
            "lovasz_hinge_loss": eg.lovasz_hinge_loss,
            "lovasz_hinge_loss(bins=4096)": eg.LovaszHingeLoss(bins=4096),
        },
        (2, 64, 64),
        (8, 512, 512),
        classes=False,
    ),
    Kind(F.cross_entropy, {"smooth_topk_loss": eg.smooth_topk_loss}, (16, 100), (256, 1000)),
    Kind(
        bce,
        {
            "direct_average_precision_loss": eg.direct_average_precision_loss,
            "direct_average_precision_loss(direction=negative)": eg.DirectAveragePrecisionLoss(
                direction="negative"
            ),
            "direct_ndcg_loss(k=10)": eg.DirectNDCGLoss(k=10),
        },
        (4, 100),
        (80, 2048),
        classes=False,
    ),
    Kind(bce, {"FBeta": eg.FBeta()}, (512,), (65_536,), classes=False),
)
SIZES = ("small", "large")


def peers() -> dict[str, Loss]:
    """The Lovász and Dice losses that are installed; a line says which library is not."""
    found: dict[str, Loss] = {}
    try:
        from monai.losses import DiceLoss

        dice = DiceLoss(softmax=True, to_onehot_y=True)
        found["MONAI DiceLoss"] = lambda x, y: dice(x, y[:, None])
    except ImportError as error:
        print(f"MONAI is left out: {error}.")
    try:
        from segmentation_models_pytorch import losses

        found["smp LovaszLoss"] = losses.LovaszLoss("multiclass")
        found["smp DiceLoss"] = losses.DiceLoss("multiclass")
    except ImportError as error:
        print(f"segmentation_models_pytorch is left out: {error}.")
    return found


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


def on(loss: Loss, device: str) -> Loss:
    """A copy on the device: a loss with a state, as FBeta, starts anew."""
    return copy.deepcopy(loss).to(device) if isinstance(loss, torch.nn.Module) else loss


def off(loss: Loss, x: Tensor, target: Tensor, device: str) -> dict[str, float]:
    """How far value and gradient on the device are from float64 on the CPU, relative."""
    there = step(on(loss, device), x.to(device), target.to(device))
    value, gradient = (t.cpu().double() for t in there)
    expected, exact = step(on(loss, "cpu"), x.double(), target)
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


def compared(loss: Loss, x: Tensor, target: Tensor, device: str) -> dict[str, object]:
    """One row; times only on a GPU, and only where the loss is right."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        wrong = off(loss, x, target, device)
    # in bins the gradient is that of bins, on either device
    right = wrong["value"] < 1e-5 and wrong["gradient"] < 1e-2
    # kernels that were not used, with the reason: said once, at the first use
    fell_back = [str(w.message) for w in said if "Triton kernel" in str(w.message)]
    row: dict[str, object] = {"off": wrong, "right": right, "fell back": fell_back}
    if right and device == "cuda":
        row |= cost(on(loss, device), x.to(device), target.to(device))
    return row


def measure(device: str, sizes: list[str]) -> list[dict[str, object]]:
    """One row per loss and size."""
    rows: list[dict[str, object]] = []
    others = peers()
    for size in sizes:
        for kind in KINDS:
            shape = getattr(kind, size)
            x, target = draw(shape, shape[1] if kind.classes else 0)
            losses = {"cross-entropy": kind.usual, **kind.losses}
            for name, loss in {**losses, **(others if kind.peers else {})}.items():
                row = {"loss": name, "shape": shape, **compared(loss, x, target, device)}
                rows.append(row)
                print(json.dumps(row), flush=True)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=SIZES)
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
