"""One training of a scorer of points by one of the paper's nine algorithms."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

import evalgrad as eg
from evalgrad_lab.data.batches import in_memory
from evalgrad_lab.data.dataset import Dataset, Part, Sizes
from evalgrad_lab.data.embedded.points import linear_ranking, teacher_ranking
from evalgrad_lab.fit import Every, Pace, scores_of
from evalgrad_lab.loss_factories import make
from evalgrad_lab.models.mlp import mlp
from reproductions.training import Counts, Loss, seeded, train

Hyper = dict[str, float]  # learning_rate, and epsilon (direct losses) or weight_decay (the others)

ALGORITHMS: dict[str, Callable[..., Tensor]] = {
    "pos-AP": partial(eg.direct_average_precision_loss, direction="positive"),
    "neg-AP": partial(eg.direct_average_precision_loss, direction="negative"),
    "hinge-AP": eg.average_precision_hinge_loss,
    "per-AP": eg.average_precision_perceptron_loss,
    "pos-01": partial(eg.direct_zero_one_loss, direction="positive"),
    "neg-01": partial(eg.direct_zero_one_loss, direction="negative"),
    "hinge-01": eg.zero_one_hinge_loss,
    "per-01": eg.zero_one_perceptron_loss,
    "logistic": make("bce", {}),
}
DIRECT = ("pos-AP", "neg-AP", "pos-01", "neg-01")
WIDTH = 20  # of the teacher and of the network that learns from it; the paper gives none


def loss_of(algorithm: str, hyper: Hyper) -> Loss:
    """The loss of an algorithm, with its epsilon if it has one."""
    loss = ALGORITHMS[algorithm]
    return partial(loss, epsilon=hyper["epsilon"]) if algorithm in DIRECT else loss


def load(data: str, seed: int, sizes: Counts, positives: float) -> Dataset[Part]:
    """Ranked by a random network ("teacher") or a plane ("linear"; "noisy": a fifth is wrong)."""
    if data == "teacher":
        return teacher_ranking(seed, Sizes(*sizes), width=WIDTH, positives=positives)
    return linear_ranking(seed, Sizes(*sizes), flipped={"linear": 0.0, "noisy": 0.2}[data])


def train_scorer(
    *,
    data: str,
    seed: int,
    sizes: Counts,
    algorithm: str,
    hyper: Hyper,
    iterations: int,
    batch: int = 0,
    positives: float = 0.2,
) -> dict[str, Any]:
    """A piece: Adam with a cosine schedule, full batches (`batch` 0) or passes over small
    ones.

    AP in per cent of the three parts, the accuracy on test at score 0 and at the best threshold of
    the training set, and the two curves of the paper's figures: [iteration, AP, accuracy] on test.
    """
    split, curve = load(data, seed, sizes, positives), []
    # the structure of what made the labels, with other weights
    model = seeded(1000 + seed, lambda: mlp(10, (WIDTH,) * 3 if data == "teacher" else ()))

    def look(step: int) -> None:
        scores = scores_of(model, split.test.inputs)
        found = average_precision(scores, split.test), accuracy(scores, split.test, 0.0)
        curve.append([step, *found])

    pace = Pace(hyper["learning_rate"], hyper.get("weight_decay", 0.0), seed=seed)
    batches = in_memory(split.train, batch or None, seed)
    hooks = [Every(max(iterations // 15, 1), look)]
    train(model, loss_of(algorithm, hyper), batches, pace, iterations, hooks)
    parts = {"train": split.train, "validation": split.validation, "test": split.test}
    scores = {name: scores_of(model, part.inputs) for name, part in parts.items()}
    threshold = best_threshold(scores["train"], split.train.target)
    return {
        **{name: average_precision(scores[name], part) for name, part in parts.items()},
        "accuracy": accuracy(scores["test"], split.test, 0.0),
        "tuned accuracy": accuracy(scores["test"], split.test, threshold),
        "curve": curve,
    }


def average_precision(scores: Tensor, part: Part) -> float:
    """AP in per cent; 0 where a training diverged, so that no search chooses it."""
    value = eg.metrics.average_precision(scores, part.target, ties="worst")
    return 100 * value.nan_to_num().item()


def accuracy(scores: Tensor, part: Part, threshold: float) -> float:
    """Per cent of the items on the right side of the threshold."""
    return 100 * ((scores > threshold) == (part.target == 1)).double().mean().item()


def best_threshold(scores: Tensor, target: Tensor) -> float:
    """The score above which items are called positive with the fewest errors: scores trained on AP
    have no zero of their own.

    >>> best_threshold(torch.tensor([3.0, 1.0, 2.0]), torch.tensor([1, 0, 0]))
    2.0
    """
    ranked, order = scores.sort(descending=True)
    label = target[order]
    # With the k best called positive: the negatives among them, and the positives that are left.
    errors = (1 - label).cumsum(0) + label.sum() - label.cumsum(0)
    k = int(errors.argmin())
    if int(errors[k]) >= int(label.sum()):
        return float(ranked[0])
    return float(ranked[k + 1]) if k + 1 < len(ranked) else -torch.inf
