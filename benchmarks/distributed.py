"""How wrong the gradient is without the global batch: what DDP does to a loss that is not a mean
over samples.

DDP averages the gradients of the ranks' own losses. One process can compute that average, so no
ranks are needed here; that real ranks agree is tested in tests/test_global_batch.py. Prints the
table and writes it between the marks in docs/distributed.md.
"""

import statistics
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

import evalgrad as eg
from evalgrad_lab.data.embedded.digits import SCENE_CLASSES, pools, scenes

SEEDS, RANKS = range(10), (2, 4, 8)
PAGE, MARKS = (
    Path(__file__).parent.parent / "docs/distributed.md",
    (
        "<!-- errors: begin -->\n",
        "<!-- errors: end -->",
    ),
)
Draw = Callable[[int], tuple[nn.Module, Tensor, Tensor]]
Loss = Callable[[Tensor, Tensor], Tensor]


def segmentation(seed: int) -> tuple[nn.Module, Tensor, Tensor]:
    """16 digit scenes and a network with random weights, large ones: its errors are of all
    sizes.
    """
    part = scenes(pools(seed)[0], 16, torch.Generator().manual_seed(seed), canvas=32, tail=9.0)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.Conv2d(16, SCENE_CLASSES, 1)
    )
    nn.init.normal_(model[2].weight)
    return model, part.inputs, part.target


def ranking(seed: int) -> tuple[nn.Module, Tensor, Tensor]:
    """64 items, one in eight positive, and a linear scorer."""
    return (
        nn.Sequential(nn.Linear(10, 1), nn.Flatten(0)),
        torch.randn(64, 10),
        torch.randperm(64) % 8 == 0,
    )


def classification(seed: int) -> tuple[nn.Module, Tensor, Tensor]:
    """64 samples of 10 classes and a linear classifier."""
    return nn.Linear(10, 10), torch.randn(64, 10), torch.randint(10, (64,))


def f_beta(scores: Tensor, target: Tensor) -> Tensor:
    """A fresh measure, so that one call leaves nothing behind for the next."""
    return eg.FBeta(labels=torch.arange(64) % 8 == 0)(scores, target)


ROWS: dict[str, tuple[Draw, Loss]] = {
    "`lovasz_softmax_loss`": (segmentation, eg.lovasz_softmax_loss),
    "`lovasz_softmax_loss(bins=64)`": (segmentation, eg.LovaszSoftmaxLoss(bins=64)),
    "`LossMaxPooling(per_image=False)`": (
        segmentation,
        eg.LossMaxPooling(nn.CrossEntropyLoss(reduction="none"), per_image=False),
    ),
    "`direct_average_precision_loss`": (ranking, eg.DirectAveragePrecisionLoss(epsilon=1.0)),
    "`average_precision_hinge_loss`": (ranking, eg.average_precision_hinge_loss),
    "`FBeta`": (ranking, f_beta),
    "`smooth_topk_loss(weight=...)`": (
        classification,
        eg.SmoothTopKLoss(weight=torch.arange(1.0, 11.0)),
    ),
    "`smooth_topk_loss`, a mean over samples": (classification, eg.smooth_topk_loss),
}


def gradient(model: nn.Module, loss: Loss, inputs: Tensor, target: Tensor) -> Tensor:
    grads = torch.autograd.grad(loss(model(inputs), target), list(model.parameters()))
    return torch.cat([g.flatten() for g in grads])


def error(draw: Draw, loss: Loss, ranks: int, seed: int) -> float:
    """Relative error of the average of the ranks' own gradients."""
    torch.manual_seed(seed)
    model, inputs, target = draw(seed)
    whole = gradient(model, loss, inputs, target)
    parts = zip(inputs.chunk(ranks), target.chunk(ranks), strict=True)
    average = torch.stack([gradient(model, loss, *part) for part in parts]).mean(0)
    return float((average - whole).norm() / whole.norm())


def table() -> str:
    lines = [
        "| loss | " + " | ".join(f"{ranks} ranks" for ranks in RANKS) + " |",
        "|---" * (len(RANKS) + 1) + "|",
    ]
    for name, (draw, loss) in ROWS.items():
        errors = [[100 * error(draw, loss, ranks, seed) for seed in SEEDS] for ranks in RANKS]
        cells = [f"{statistics.mean(e):.1f} % ± {statistics.stdev(e):.1f}" for e in errors]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    torch.set_num_threads(1)
    found = table()
    print(found)
    before, _, rest = PAGE.read_text().partition(MARKS[0])
    PAGE.write_text(before + MARKS[0] + found + MARKS[1] + rest.partition(MARKS[1])[2])


if __name__ == "__main__":
    main()
