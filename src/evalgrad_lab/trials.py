"""One trial of a comparison: a task, a loss, hyper-parameters, a seed and a budget in; a record of
what came out.
"""

import math
import time
from statistics import median
from typing import Any

import torch
from torch import Tensor

from evalgrad_lab import metrics, tasks
from evalgrad_lab.data.batches import Batch, in_memory
from evalgrad_lab.data.dataset import Dataset, Part
from evalgrad_lab.fit import Pace, Phase, Training, fit, scores_of
from evalgrad_lab.peak_memory import PeakMemory
from evalgrad_lab.tasks.task import Method, Task
from evalgrad_lab.validation import Validation, looks

LOOKS = 10  # at the validation metric during training
CALIBRATION = 15  # timed steps of each loss, to say how many it can do in the time of the reference
EXAMPLES = 4  # test images kept to be shown
SIDE = 128


def trial(
    *,
    task: str,
    loss: str,
    hyper: dict[str, float],
    seed: int,
    iterations: int,
    equal_time: bool = False,
) -> dict[str, Any]:
    """Train, and return the record; its `budget` is left to the caller, who knows what it was for.

    With `equal_time` the loss does as many iterations as fit into the time of `iterations` of the
    reference.
    """
    chosen = tasks.find(task)
    method, data = chosen.method(loss), chosen.data(seed)
    if equal_time:
        iterations = _iterations_in_equal_time(chosen, method, hyper, data.train, seed, iterations)
    training = start(chosen, method, hyper, data.train, seed, iterations)
    validation = Validation(
        lambda: _measured(chosen, training, data.validation)[chosen.metric],
        when=looks(iterations, LOOKS),
        keep_best=chosen.keep_best,
    )
    with PeakMemory() as memory:
        fit(training, in_memory(data.train, chosen.batch, seed), [validation])
    validation.restore_best(training)
    return {
        **_identity(chosen, method, hyper, seed),
        **_judgement(chosen, training, data, with_examples=seed == 0),
        **costs(training, validation, memory),
    }


def costs(training: Training, validation: Validation, memory: PeakMemory) -> dict[str, Any]:
    """The curve of a training, and what it took."""
    return {
        "curve": [point for point in validation.curve if math.isfinite(point["loss"])],
        "iterations": training.step,
        "seconds": training.seconds,
        "milliseconds_per_step": 1000 * training.seconds / training.step,
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


def _identity(task: Task, method: Method, hyper: dict[str, float], seed: int) -> dict[str, Any]:
    return {
        "task": task.name,
        "title": task.title,
        "description": task.description,
        "designed": task.designed,
        "loss": method.name,
        "role": method.role,
        "seed": seed,
        "hyper": hyper,
        "metric": task.metric,
    }


def _iterations_in_equal_time(
    task: Task, method: Method, hyper: dict[str, float], train: Part, seed: int, iterations: int
) -> int:
    """Those in the time of `iterations` of the reference, from steps of both timed in turn."""
    reference = task.methods[0]
    choices = (reference, next(reference.candidates())), (method, hyper)
    trainings = [start(task, *choice, train, seed, CALIBRATION) for choice in choices]
    times = interleaved(trainings, next(iter(in_memory(train, task.batch, seed)(0))))
    return equal_time_iterations(iterations, *map(median, times))


def equal_time_iterations(iterations: int, reference_seconds: float, seconds: float) -> int:
    """As many steps of `seconds` as fit into `iterations` steps of `reference_seconds`; at least
    one.

    >>> equal_time_iterations(500, 0.02, 0.025)
    400
    """
    return max(1, int(iterations * reference_seconds / seconds + 1e-9))


def interleaved(trainings: list[Training], batch: Batch) -> list[list[float]]:
    """The seconds of some steps of each training, taken in turn."""
    times: list[list[float]] = [[] for _ in trainings]
    for number in range(CALIBRATION + 3):
        for training, kept in zip(trainings, times, strict=True):
            start = time.perf_counter()
            training.take(batch)
            if number >= 3:  # the first steps warm up
                kept.append(time.perf_counter() - start)
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
    """Validation and test metrics; the decision threshold is chosen on validation."""
    scores = scores_of(training.network, data.test.inputs)
    threshold = _threshold(task, training, data.validation)
    result: dict[str, Any] = {
        "validation": _measured(task, training, data.validation, threshold),
        "test": _values(task, scores, data.test.target, threshold),
        "per_class": None,
        "examples": None,
    }
    measure = task.measures[task.metric]
    if task.classes and measure.per_class:
        rows = measure.rows(scores, data.test.target, threshold, None)
        result["per_class"] = {"labels": list(task.classes), "values": measure.per_class(rows)}
    if data.test.target.ndim == 3 and with_examples:
        result["examples"] = _examples(data.test, scores[:EXAMPLES], threshold)
    return result


def _measured(
    task: Task, training: Training, part: Part, threshold: float | None = None
) -> dict[str, float]:
    scores = scores_of(training.network, part.inputs)
    if threshold is None:
        threshold = _best(task, scores, part.target)
    return _values(task, scores, part.target, threshold)


def _threshold(task: Task, training: Training, part: Part) -> float:
    return _best(task, scores_of(training.network, part.inputs), part.target)


def _best(task: Task, scores: Tensor, target: Tensor) -> float:
    deciding = [measure for measure in task.measures.values() if measure.decides]
    if not task.thresholds or not deciding:
        return 0.0
    return metrics.best_threshold(deciding[0], scores, target, task.thresholds)


def _values(task: Task, scores: Tensor, target: Tensor, threshold: float) -> dict[str, float]:
    return {name: measure(scores, target, threshold) for name, measure in task.measures.items()}


def _examples(part: Part, scores: Tensor, threshold: float) -> list[dict[str, Any]]:
    """The first test images with their label maps and the predicted ones."""
    target = part.target[:EXAMPLES]
    predicted = metrics.decide(scores, scores.ndim == target.ndim, threshold)
    rows = zip(part.inputs[:EXAMPLES], target, predicted, strict=True)
    return [shown(*row) for row in rows]


def shown(image: Tensor, target: Tensor, predicted: Tensor) -> dict[str, Any]:
    """An image with its label map and the predicted one, small enough to be kept: grey values to
    two digits, sides of at most `SIDE` pixels.
    """
    step = -(-max(target.shape) // SIDE)
    image = image[:1] if image.ndim == 3 and len(image) not in (1, 3) else image
    values = {"image": (image.double() * 100).round() / 100, "target": target}
    values["prediction"] = predicted
    return {name: value[..., ::step, ::step].tolist() for name, value in values.items()}
