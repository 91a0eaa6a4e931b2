"""One run: a task, a loss, hyper-parameters, a seed and a budget in; a record of what came out.

Training is Lightning's Fabric and a plain loop: `Trainer` spends about a millisecond per step in
hooks and loops, more than a whole step of the linear tasks.
"""

import copy
import math
import time
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

import evalgrad
from evalgrad_lab import tasks
from evalgrad_lab.data.dataset import Part, Split
from evalgrad_lab.peak_memory import PeakMemory
from evalgrad_lab.store import digest_of_files
from evalgrad_lab.tasks.task import Loss, Task

LOOKS = 10  # at the validation metric during training
CALIBRATION = 15  # timed steps of each loss, to say how many it can do in the time of the reference
EXAMPLES = 4  # test images kept to be shown
LAB_SOURCES = ("data", "tasks", "models", "losses", "loss_factories", "runs")


@dataclass(frozen=True)
class Run:
    """Which run. With `equal_time` the loss does as many iterations as fit into the time of
    `iterations` of the reference.
    """

    task: str
    loss: str
    hyper: dict[str, float]
    seed: int
    iterations: int
    equal_time: bool = False

    def description(self) -> dict[str, Any]:
        """The address of the run in the store: all that decides its result, the sources
        included.
        """
        return {**asdict(self), "sources": source_digest()}


@cache
def source_digest() -> str:
    """A digest of the sources that decide what a run does: the library, the data, the tasks, the
    networks, this file.
    """
    lab = Path(__file__).parent
    names = {path: path.relative_to(lab).parts[0] for path in lab.rglob("*.py")}
    used = {path for path, name in names.items() if name.removesuffix(".py") in LAB_SOURCES}
    return digest_of_files({*Path(evalgrad.__file__).parent.rglob("*.py"), *used})


class Session:
    """A network in training, one `step()` at a time."""

    def __init__(
        self,
        task: Task,
        loss: Loss,
        hyper: dict[str, float],
        train: Part,
        seed: int,
        iterations: int,
    ) -> None:
        torch.manual_seed(seed)
        options = dict(hyper)
        rate, decay = options.pop("learning_rate"), options.pop("weight_decay", 0.0)
        self.train, self.batch = train, task.batch
        self.criterion = loss.build(options, train)
        self.fabric = Fabric(accelerator="cpu", devices=1)
        model = task.model()
        optimiser = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, iterations)
        self.model, self.optimiser = self.fabric.setup(model, optimiser)
        self.order, self.everything = torch.empty(0, dtype=torch.int64), torch.arange(len(train))

    def step(self) -> Tensor:
        """One step of the optimiser on the next batch; the loss before it."""
        inputs, target, index = self.next_batch()
        self.optimiser.zero_grad()
        loss = self.criterion(self.model(inputs), target, index)
        self.fabric.backward(loss)
        self.optimiser.step()
        self.schedule.step()
        return loss.detach()

    def next_batch(self) -> tuple[Tensor, Tensor, Tensor]:
        """The next batch of a shuffled pass, or everything, and its places in the training part."""
        if self.batch is None:
            return self.train.inputs, self.train.target, self.everything
        if len(self.order) < self.batch:
            self.order = torch.randperm(len(self.train))
        index, self.order = self.order[: self.batch], self.order[self.batch :]
        return self.train.inputs[index], self.train.target[index], index


def execute(run: Run) -> dict[str, Any]:
    """Train, and return the record; its `budget` is left to the caller, who knows what the run was
    for.
    """
    task = tasks.find(run.task)
    loss = task.loss(run.loss)
    split = task.data(run.seed)
    iterations = (
        _iterations_in_equal_time(task, loss, run, split.train)
        if run.equal_time
        else run.iterations
    )
    session = Session(task, loss, run.hyper, split.train, run.seed, iterations)
    with PeakMemory() as memory:
        curve, seconds = _train(task, session, split.validation, iterations)
    return {
        **_identity(task, loss, run),
        **_judgement(task, session.model, split, with_examples=run.seed == 0),
        "curve": curve,
        "iterations": iterations,
        "seconds": seconds,
        "milliseconds_per_step": 1000 * seconds / iterations,
        "loss_milliseconds": 1000 * _loss_seconds(session),
        "peak_megabytes": memory.megabytes,
    }


def _identity(task: Task, loss: Loss, run: Run) -> dict[str, Any]:
    shared = {
        "task": task.name,
        "title": task.title,
        "description": task.description,
        "designed": task.designed,
    }
    return {
        **shared,
        "loss": loss.name,
        "role": loss.role,
        "seed": run.seed,
        "hyper": run.hyper,
        "metric": task.metric,
    }


