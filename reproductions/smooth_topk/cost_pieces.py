"""Pieces that time whole trainings on pairs of digits, by one loss and by another in turns."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import nn

from evalgrad_lab.data.batches import in_memory, steps_per_epoch
from evalgrad_lab.data.embedded.digits import PAIRS
from evalgrad_lab.fit import Hook, Phase, Training, fit
from evalgrad_lab.models.densenet import densenet
from evalgrad_lab.models.mlp import mlp
from evalgrad_lab.runs import Settings
from evalgrad_lab.validation import Validation
from reproductions.smooth_topk.training import BATCH, Objective, accuracies, load, loss_of, pace_of
from reproductions.training import Counts, seeded

SHAPE = (1, 8, 16)  # of a pair


def bottlenecked(growth: int) -> nn.Sequential:
    """The DenseNet-BC of `small_densenet`, for grey pairs."""
    how: Any = {"depth": 16, "growth": growth, "bottleneck": True}
    return nn.Sequential(nn.Unflatten(1, SHAPE), densenet(SHAPE[0], PAIRS, **how))


def perceptron(width: int) -> nn.Sequential:
    """Two hidden layers, as in the other experiments."""
    return mlp(SHAPE[1] * SHAPE[2], (width, width), PAIRS)


NETWORKS: dict[str, Callable[[int], nn.Sequential]] = {
    "DenseNet-BC": bottlenecked,
    "perceptron": perceptron,
}


def whole_trainings(
    *, network: str, width: int, seed: int, sizes: Counts, epochs: int, cases: Settings
) -> dict[str, dict[str, float]]:
    """A piece: for each case, an objective with its learning rate and weight decay, the processor
    time of a whole training and the top-5 accuracy on test that it reached.

    On one thread that is the time on a free machine, and it suffers less from a busy one.
    """

    common: Any = {"network": network, "width": width, "seed": seed, "sizes": sizes}

    def begun(epochs: int) -> dict[str, Iterator[float]]:
        return {name: by_epochs(**common, **case, epochs=epochs) for name, case in cases.items()}

    in_turns(begun(1), 1, seed)  # imports and caches are nobody's cost
    return in_turns(begun(epochs), epochs, seed)


def in_turns(
    trainings: Mapping[str, Iterator[float]], epochs: int, seed: int
) -> dict[str, dict[str, float]]:
    """The time and the last value of each, an epoch of one after an epoch of the other, so that a
    slower minute of the machine is shared; which is first changes with every epoch and seed.
    """
    found = {name: {"seconds": 0.0, "top5": 0.0} for name in trainings}
    for turn in range(epochs + 1):  # the last one is the test
        for name in list(trainings)[:: 1 if (turn + seed) % 2 == 0 else -1]:
            start = time.process_time()
            found[name]["top5"] = next(trainings[name])
            found[name]["seconds"] += time.process_time() - start
    return found


def by_epochs(
    *,
    network: str,
    width: int,
    seed: int,
    sizes: Counts,
    objective: Objective,
    learning_rate: float,
    weight_decay: float,
    epochs: int,
) -> Iterator[float]:
    """A whole training, as in the paper: from the data over all epochs, each with its validation,
    to the test of the network that was best there. It pauses after every epoch and gives the best
    top-5 validation accuracy so far; at the end it gives the one on test.
    """
    split = load("digits", seed, sizes, 0.0)
    model = seeded(seed, lambda: NETWORKS[network](width))
    loss, steps = loss_of(objective), epochs * steps_per_epoch(split.train, BATCH, 1)
    phase = Phase(lambda scores, batch: loss(scores, batch.target), steps)
    training = Training(model, [phase], pace_of("paper", learning_rate, weight_decay, seed))
    best = Validation(lambda: accuracies(model, split.validation)["top5"], keep_best=True)
    batches = in_memory(split.train, BATCH, seed)
    for _ in range(epochs):
        training.stopped = False
        fit(training, batches, [best, _Pause()])
        yield best.best
    best.restore_best(training)
    yield accuracies(model, split.test)["top5"]


class _Pause(Hook):
    """Ends `fit` after an epoch; the next `fit` goes on."""

    def after_epoch(self, training: Training) -> None:
        training.stopped = True
