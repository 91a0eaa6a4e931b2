"""One training on pairs of digits: 100 classes in 20 groups of 5 like CIFAR-100, so that the
paper's protocols carry over.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import evalgrad as eg
from evalgrad_lab.data.dataset import Dataset, Part, Sizes
from evalgrad_lab.data.embedded.pairs import digit_pairs
from evalgrad_lab.data.fetched.mnist import mnist_pairs
from evalgrad_lab.models.mlp import mlp
from reproductions.smooth_topk.crops import crop_accuracies, shifted

# LOOKS: how often the accuracies are taken during a training
K, CLASSES, BATCH, LOOKS = 5, 100, 100, 10
Objective = dict[str, float]  # k, temperature and margin of the smooth loss; empty: cross-entropy
CROSS_ENTROPY: Objective = {}


def smooth(temperature: float, *, k: int = K, margin: float = 1.0) -> Objective:
    """The paper's L_{k, temperature}; temperature 0 is the hinge."""
    return {"k": k, "temperature": temperature, "margin": margin}


def loss_of(objective: Objective) -> Callable[[Tensor, Tensor], Tensor]:
    """The loss that an objective describes."""
    if not objective:
        return F.cross_entropy
    k, margin, temperature = int(objective["k"]), objective["margin"], objective["temperature"]
    if temperature == 0:
        return eg.TopKHingeLoss(k=k, margin=margin)
    return eg.SmoothTopKLoss(k=k, temperature=temperature, margin=margin)


def load(data: str, seed: int, sizes: tuple[int, int, int], noise: float) -> Dataset[Part]:
    """digits-100 (embedded) or MNIST-100 (fetched): pairs whose training and validation labels are
    noisy within their group.
    """
    pairs = {"digits": digit_pairs, "mnist": mnist_pairs}[data]
    return pairs(seed, Sizes(*sizes), noise=noise)


def network(inputs: int, width: int, seed: int) -> nn.Module:
    """Two hidden layers, with weights that depend on the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return mlp(inputs, (width, width), CLASSES)


def train(
    *,
    data: str,
    seed: int,
    sizes: tuple[int, int, int],
    objective: Objective,
    learning_rate: float,
    weight_decay: float,
    steps: int,
    noise: float = 0.0,
    width: int = 128,
    crops: bool = False,
) -> dict[str, Any]:
    """A piece. `last`: test accuracies of the final network; `best`: of the network with the best
    top-5 validation accuracy.

    With `crops` the training images are shifted by up to a pixel, and the result holds the
    accuracies of averaging nine crops.
    """
    split = load(data, seed, sizes, noise)
    model = network(split.train.inputs.shape[1], width, seed)
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=learning_rate, weight_decay=weight_decay, fused=True
    )
    part = Part(split.train.inputs[:500], split.train.target[:500])  # enough for a curve
    best: dict[str, float] = {"validation": -1.0}
    curve = []
    for step in _descend(model, split.train, loss_of(objective), optimiser, steps, seed, crops):
        if step % max(steps // LOOKS, 1) == 0 or step == steps:
            curve.append([step, 100 - _accuracies(model, part)["top5"]])
            found = _accuracies(model, split.validation)["top5"]
            if found > best["validation"]:
                best = {"validation": found, "step": step, **_accuracies(model, split.test)}
    result = {
        "best": best,
        "last": _accuracies(model, split.test),
        "train": _accuracies(model, split.train),
        "curve": curve,
    }
    return result | (
        {"crops": crop_accuracies(model, split.test.inputs, split.test.target, K)} if crops else {}
    )


def _descend(
    model: nn.Module,
    part: Part,
    loss: Callable[[Tensor, Tensor], Tensor],
    optimiser: torch.optim.Optimizer,
    steps: int,
    seed: int,
    crops: bool,
) -> Iterator[int]:
    """Train with a cosine schedule; after each step, its number."""
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    generator = torch.Generator().manual_seed(seed)
    order: Iterator[Tensor] = iter(())
    for step in range(1, steps + 1):
        batch = next(order, None)
        if batch is None:
            order = iter(torch.randperm(len(part), generator=generator).split(BATCH))
            batch = next(order)
        images = shifted(part.inputs[batch], generator) if crops else part.inputs[batch]
        optimiser.zero_grad()
        loss(model(images), part.target[batch]).backward()
        optimiser.step()
        schedule.step()
        yield step


@torch.no_grad()
def _accuracies(model: nn.Module, part: Part) -> dict[str, float]:
    """Top-1 and top-5 accuracy in per cent."""
    scores = model(part.inputs)
    return {
        f"top{k}": 100 * (1 - eg.metrics.topk_error(scores, part.target, k=k).item())
        for k in (1, K)
    }


def gradient_density(
    *, data: str, seed: int, sizes: tuple[int, int, int], temperature: float, width: int = 128
) -> float:
    """A piece, figure 2b: the share of the loss's derivatives that are not numerically zero, at the
    initial random weights.

    Numerically zero: not above 2^-24 of the sample's largest derivative, so that float32 adds the
    two as if it were absent.
    """
    part = load(data, seed, sizes, 0.0).train
    scores = network(part.inputs.shape[1], width, seed)(part.inputs).detach().requires_grad_()
    loss_of(smooth(temperature))(scores, part.target).backward()
    gradient = torch.as_tensor(scores.grad).abs()
    return 100 * (gradient > 2**-24 * gradient.amax(1, keepdim=True)).double().mean().item()
