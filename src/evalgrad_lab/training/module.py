"""The training itself, as a LightningModule: phases, each with its loss and the whole schedule, and
the metric on validation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import lightning
import torch
from torch import Tensor, nn
from torchmetrics import Metric

from evalgrad_lab.data.loading import Batch, mixed_seed
from evalgrad_lab.errors import UserError
from evalgrad_lab.schedules import factor


@dataclass(frozen=True)
class Phase:
    """A stretch of the training with one loss."""

    loss: Callable[..., Tensor]
    takes_index: bool
    steps: int


@dataclass(frozen=True)
class Pace:
    """How the parameters move."""

    learning_rate: float
    weight_decay: float
    schedule: str
    seed: int


class Training(lightning.LightningModule):
    """Trains `network` through `phases`. The state of losses that have one is part of the
    checkpoints.

    `kind` is that of the losses, see `losses`; `in_lists` says that a batch holds whole lists,
    each a ranking of its own.
    """

    def __init__(
        self,
        network: nn.Module,
        kind: str,
        phases: Sequence[Phase],
        pace: Pace,
        measure: Metric,
        in_lists: bool,
    ) -> None:
        super().__init__()
        self.network, self.kind, self.phases, self.pace, self.in_lists = (
            network,
            kind,
            phases,
            pace,
            in_lists,
        )
        self.loss_modules = nn.ModuleList(
            phase.loss for phase in phases if isinstance(phase.loss, nn.Module)
        )
        self.measure = measure
        self.finite = torch.tensor(True)

    def on_train_batch_start(self, batch: Batch, batch_index: int) -> None:
        # dropout after a resume as without
        torch.manual_seed(mixed_seed(self.pace.seed, self.global_step, self.global_rank))

    def training_step(self, batch: Batch, _: int) -> Tensor:
        scores = scores_of(self.network, batch["inputs"], self.kind)
        scores = scores[:, 0] if self.kind == "binary segmentation" else scores
        phase = self._phase()
        # what takes an index looks at the whole data set
        if self.in_lists and not phase.takes_index:
            losses = [
                _loss(phase, scores, batch, batch["lists"] == number)
                for number in batch["lists"].unique()
            ]
            loss = torch.stack(losses).mean()
        else:
            loss = _loss(phase, scores, batch, slice(None))
        # looked at once in an epoch, not to wait for a GPU
        self.finite = self.finite.to(loss.device) & loss.detach().isfinite()
        self.log("loss", loss, on_step=False, on_epoch=True, batch_size=len(batch["index"]))
        return loss

    def on_train_epoch_end(self) -> None:
        if not self.finite:
            raise UserError(
                f"the loss was not finite in epoch {self.current_epoch}. Begin again with a smaller"
                " --learning-rate."
            )

    def on_validation_epoch_start(self) -> None:
        """All ranks measure with the running means of rank 0: those are saved."""
        if torch.distributed.is_initialized():
            for buffer in self.network.buffers():
                torch.distributed.broadcast(buffer, 0)

    def validation_step(self, batch: Batch, _: int) -> None:
        scores = scores_of(self.network, batch["inputs"], self.kind)
        self.measure.update(scores, batch["target"], batch["lists"] if self.in_lists else None)
        self.log(
            "metric",
            self.measure,
            on_step=False,
            on_epoch=True,
            prog_bar=True,
            batch_size=len(batch["index"]),
        )

    def configure_optimizers(self):  # type: ignore[no-untyped-def]  # a union of lightning's that says nothing here
        pace, lengths = self.pace, [phase.steps for phase in self.phases]
        optimiser = torch.optim.AdamW(
            self.network.parameters(), lr=pace.learning_rate, weight_decay=pace.weight_decay
        )
        rate = torch.optim.lr_scheduler.LambdaLR(
            optimiser, lambda step: factor(pace.schedule, step, lengths)
        )
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": rate, "interval": "step"}}

    def _phase(self) -> Phase:
        step = self.global_step
        for phase in self.phases[:-1]:
            if step < phase.steps:
                return phase
            step -= phase.steps
        return self.phases[-1]


def scores_of(network: Callable[[Tensor], Tensor], inputs: Tensor, kind: str) -> Tensor:
    """What the network says of a batch: ``(N, outputs, *)``, and ``(N,)`` for rankings."""
    return network(inputs).flatten() if kind == "ranking" else network(inputs)


def _loss(phase: Phase, scores: Tensor, batch: Batch, part: slice | Tensor) -> Tensor:
    extra = {"index": batch["index"][part]} if phase.takes_index else {}
    return phase.loss(scores[part], batch["target"][part], **extra)
