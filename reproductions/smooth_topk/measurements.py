"""Pieces that measure the algorithms: their time, and what overflows at which temperature."""

import itertools
import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

import evalgrad as eg
from evalgrad_lab.data.batches import Batch
from evalgrad_lab.data.fetched.labelled import ten_crop_scores
from evalgrad_lab.fit import BatchLoss, Pace, Phase, Training
from evalgrad_lab.models.resnet import resnet18
from reproductions.smooth_topk.algorithms import (
    divide_and_conquer,
    linear_summation,
    smooth_topk_paper,
    summation,
)
from reproductions.smooth_topk.training import CROSS_ENTROPY, Objective, loss_of, smooth
from reproductions.training import seeded

K = 5


def ours(
    scores: Tensor, target: Tensor, k: int, temperature: float, margin: float
) -> tuple[Tensor, Tensor]:
    """Value and gradient of the library's loss, per sample."""
    leaf = scores.detach().requires_grad_()
    how: Any = {"temperature": temperature, "margin": margin}
    value = eg.smooth_topk_loss(leaf, target, k=k, **how, reduction="none")
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    return value.detach(), gradient


FORWARD: dict[str, Callable[[Tensor, int], Tensor]] = {
    "SA": linear_summation,  # what the paper times; in log-space it is several times slower
    "SA log": summation,
    "DC": divide_and_conquer,
    "ours": lambda x, k: eg.log_elementary_symmetric(x, k=k),
}
BOTH: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    "DC (AD)": partial(smooth_topk_paper, custom_backward=False),
    "DC (CB)": smooth_topk_paper,
    "ours": ours,
}
STABLE: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    "SA": partial(smooth_topk_paper, forward=linear_summation, switch=False),
    "SA log": partial(smooth_topk_paper, forward=summation),
    "DC log": smooth_topk_paper,
    "ours": ours,
}


def draw(rows: int, classes: int, deviation: float = 3.0) -> tuple[Tensor, Tensor]:
    """Normal scores and random labels."""
    generator = torch.Generator().manual_seed(0)
    scores = deviation * torch.randn(rows, classes, generator=generator)
    return scores, torch.randint(classes, (rows,), generator=generator)


def seconds(*, algorithm: str, backward: bool, n: int, rows: int, rounds: int) -> list[float]:
    """A piece: processor times of the forward pass (log sigma_0 .. sigma_k), or of the loss with
    its gradient.

    On one thread that is the time on a free machine, and it suffers less from a busy one.
    """
    x, target = draw(rows, n)

    def call() -> None:
        if backward:
            BOTH[algorithm](x, target, K, 1.0, 1.0)
        else:
            FORWARD[algorithm](x / K, K)

    call()
    samples = []
    for _ in range(rounds):
        start = time.process_time()
        call()
        samples.append(time.process_time() - start)
    return samples


def training_seconds(*, side: int, rows: int, rounds: int) -> dict[str, list[float]]:
    """A piece: processor times of whole steps of ResNet-18 with 1000 classes on photographs of a
    side, forward, backward and optimiser, by cross-entropy and by L5,0.1 in turns.
    """
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(rows, 3, side, side, generator=generator)
    target = torch.randint(1000, (rows,), generator=generator)
    batch = Batch(images, target, torch.arange(rows))
    pace = Pace(1e-4, optimiser="sgd", momentum=0.9, nesterov=True, schedule="constant")
    trainings = {
        name: Training(seeded(0, resnet18), [Phase(_on_batches(objective), rounds + 1)], pace)
        for name, objective in {"CE": CROSS_ENTROPY, "L5,0.1": smooth(0.1)}.items()
    }
    found: dict[str, list[float]] = {name: [] for name in trainings}
    for _, (name, training) in itertools.product(range(rounds + 1), trainings.items()):
        start = time.process_time()
        training.take(batch)
        found[name].append(time.process_time() - start)
    return {name: times[1:] for name, times in found.items()}  # the first warms up


def _on_batches(objective: Objective) -> BatchLoss:
    loss = loss_of(objective)
    return lambda output, batch: loss(output, batch.target)


def stability(*, scores: str, rows: int, classes: int, temperature: float) -> dict[str, Any]:
    """A piece: for each algorithm whether all values are finite in float32 and float64, and the
    largest error of its gradient.

    The error is of float32, against the library in float64, as a share of 1/k, the largest
    derivative there can be; None if not finite.
    """
    x, target = real_scores(rows) if scores == "imagenet" else draw(rows, classes)
    exact = ours(x.double(), target, K, temperature, 1.0)[1]
    found: dict[str, Any] = {}
    for name, algorithm in STABLE.items():
        single, double = (algorithm(z, target, K, temperature, 1.0) for z in (x, x.double()))
        largest = K * (single[1].double() - exact).abs().max().item()
        found[name] = {
            "single": bool(single[0].isfinite().all()),
            "double": bool(double[0].isfinite().all()),
            "error": largest if largest < float("inf") else None,  # NaN compares false too
        }
    return found


@cache
def real_scores(rows: int) -> tuple[Tensor, Tensor]:
    """Scores of 1000 classes by a pre-trained network on crops, and the true classes."""
    scores, label = ten_crop_scores()
    return scores.flatten(0, 1)[:rows], label.repeat_interleave(10)[:rows]
