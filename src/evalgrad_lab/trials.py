"""One trial: trains a loss on a task with given hyper-parameters, seed and budget."""

import math
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import lru_cache
from statistics import median
from typing import Any

import torch
from torch import Tensor

from evalgrad_lab import tasks
from evalgrad_lab.data.batches import Batch, in_memory
from evalgrad_lab.data.dataset import Dataset, Part
from evalgrad_lab.decisions import Decision, plain
from evalgrad_lab.fit import Pace, Phase, Training, fit, scores_of
from evalgrad_lab.judging import choose, fitted
from evalgrad_lab.peak_memory import PeakMemory
from evalgrad_lab.tasks.task import Method, Task
from evalgrad_lab.validation import Validation, looks

LOOKS = 10  # at the validation metric during training
CALIBRATION = 15  # timed steps of each loss, to say how many it can do in the time of the reference
SAME = 0.05  # iterations that differ by less than this share are taken for equal
EXAMPLES = 4  # test images kept to be shown
SIDE = 128


def trial(
    *,
    task: str,
    loss: str,
    hyper: dict[str, float],
    seed: int,
    iterations: int,
) -> dict[str, Any]:
    """Train and return the record; the caller sets its `budget`."""
    chosen = tasks.find(task)
    method, data = chosen.method(loss), _data(chosen.data, seed)
    training = start(chosen, method, hyper, data.train, seed, iterations)

    def look() -> float:
        scores, decision = _scored(chosen, training, data.validation)
        return chosen.measures[chosen.metric](scores, data.validation.target, decision)

    when = looks(iterations, LOOKS)
    validation = Validation(look, when=when, keep_best=chosen.keep_best)
    with PeakMemory() as memory:
        fit(training, in_memory(data.train, chosen.batch, seed), [validation])
    validation.restore_best(training)
    return {
        "task": task,
        "title": chosen.title,
        "description": chosen.description,
        "designed": chosen.designed,
        "loss": loss,
        "role": method.role,
        "seed": seed,
        "hyper": hyper,
        "metric": chosen.metric,
        **_judgement(chosen, training, data, with_examples=seed == 0),
        **costs(training, validation, memory),
    }


@lru_cache(maxsize=4)  # a worker meets the seeds of a task in turn, once for every loss
def _data(make: Callable[[int], Dataset[Part]], seed: int) -> Dataset[Part]:
    """The data of a task for a seed. They take up to a second to make; runs only read them."""
    return make(seed)


def costs(
    training: Training, validation: Validation, memory: PeakMemory, more_steps: float = 0.0
) -> dict[str, Any]:
    """The curve of a training, and what it took; its seconds are also those of a second branch of
    `more_steps` times its own steps.
    """
    return {
        "curve": [point for point in validation.curve if math.isfinite(point["loss"])],
        "iterations": training.step,
        "seconds": training.seconds,
        "milliseconds_per_step": 1000 * training.seconds / (training.step * (1 + more_steps)),
        "loss_milliseconds": 1000 * _loss_seconds(training),
        "peak_megabytes": memory.megabytes,
    }


def start(
    task: Task, method: Method, hyper: dict[str, float], train: Part, seed: int, iterations: int
) -> Training:
    """The network of the seed, ready to train."""
    torch.manual_seed(seed)
    options = dict(hyper)
    rate, decay = options.pop("learning_rate"), options.pop("weight_decay", 0.0)
    phase = Phase(method.build(options, train), iterations)
    return Training(task.model(), [phase], Pace(rate, decay, seed=seed))


def in_equal_time(*, task: str, loss: str, hyper: dict[str, float], iterations: int) -> int:
    """The iterations in the time of `iterations` of the reference, from steps of both timed in
    turn, on the data of the first seed.
    """
    chosen = tasks.find(task)
    reference, train = chosen.methods[0], _data(chosen.data, 0).train
    choices = (reference, next(reference.candidates())), (chosen.method(loss), hyper)
    trainings = [start(chosen, *choice, train, 0, CALIBRATION) for choice in choices]
    times = interleaved(trainings, next(iter(in_memory(train, chosen.batch, 0)(0))))
    return equal_time_iterations(iterations, *map(median, times))


