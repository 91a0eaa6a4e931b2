"""The hook that logs a training: one row of `log.csv` and one line on stderr per epoch."""

import sys
import time
from pathlib import Path
from typing import Any

import torch

from evalgrad_lab.errors import UserError
from evalgrad_lab.fit import Hook, Training
from evalgrad_lab.store import as_csv, write_atomically
from evalgrad_lab.terminal import CLEAR
from evalgrad_lab.validation import Validation


class Progress(Hook):
    """Writes loss and metric of every epoch to `path` and prints them. Raises if the loss is not
    finite, except in a second branch, where `Collapse` handles it; `branch` is what that is called.
    """

    EVERY = 10.0  # seconds between two lines that are not in a terminal

    def __init__(self, path: Path, validation: Validation, metric: str, branch: str = "") -> None:
        self.path, self.validation, self.metric, self.branch = path, validation, metric, branch
        self.rows: list[dict[str, Any]] = []
        self.total, self.steps, self.spoken = torch.tensor(0.0), 0, -self.EVERY

    def after_step(self, training: Training) -> None:
        # added up where it is and looked at once in an epoch, not to wait for a GPU
        self.total = self.total.to(training.loss.device) + training.loss
        self.steps += 1

    def after_epoch(self, training: Training) -> None:
        loss = float(self.total) / self.steps
        self.total, self.steps = torch.tensor(0.0), 0
        if not torch.tensor(loss).isfinite() and not self.branch:
            raise UserError(
                f"the loss was not finite in epoch {training.epoch}. Start over with a smaller"
                " --learning-rate."
            )
        metric = self.validation.curve[-1]["metric"]
        row = {"epoch": training.epoch, "step": training.step, "loss": loss, "metric": metric}
        self.rows.append({**row, "seconds": training.seconds})
        if training.fabric.is_global_zero:
            write_atomically(self.path, as_csv(self.rows))
            self._say(training, loss, metric)

    def _say(self, training: Training, loss: float, metric: float) -> None:
        done = training.step == training.steps or training.stopped
        where = f"{self.branch}, " if self.branch else ""
        line = (
            f"{where}epoch {training.epoch}, step {training.step} of"
            f" {training.steps}: loss {loss:.4g}, validation {self.metric} {metric:.4f}"
        )
        if sys.stderr.isatty():
            print(f"{CLEAR}{line}", end="\n" if done else "", file=sys.stderr, flush=True)
        elif done or time.monotonic() - self.spoken >= self.EVERY:
            self.spoken = time.monotonic()
            print(line, file=sys.stderr, flush=True)

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self.rows}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rows = state["rows"]
