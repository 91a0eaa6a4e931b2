"""One training on pairs of digits or photographs: 100 classes in 20 groups of 5, like CIFAR-100."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import evalgrad as eg
from evalgrad_lab.data.batches import Batch, Batches, in_memory, mixed_seed
from evalgrad_lab.data.dataset import Dataset, Part, Sizes
from evalgrad_lab.data.embedded.digits import digit_pairs
from evalgrad_lab.fit import Every, Pace, Phase, Training, fit, scores_of
from evalgrad_lab.loss_factories import make
from evalgrad_lab.models.mlp import mlp
from evalgrad_lab.validation import Validation, looks
from reproductions.ladder.arrays import cifar_pairs
from reproductions.smooth_topk.crops import crop_accuracies, shifted
from reproductions.smooth_topk.photographs import CHANNELS, CLASSES, small_cnn, small_densenet
from reproductions.training import Counts, Loss, seeded

# LOOKS: how often the accuracies are taken during a training
K, BATCH, LOOKS = 5, 100, 10
Objective = dict[str, float]  # k, temperature and margin of the smooth loss; empty: cross-entropy
CROSS_ENTROPY: Objective = {}


def smooth(temperature: float, *, k: int = K, margin: float = 1.0, **more: float) -> Objective:
    """The paper's L_{k, temperature}; temperature 0 is the hinge. With `end` the temperature goes
    there from the first one in the second half of the training, in equal ratios.
    """
    return {"k": k, "temperature": temperature, "margin": margin, **more}


def loss_of(objective: Objective) -> Loss:
    """The loss that an objective describes."""
    if not objective:
        return make("cross_entropy", {})
    options = {"k": int(objective["k"]), "margin": objective["margin"]}
    if objective["temperature"] == 0:
        return make("topk_hinge", options)
    return make("smooth_topk", {**options, "temperature": objective["temperature"]})


def annealed(objective: Objective, part: float) -> Objective:
    """The objective when a part of the training is over: half of it stays as it begins."""
    if "end" not in objective:
        return objective
    ratio = objective["end"] / objective["temperature"]
    return {**objective, "temperature": objective["temperature"] * ratio ** max(0.0, 2 * part - 1)}


def load(data: str, seed: int, sizes: Counts, noise: float) -> Dataset[Part]:
    """Pairs of digits (embedded) or photographs (fetched), labels noisy within their group."""
    pairs = {"digits": digit_pairs, "cifar": cifar_pairs}[data]
    return pairs(seed, Sizes(*sizes), noise=noise)


def balanced(part: Part, count: int) -> Part:
    """The first `count` examples of every class, or as many as it has."""
    member = F.one_hot(part.target, CLASSES)
    place = (member.cumsum(0) * member).sum(1)  # 1 for the first of its class
    chosen = place <= count
    return Part(part.inputs[chosen], part.target[chosen])


def pace_of(protocol: str, learning_rate: float, weight_decay: float, seed: int) -> Pace:
    """AdamW and a cosine ("tuned"), or SGD with the drops of the paper's DenseNet ("paper")."""
    if protocol == "tuned":
        return Pace(learning_rate, weight_decay, seed=seed)
    sgd: Any = {"optimiser": "sgd", "momentum": 0.9, "nesterov": True}
    return Pace(learning_rate, weight_decay, schedule="drops:0.5,0.75", seed=seed, **sgd)


def network(data: str, part: Part, width: int, seed: int, growth: int = 0) -> nn.Module:
    """Two hidden layers for digits, convolutions or a DenseNet-BC (`growth`) for photographs."""
    if data == "cifar":
        return seeded(seed, lambda: small_densenet(growth) if growth else small_cnn(width))
    return seeded(seed, lambda: mlp(part.inputs.shape[1], (width, width), CLASSES))


def train_pairs(
    *,
    data: str,
    seed: int,
    sizes: Counts,
    objective: Objective,
    learning_rate: float,
    weight_decay: float,
    steps: int,
    noise: float = 0.0,
    width: int = 128,
    growth: int = 0,
    crops: bool = False,
    per_class: int = 0,
    protocol: str = "tuned",
) -> dict[str, Any]:
    """A piece. `last`: test accuracies of the final network; `best`: of the network with the best
    top-5 validation accuracy, whose labels are noisy too; `best clean`: by clean labels.

    With `crops` the training images are shifted by up to a pixel, and the result holds the
    accuracies of the best network when nine crops are averaged. `per_class` leaves so many training
    examples of each class.
    """
    split, curve = load(data, seed, sizes, noise), []
    if per_class:
        split = replace(split, train=balanced(split.train, per_class))
    judges = {"best": split.validation, "best clean": load(data, seed, sizes, 0.0).validation}
    model = network(data, split.train, width, seed, growth)
    some = Part(split.train.inputs[:500], split.train.target[:500])  # enough for a curve

    def chooser(part: Part) -> Validation:
        when = looks(steps, LOOKS)
        return Validation(lambda: accuracies(model, part)["top5"], when=when, keep_best=True)

    choosers = {name: chooser(part) for name, part in judges.items()}

    def look(step: int) -> None:
        curve.append([step, 100 - accuracies(model, some)["top5"]])

    def loss(scores: Tensor, batch: Batch) -> Tensor:
        return loss_of(annealed(objective, training.step / steps))(scores, batch.target)

    batches = in_memory(split.train, min(BATCH, len(split.train)), seed)
    pace = pace_of(protocol, learning_rate, weight_decay, seed)
    training = Training(model, [Phase(loss, steps)], pace)
    hooks = [*choosers.values(), Every(max(steps // LOOKS, 1), look)]
    channels = CHANNELS if data == "cifar" else 1
    fit(training, shifted_batches(batches, seed, channels) if crops else batches, hooks)
    last, seen = (accuracies(model, part) for part in (split.test, split.train))
    result: dict[str, Any] = {"last": last, "train": seen, "curve": curve}
    for name, validation in reversed(choosers.items()):
        validation.restore_best(training)
        result[name] = {"validation": validation.best, **accuracies(model, split.test)}
    if crops:
        result["crops"] = crop_accuracies(model, split.test, K, channels)
    return result


def shifted_batches(batches: Batches, seed: int, channels: int) -> Batches:
    """The same batches with their images shifted."""

    def epoch(number: int) -> Iterator[Batch]:
        generator = torch.Generator().manual_seed(mixed_seed(seed, number, 1))
        for batch in batches(number):
            yield replace(batch, inputs=shifted(batch.inputs, generator, channels))

    return epoch


def accuracies(model: nn.Module, part: Part) -> dict[str, float]:
    """Top-1 and top-5 accuracy in per cent."""
    scores = scores_of(model, part.inputs)
    return {
        f"top{k}": 100 * (1 - eg.metrics.topk_error(scores, part.target, k=k).item())
        for k in (1, K)
    }


def gradient_density(
    *, data: str, seed: int, sizes: Counts, temperature: float, width: int = 128
) -> float:
    """A piece, figure 2b: the share of the loss's derivatives that are not numerically zero, at the
    initial random weights.

    Numerically zero: not above 2^-24 of the sample's largest derivative, so that float32 adds the
    two as if it were absent.
    """
    part = load(data, seed, sizes, 0.0).train
    scores = network(data, part, width, seed)(part.inputs).detach().requires_grad_()
    loss_of(smooth(temperature))(scores, part.target).backward()
    gradient = torch.as_tensor(scores.grad).abs()
    return 100 * (gradient > 2**-24 * gradient.amax(1, keepdim=True)).double().mean().item()