def _train(
    task: Task, session: Session, validation: Part, iterations: int
) -> tuple[list[dict[str, float]], float]:
    """All iterations; the validation metric at some of them, and the seconds of training alone."""
    curve: list[dict[str, float]] = []
    best: tuple[float, dict[str, Tensor] | None] = (-math.inf, None)
    stops = sorted({round(iterations * (i + 1) / LOOKS) for i in range(LOOKS)} - {0})
    seconds, done, loss = 0.0, 0, torch.tensor(0.0)
    for stop in stops:
        session.model.train()
        start = time.perf_counter()
        for _ in range(stop - done):
            loss = session.step()
        seconds, done = seconds + time.perf_counter() - start, stop
        metric = _measure(task, session.model, validation)[task.metric]
        if task.keep_best and metric > best[0]:
            best = metric, copy.deepcopy(session.model.state_dict())
        if math.isfinite(float(loss)):
            curve.append(
                {"iteration": done, "seconds": seconds, "loss": float(loss), "metric": metric}
            )
    if best[1] is not None:
        session.model.load_state_dict(best[1])
    return curve, seconds


def _iterations_in_equal_time(task: Task, loss: Loss, run: Run, train: Part) -> int:
    """Iterations of `loss` in the seconds of `run.iterations` of the reference, from interleaved
    steps timed just now.
    """
    reference = task.losses[0]
    choices = (reference, next(reference.candidates())), (loss, run.hyper)
    sessions = [
        Session(task, choice, hyper, train, run.seed, CALIBRATION) for choice, hyper in choices
    ]
    return equal_time_iterations(
        run.iterations, *(median(times) for times in _interleaved(sessions))
    )


def equal_time_iterations(iterations: int, reference_seconds: float, seconds: float) -> int:
    """As many steps of `seconds` as fit into `iterations` steps of `reference_seconds`; at least
    one.

    >>> equal_time_iterations(500, 0.02, 0.025)
    400
    """
    return max(1, int(iterations * reference_seconds / seconds + 1e-9))


def _interleaved(sessions: list[Session]) -> list[list[float]]:
    times: list[list[float]] = [[] for _ in sessions]
    for number in range(CALIBRATION + 3):
        for session, kept in zip(sessions, times, strict=True):
            start = time.perf_counter()
            session.step()
            if number >= 3:  # the first steps warm up
                kept.append(time.perf_counter() - start)
    return times


def _loss_seconds(session: Session) -> float:
    """The median time of the loss alone, forward and backward, on the scores of one batch."""
    inputs, target, index = session.next_batch()
    with torch.no_grad():
        scores = session.model(inputs)
    times = []
    for _ in range(CALIBRATION):
        leaf = scores.detach().clone().requires_grad_()
        start = time.perf_counter()
        session.criterion(leaf, target, index).backward()
        times.append(time.perf_counter() - start)
    return median(times)


def _judgement(task: Task, model: nn.Module, split: Split, with_examples: bool) -> dict[str, Any]:
    """Validation and test metrics; the decision threshold is chosen on validation."""
    scores, test_scores = _scores(model, split.validation.inputs), _scores(model, split.test.inputs)
    threshold = _threshold(task, scores, split.validation.target)
    result: dict[str, Any] = {
        "validation": _finite(task.measure(scores, split.validation.target, threshold)),
        "test": _finite(task.measure(test_scores, split.test.target, threshold)),
        "per_class": None,
        "examples": None,
    }
    if task.per_class is not None:
        labels, values = task.per_class(test_scores, split.test.target)
        result["per_class"] = {"labels": labels, "values": values}
    if task.predict is not None and with_examples:
        result["examples"] = _examples(split.test, task.predict(test_scores[:EXAMPLES], threshold))
    return result


def _measure(task: Task, model: nn.Module, part: Part) -> dict[str, float]:
    scores = _scores(model, part.inputs)
    return _finite(task.measure(scores, part.target, _threshold(task, scores, part.target)))


def _threshold(task: Task, scores: Tensor, target: Tensor) -> float:
    return 0.0 if task.threshold is None else task.threshold(scores, target)


def _finite(metrics: dict[str, float]) -> dict[str, float]:
    """A network that diverged to NaN has metric 0."""
    return {name: value if math.isfinite(value) else 0.0 for name, value in metrics.items()}


def _scores(model: nn.Module, inputs: Tensor) -> Tensor:
    model.eval()
    with torch.no_grad():
        return torch.cat([model(batch) for batch in inputs.split(256)])


def _examples(part: Part, prediction: Tensor) -> list[dict[str, Any]]:
    """The first test images with their label maps and the predicted ones; grey values to two digits
    keep records small.
    """
    images = (
        part.inputs[:EXAMPLES].flatten(1, -3) if part.inputs.ndim > 3 else part.inputs[:EXAMPLES]
    )
    rounded = (images.double() * 100).round() / 100
    rows = zip(rounded.tolist(), part.target[:EXAMPLES].tolist(), prediction.tolist(), strict=True)
    return [
        {"image": image, "target": target, "prediction": predicted}
        for image, target, predicted in rows
    ]
