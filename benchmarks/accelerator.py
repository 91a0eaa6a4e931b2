"""What every loss would do on a GPU, forward and backward, next to cross-entropy or BCE on the same
tensor: launches, bytes, peak memory and synchronisations of eager torch, what a compiler sees, and
what Inductor makes of it (inductor.py says how that is counted, for the pinned torch alone).

    python benchmarks/accelerator.py           # prints the table, writes results/accelerator.json
    python benchmarks/accelerator.py --docs    # and writes it into docs/accelerator.md
    python benchmarks/accelerator.py --images  # segmentation in eager torch: the rest takes minutes

Counted on meta tensors, without a GPU: no time is measured. What the Triton kernels do is counted
by benchmarks/triton_bytes.py, which leaves it in benchmarks/triton.json.
"""

import collections
import copy
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from accounting import Account, account
from inductor import TORCH, can_count, inductor
from timing import RESULTS, machine, write_between
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd

import evalgrad as eg
from evalgrad import _native

PAGE = Path(__file__).parents[1] / "docs" / "accelerator.md"
TRITON = Path(__file__).with_name("triton.json")  # kept: counting it anew takes an hour
Loss = Callable[[Tensor, Tensor], Tensor]
Row = dict[str, Any]


def bce(x: Tensor, target: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(x, target)


class Comparison(NamedTuple):
    """Losses on tensors of one kind, and what they are compared with."""

    name: str
    usual: Loss
    shapes: tuple[tuple[int, ...], ...]
    losses: dict[str, Loss]
    classes: bool  # class indices, or 0 and 1 of the shape of the scores
    compiled: bool = True

    def draw(self, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        x = torch.empty(shape, device="meta", requires_grad=True)
        labels = (shape[0], *shape[2:]) if self.classes else shape
        dtype = torch.int64 if self.classes else torch.float32
        return x, torch.empty(labels, dtype=dtype, device="meta")


def comparisons() -> Iterator[Comparison]:
    pixels = torch.nn.CrossEntropyLoss(reduction="none")
    yield Comparison(
        "cross-entropy",
        F.cross_entropy,
        ((2, 19, 512, 1024), (4, 21, 321, 321), (2, 14, 96, 96, 96)),
        {
            "lovasz_softmax_loss": eg.LovaszSoftmaxLoss(),
            "lovasz_softmax_loss(bins=4096)": eg.LovaszSoftmaxLoss(bins=4096),
            "lovasz_softmax_loss(metric=dice)": eg.LovaszSoftmaxLoss(metric="dice"),
            "LossMaxPooling(cross-entropy)": eg.LossMaxPooling(pixels),
            "soft_jaccard_loss": eg.SoftJaccardLoss(),
            "bootstrapped_cross_entropy": eg.BootstrappedCrossEntropy(),
        },
        classes=True,
    )
    hinge = {
        "lovasz_hinge_loss": eg.LovaszHingeLoss(),
        "lovasz_hinge_loss(bins=4096)": eg.LovaszHingeLoss(bins=4096),
    }
    yield Comparison("BCE", bce, ((8, 512, 512),), hinge, classes=False)
    if "--images" in sys.argv:
        return
    topk = {"smooth_topk_loss": eg.SmoothTopKLoss(), "topk_hinge_loss": eg.TopKHingeLoss()}
    shapes = ((256, 1000), (64, 100_000))
    yield Comparison("cross-entropy", F.cross_entropy, shapes, topk, classes=True)
    ranking = {
        "direct_average_precision_loss": eg.DirectAveragePrecisionLoss(),
        "direct_average_precision_loss(direction=negative)": eg.DirectAveragePrecisionLoss(
            direction="negative"
        ),
        "direct_ndcg_loss(k=10)": eg.DirectNDCGLoss(k=10),
        "direct_jaccard_loss": eg.DirectJaccardLoss(),
    }
    yield Comparison("BCE", bce, ((10_000,), (80, 2048)), ranking, classes=False)
    first, later = eg.FBeta(), eg.FBeta()
    later(torch.tensor([1.0, -1.0]), torch.tensor([1, 0]))
    measures = {"FBeta": later, "FBeta (every 16th batch)": first}
    yield Comparison("BCE", bce, ((4096,),), measures, classes=False, compiled=False)


# ---- eager torch: every operation a launch -------------------------------------------------------


def on_device(loss: Loss, x: Tensor) -> Loss:
    """A copy, so that a loss with a state finds it as it was."""
    return copy.deepcopy(loss).to(x.device) if isinstance(loss, torch.nn.Module) else loss


def eager(loss: Loss, x: Tensor, target: Tensor) -> Account:
    x.grad = None  # of the loss before: it would be added to
    loss = on_device(loss, x)
    with _native.open_operators():
        return account(lambda: loss(x, target).backward(), (x, target))


# ---- compiled: the operations that Inductor is given ---------------------------------------------

# What it cannot fuse with its neighbours; it makes few kernels of all the others.
APART = ("sort", "topk", "cumsum", "scatter", "index_put", "searchsorted")


def compiled(loss: Loss, x: Tensor, target: Tensor) -> tuple[int, collections.Counter[str]]:
    """How many operations the graphs of forward and backward have, and which of them stay apart."""
    seen: collections.Counter[str] = collections.Counter()

    def count(graph: torch.fx.GraphModule, _: object) -> Callable[..., Any]:
        for node in graph.graph.nodes:
            if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
                seen[node.target.overloadpacket.__name__] += 1
        return graph.forward

    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=count)
    torch.compile(loss, backend=backend, fullgraph=True)(x, target).backward()
    apart = collections.Counter(
        {name: n for name, n in seen.items() if name.startswith(APART) or hasattr(OURS, name)}
    )
    return sum(seen.values()), apart


OURS = torch.ops.evalgrad


# ---- the table -----------------------------------------------------------------------------------


def measure() -> Iterator[Row]:
    for comparison in comparisons():
        for shape in comparison.shapes:
            x, target = comparison.draw(shape)
            usual = eager(comparison.usual, x, target)
            row = row_of(comparison.name, shape, usual, usual)
            compiles = comparison.compiled and "--images" not in sys.argv
            if compiles and can_count():
                row |= by_inductor(comparison.usual, x, target)
            yield row
            for name, loss in comparison.losses.items():
                row = row_of(name, shape, eager(loss, x, target), usual)
                if compiles:
                    row["operations"], row["apart"] = compiled(loss, x, target)
                    opaque = any(hasattr(OURS, operation) for operation in row["apart"])
                    if can_count() and not opaque:
                        row |= by_inductor(loss, x, target)
                yield row


def by_inductor(loss: Loss, x: Tensor, target: Tensor) -> Row:
    count = inductor(loss, x, target)
    return {"inductor kernels": count.kernels, "inductor bytes": count.bytes}


def as_text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def row_of(name: str, shape: tuple[int, ...], seen: Account, usual: Account) -> Row:
    return {
        "loss": name,
        "shape": as_text(shape),
        "launches": seen.launches,
        "bytes": seen.bytes,
        "bytes x": seen.bytes / usual.bytes,
        "peak": seen.peak,
        "peak x": seen.peak / usual.peak,
        "syncs": dict(seen.syncs),
        "usual": [usual.bytes, usual.peak],
    }


def triton_cell(row: Row, counted: list[Row]) -> str:
    for other in counted:
        if (other["loss"], other["shape"]) == (row["loss"], row["shape"]):
            usual_bytes, usual_peak = row["usual"]
            moved = f"{other['bytes'] / usual_bytes:.2f}x" if other["bytes"] else "?"
            peak = f"{other['peak'] / usual_peak:.2f}x"
            return f"{other['kernels']} of {other['launches']}: {moved} / {peak}, {other['syncs']}"
    return ""


def inductor_cell(row: Row, usual: Row) -> str:
    """Bytes as a multiple of what Inductor makes of the usual loss."""
    if "inductor bytes" not in row:
        return ""
    moved, least = row["inductor bytes"], usual["inductor bytes"]
    return f"{row['inductor kernels']}, {moved / 1e9:.3g} GB, {moved / least:.1f}x"


HEADS = (
    *("loss", "shape", "launches", "bytes", "peak", "syncs", "compiled: operations"),
    *("Inductor: kernels, bytes", "Triton"),
)


def table(rows: list[Row]) -> str:
    counted: list[Row] = json.loads(TRITON.read_text())["rows"] if TRITON.exists() else []
    lines = [f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|"]
    usual = rows[0]
    for row in rows:
        usual = row if row["bytes x"] == row["peak x"] == 1 else usual
        apart = ", ".join(f"{n} {name}" for name, n in sorted(row.get("apart", {}).items()))
        seen = f"{row['operations']} ({apart})" if "operations" in row else ""
        cells = (
            row["loss"].join("``"),
            row["shape"],
            f"{row['launches']:,}",
            f"{row['bytes'] / 1e9:.3g} GB, {row['bytes x']:.1f}x",
            f"{row['peak'] / 1e6:.3g} MB, {row['peak x']:.1f}x",
            str(sum(row["syncs"].values())),
            seen,
            inductor_cell(row, usual),
            triton_cell(row, counted),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    if not can_count():
        print(f"What Inductor makes of the losses is counted for torch {TORCH} alone: no column.")
    found = []
    for row in measure():
        found.append(row)
        print({name: value for name, value in row.items() if name != "usual"}, flush=True)
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps({"machine": machine(), "rows": found}, indent=1)
    (RESULTS / "accelerator.json").write_text(text + "\n")
    print(table(found))
    if "--docs" in sys.argv:
        write_between(PAGE, "accelerator", table(found))
