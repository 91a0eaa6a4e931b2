"""One training of digits or points with the size as a regulariser, on the lab's engine."""

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

import evalgrad as eg
from evalgrad_lab.data.batches import Batch, in_memory, steps_per_epoch
from evalgrad_lab.data.dataset import Dataset, Part, Sizes
from evalgrad_lab.data.embedded.digits import s_digits
from evalgrad_lab.data.embedded.points import two_modes
from evalgrad_lab.fit import BatchLoss, Every, Hook, Pace, Phase, Training, fit, scores_of
from evalgrad_lab.models.mlp import mlp
from reproductions.s_measures.regulariser import OWN_STEP, Average, Regulariser
from reproductions.s_measures.sized import Sized, digits_of_all_sizes, s_mnist, sized_classifier
from reproductions.training import Counts, seeded

BATCH = 100  # the paper's
DATA: dict[str, Callable[[int, int], Dataset[Part]]] = {  # of a seed and a number of groups
    "s-digits": lambda seed, groups: s_digits(seed),
    "s-mnist": lambda seed, groups: s_mnist(seed),
    "all sizes": digits_of_all_sizes,
}


adam = partial(Pace, optimiser="adam", schedule="constant")  # (learning rate, seed=)


def trained(
    network: nn.Module,
    loss: BatchLoss,
    data: tuple[Part, int],
    pace: Pace,
    epochs: int,
    hooks: Sequence[Hook],
    look: Callable[[int], object] = lambda step: None,
) -> None:
    """On a part in batches of a size; `look` is called after every epoch."""
    part, batch = data
    length = steps_per_epoch(part, batch, 1)
    training = Training(network, [Phase(loss, epochs * length)], pace)
    fit(training, in_memory(part, batch, pace.seed), [*hooks, Every(length, look)])


def train_digits(
    *,
    data: str,
    seed: int,
    hidden: int,
    alpha: float,
    solver: str,
    project: str,
    learning_rate: float,
    epochs: int,
    step: float = OWN_STEP,
    groups: int = 2,
    average: Average | None = None,
) -> dict[str, Any]:
    """A piece: accuracies in per cent; `curve` is the test accuracy after every epoch.

    `weights` is a digest of the digit node's weights, `f1` that of the size node on test, of more
    than two `groups` one against the rest, and `certificate` the bound on training after every
    epoch, of the F1 that the `average` is.
    """
    split, curve, certificate = DATA[data](seed, groups), [], []
    model = seeded(seed, lambda: sized_classifier(split.train.inputs.shape[1], hidden, groups))
    size = split.train.target[:, 1]
    regulariser = Regulariser(size, alpha, solver, project, step, average)

    def loss(output: tuple[Tensor, Tensor], batch: Batch) -> Tensor:
        digit, group = batch.target.unbind(1)
        return F.cross_entropy(output[0], digit) + regulariser.loss(output[1], group, batch.index)

    def look(step: int) -> None:
        curve.append(_accuracy(model, split.test))
        certificate.append(regulariser.certificate(model.sizes_of(split.train.inputs), size))

    digits, pace = (split.train, BATCH), adam(learning_rate, seed=seed)
    trained(model, loss, digits, pace, epochs, [regulariser], look)
    weight = model.head.get_parameter("weight").detach()
    return {
        "validation": _accuracy(model, split.validation),
        "test": curve[-1],
        "curve": curve,
        "f1": _f1(model.sizes_of(split.test.inputs), split.test.target[:, 1]),
        "certificate": certificate,
        "projections": regulariser.projections,
        "weights": hashlib.sha256(weight.numpy().tobytes()).hexdigest()[:16],
    }


def _accuracy(model: Sized, part: Part) -> float:
    digits = model.scores_of(part.inputs).argmax(1)
    return 100 * (digits == part.target[:, 0]).double().mean().item()


def _f1(scores: Tensor, size: Tensor) -> float:
    lists = size if scores.ndim == 1 else F.one_hot(size, scores.shape[1])
    dim = None if scores.ndim == 1 else 0
    return 100 * eg.metrics.fbeta_score(scores, lists, dim=dim, ties="worst").item()


def train_measure(
    *,
    seed: int,
    size: Counts,
    solver: str,
    project: str,
    learning_rate: float,
    epochs: int,
    step: float = OWN_STEP,
) -> dict[str, Any]:
    """A piece: the measure alone, without a main loss, for a linear scorer of data that no plane
    divides. F1 in per cent.

    A training that ends in NaN certifies nothing and finds nothing: 0.
    """
    split = two_modes(seed, Sizes(*size))
    model = mlp(split.train.inputs.shape[1])
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    regulariser = Regulariser(split.train.target, 1.0, solver, project, step)
    data, pace = (split.train, BATCH), adam(learning_rate, seed=seed)

    def loss(scores: Tensor, batch: Batch) -> Tensor:
        return regulariser.loss(scores, batch.target, batch.index)

    trained(model, loss, data, pace, epochs, [regulariser])
    seen, scores = (scores_of(model, part.inputs) for part in (split.train, split.test))
    certificate, f1 = 0.0, 0.0
    if seen.isfinite().all():
        certificate = regulariser.certificate(seen, split.train.target)
        f1 = _f1(scores, split.test.target)
    return {"certificate": certificate, "f1": f1, "projections": regulariser.projections}
