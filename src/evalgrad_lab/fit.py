"""The training loop: phases of losses, the optimiser, hooks and checkpoints.

It is a plain loop with Lightning's Fabric for devices, ranks and precision. Lightning's Trainer
would spend about a millisecond per step in hooks, more than a whole step of a small task.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from evalgrad.distributed import micro_batch_backward
from evalgrad_lab import checkpoints
from evalgrad_lab.data.batches import Batch, Batches, mixed_seed
from evalgrad_lab.models.weights import head_of
from evalgrad_lab.schedules import Schedule, schedule_of

if TYPE_CHECKING:
    from lightning.fabric import Fabric

# what the network says of a batch, and the batch -> loss; a module's state is part of checkpoints
BatchLoss = Callable[[Any, Batch], Tensor]
OPTIMISERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw": torch.optim.AdamW,
    "adam": torch.optim.Adam,
    "sgd": torch.optim.SGD,
}


@dataclass(frozen=True)
class Phase:
    """A part of the training with one loss and a whole learning-rate schedule: without a restart, a
    second loss would get only the small steps at the end of the schedule, and do poorly.
    `parameters` are those of the loss itself, such as the thresholds of an area under a curve.
    """

    loss: BatchLoss
    steps: int
    parameters: Sequence[nn.Parameter] = ()


def phase_at(phases: Sequence[Phase], step: int) -> tuple[Phase, int]:
    """The phase that a training step belongs to, and the index of the step within it."""
    for phase in phases[:-1]:
        if step < phase.steps:
            return phase, step
        step -= phase.steps
    return phases[-1], step


@dataclass(frozen=True)
class Pace:
    """Options of the optimiser. `clip` is the maximum gradient norm; `accumulate` is the number of
    parts in which a batch goes through the network, to save memory; the gradient is that of the
    whole batch.
    """

    learning_rate: float
    weight_decay: float = 0.0
    optimiser: Literal["adamw", "adam", "sgd"] = "adamw"
    momentum: float = 0.0  # of sgd
    schedule: str | Schedule = "cosine"
    clip: float | None = None
    accumulate: int = 1
    seed: int = 0
    nesterov: bool = False  # of sgd
    head_rate: float | None = None  # factor of the head's rate; its biases have twice that

    def make_optimiser(
        self, network: nn.Module, phases: Sequence[Phase] = ()
    ) -> torch.optim.Optimizer:
        groups = self._groups(network)
        if own := [parameter for phase in phases for parameter in phase.parameters]:
            groups.append({"params": own, "weight_decay": 0.0})
        of_sgd = {"momentum": self.momentum, "nesterov": self.nesterov}
        more: dict[str, Any] = of_sgd if self.optimiser == "sgd" else {}
        make = OPTIMISERS[self.optimiser]
        return make(groups, lr=self.learning_rate, weight_decay=self.weight_decay, **more)

    def _groups(self, network: nn.Module) -> list[dict[str, Any]]:
        """The parameters, those of the head at their own rate, its biases without decay: the recipe
        of DeepLab.
        """
        head = set() if self.head_rate is None else head_of(network)
        parts: dict[str, list[nn.Parameter]] = {"rest": [], "weight": [], "bias": []}
        for name, parameter in network.named_parameters():
            kind = "bias" if name.endswith("bias") else "weight"
            parts[kind if name in head else "rest"].append(parameter)
        rate = self.learning_rate * (1 if self.head_rate is None else self.head_rate)
        own = {"rest": {}, "weight": {"lr": rate}, "bias": {"lr": 2 * rate, "weight_decay": 0.0}}
        return [{"params": some, **own[kind]} for kind, some in parts.items() if some]

    def factor(self, step: int, phases: Sequence[Phase]) -> float:
        """Of the learning rate at a step; each phase runs the whole schedule."""
        name = self.schedule
        schedule = schedule_of(name) if isinstance(name, str) else name
        phase, step = phase_at(phases, step)
        return schedule(min(step / max(phase.steps, 1), 1.0))


class Hook:
    """Called after every step and after every epoch of a training. It may set `training.stopped`.
    Its state is part of the checkpoints.
    """

    def after_step(self, training: "Training") -> None:
        """The optimiser has stepped; `training` has the batch, output and loss of the step."""

    def after_epoch(self, training: "Training") -> None:
        """The batches of an epoch are used up, or the training ends."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state."""


class Every(Hook):
    """Calls `look(step)` after every `steps` steps, and after the last."""

    def __init__(self, steps: int, look: Callable[[int], object]) -> None:
        self.steps, self.look = steps, look

    def after_step(self, training: "Training") -> None:
        if training.step % self.steps == 0 or training.step == training.steps:
            self.look(training.step)