def equal_time_iterations(iterations: int, reference_seconds: float, seconds: float) -> int:
    """As many steps of `seconds` as fit into `iterations` steps of `reference_seconds`; at least
    one. Nearly as many are the same, so that one run can be both.

    >>> equal_time_iterations(500, 0.02, 0.025)
    400
    >>> equal_time_iterations(500, 0.02, 0.0205)
    500
    """
    found = max(1, int(iterations * reference_seconds / seconds + 1e-9))
    return iterations if abs(found - iterations) <= SAME * iterations else found


def interleaved(trainings: list[Training], batch: Batch) -> list[list[float]]:
    """The seconds of some steps of each training, taken in turn. On the CPU, where a run has one
    thread, they are those of the processor, which other programs do not stretch.
    """
    on_cpu = trainings[0].fabric.device.type == "cpu"
    clock = time.process_time if on_cpu else time.perf_counter
    times: list[list[float]] = [[] for _ in trainings]
    for number in range(CALIBRATION + 3):
        for training, kept in zip(trainings, times, strict=True):
            start = clock()
            training.take(batch)
            if number >= 3:  # the first steps warm up
                kept.append(clock() - start)
    return times


def _loss_seconds(training: Training) -> float:
    """The median time of the loss alone, forward and backward, on the scores of one batch."""
    scores, batch = scores_of(training.network, training.batch.inputs), training.batch
    times = []
    for _ in range(CALIBRATION):
        leaf = scores.detach().clone().requires_grad_()
        start = time.perf_counter()
        training.phases[0].loss(leaf, batch).backward()
        times.append(time.perf_counter() - start)
    return median(times)


def _judgement(
    task: Task, training: Training, data: Dataset[Part], with_examples: bool
) -> dict[str, Any]:
    """Validation and test metrics; the decision is chosen on validation."""
    seen, decision = _scored(task, training, data.validation, last=True)
    scores, target = scores_of(training.network, data.test.inputs), data.test.target
    values, per_class, examples = task.measures.items(), None, None
    measure = task.measures[task.metric]
    if task.classes and measure.per_class:
        rows = measure.rows(measure.said(scores, target, decision), target, None)
        found = [value if math.isfinite(value) else 0.0 for value in measure.per_class(rows)]
        per_class = {"labels": list(task.classes), "values": found}
    if target.ndim == 3 and with_examples:
        first = (data.test.inputs[:EXAMPLES], target[:EXAMPLES], decision(scores[:EXAMPLES]))
        examples = [shown(*row) for row in zip(*first, strict=True)]
    return {
        "validation": {name: one(seen, data.validation.target, decision) for name, one in values},
        "test": {name: one(scores, target, decision) for name, one in values},
        "per_class": per_class,
        "examples": examples,
        "decision": asdict(decision),
    }


def _scored(
    task: Task, training: Training, part: Part, last: bool = False
) -> tuple[Tensor, Decision]:
    """The scores of a part, and what decides best on it; all that may decide is tried at the
    `last`, looks during the training try a threshold alone.
    """
    scores, target = scores_of(training.network, part.inputs), part.target
    one, fits = scores.ndim == target.ndim, task.decided
    fits = fits if last else fits[: int(one)]
    deciding = [measure for measure in task.measures.values() if measure.decides]
    if not fits or not deciding:
        return scores, plain(one)
    scored = [(scores, target, None)]
    return scores, choose(deciding[0], scored, [plain(one), *fitted(fits, scored, 255)])[0]


def shown(image: Tensor, target: Tensor, predicted: Tensor) -> dict[str, Any]:
    """An image with its label map and the predicted one, small enough to be kept."""
    step = -(-max(target.shape) // SIDE)
    labels = {"target": target, "prediction": predicted}
    found = {name: value[..., ::step, ::step].tolist() for name, value in labels.items()}
    return {"image": small(image).tolist(), **found}


def small(image: Tensor) -> Tensor:
    """An image with values to two digits, sides of at most `SIDE` pixels, in colour or grey."""
    step = -(-max(image.shape[-2:]) // SIDE)
    image = image[:1] if image.ndim == 3 and len(image) not in (1, 3) else image
    return ((image.double() * 100).round() / 100)[..., ::step, ::step]