class Training:
    """A network in training: `take(batch)` is one step. `fit` takes them all.

    `network` is trained in place. `seconds` is the time of the steps and of loading their batches,
    without the hooks. `compiled` applies torch.compile.
    """

    batch: Batch
    output: Any
    loss: Tensor

    def __init__(
        self,
        network: nn.Module,
        phases: Sequence[Phase],
        pace: Pace,
        fabric: "Fabric | None" = None,
        compiled: bool = False,
    ) -> None:
        self.network, self.phases, self.pace = network, list(phases), pace
        self.fabric = fabric or one_cpu()
        optimiser = pace.make_optimiser(network, self.phases)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            optimiser, lambda step: pace.factor(step, self.phases)
        )
        runs: Any = torch.compile(network) if compiled else network
        self.model, self.optimiser = self.fabric.setup(runs, optimiser)
        self.losses = [phase.loss for phase in self.phases if isinstance(phase.loss, nn.Module)]
        for loss in self.losses:
            loss.to(self.fabric.device)
        self.steps = sum(phase.steps for phase in self.phases)
        self.step, self.epoch, self.seconds, self.stopped = 0, 0, 0.0, False

    def take(self, batch: Batch) -> Tensor:
        """One step of the optimiser; the loss before it."""
        self.batch = batch = batch.to(self.fabric.device)
        self._seed()
        self.optimiser.zero_grad()
        loss = self._backward(batch)
        if self.pace.clip is not None:
            self.fabric.clip_gradients(self.model, self.optimiser, max_norm=self.pace.clip)
        self.optimiser.step()
        self.schedule.step()
        self.step, self.loss = self.step + 1, loss.detach()
        return self.loss

    def _backward(self, batch: Batch) -> Tensor:
        """The loss of the batch, its gradient added to the parameters."""

        def loss_of(output: Any) -> Tensor:
            self.output = output
            return phase_at(self.phases, self.step)[0].loss(output, batch)

        if self.pace.accumulate > 1:
            size = -(-len(batch.inputs) // self.pace.accumulate)
            return micro_batch_backward(
                self.model, batch.inputs, loss_of, size=size, backward=self.fabric.backward
            )
        loss = loss_of(self.model(batch.inputs))
        self.fabric.backward(loss)
        return loss

    def _seed(self) -> None:
        """Dropout after a resume as without; torch.manual_seed takes longer than a small step."""
        seed = mixed_seed(self.pace.seed, self.step, self.fabric.global_rank)
        torch.default_generator.manual_seed(seed)
        if self.fabric.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def state_dict(self) -> dict[str, Any]:
        return {
            "network": self.network.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "schedule": self.schedule.state_dict(),
            "losses": [loss.state_dict() for loss in self.losses],
            "step": self.step,
            "epoch": self.epoch,
            "seconds": self.seconds,
            "stopped": self.stopped,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.schedule.load_state_dict(state["schedule"])
        for loss, saved in zip(self.losses, state["losses"], strict=True):
            loss.load_state_dict(saved)
        self.step, self.epoch, self.seconds = state["step"], state["epoch"], state["seconds"]
        self.stopped = state["stopped"]


def fit(
    training: Training,
    batches: Batches,
    hooks: Sequence[Hook] = (),
    checkpoint: Path | None = None,
) -> Training:
    """Take all steps that are left. `checkpoint` is written after every epoch, old or new after a
    kill, never half; `checkpoints.resume` goes on from it.
    """
    training.network.train()
    while training.step < training.steps and not training.stopped:
        start, before = time.perf_counter(), training.step
        for batch in batches(training.epoch):
            training.take(batch)
            training.seconds += time.perf_counter() - start
            for hook in hooks:
                hook.after_step(training)
            if training.step == training.steps:
                break
            start = time.perf_counter()
        if training.step == before:
            raise ValueError(f"fit: epoch {training.epoch} has no batch. Make the batches smaller.")
        training.epoch += 1
        for hook in hooks:
            hook.after_epoch(training)
        if checkpoint is not None and training.fabric.is_global_zero:
            checkpoints.write(checkpoint, training, hooks)
    return training


@torch.no_grad()
def scores_of(network: nn.Module, inputs: Tensor, size: int = 256) -> Tensor:
    """What the network says of all inputs, in batches; it goes on training afterwards if it was."""
    training = network.training
    network.eval()
    scores = torch.cat([network(batch) for batch in inputs.split(size)])
    network.train(training)
    return scores


def one_cpu() -> "Fabric":
    """This process alone, on the CPU."""
    from lightning.fabric import Fabric  # takes seconds to import

    return Fabric(accelerator="cpu", devices=1)
