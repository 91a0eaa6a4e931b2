"""The regulariser, alpha times the F1 of a node that tells sizes apart; three solvers."""

from typing import Literal

import torch
from torch import Tensor

import evalgrad as eg
from evalgrad_lab.fit import Hook, Training
from reproductions.s_measures.literal import LAMBDA_STEP, MU_STEP, PRIMAL_STEP, LiteralF1

ALPHAS = (1e-2, 1e-3, 1e-4)  # the paper's
# of tau and epsilon with the corrected algorithm: plain SGD, as the projection needs
OWN_STEP = 0.01
Average = Literal["macro", "micro", "pairwise"]  # of more than two sizes


class Regulariser(Hook):
    """The loss that is added, and the hook that steps and projects.

    `solver`: "ratio", the library's default; "lagrangian", the paper's algorithm corrected;
    "paper", its letter, with its variables and step sizes. `project` says when tau and epsilon
    return to their set: after every "step", or once per "epoch" as the paper does. `step` is that
    of the corrected algorithm, `average` the F1 of more than two groups.
    """

    def __init__(
        self,
        labels: Tensor,
        alpha: float,
        solver: str = "ratio",
        project: str = "epoch",
        step: float = OWN_STEP,
        average: Average | None = None,
    ) -> None:
        self.alpha, self.solver, self.project, self.projections = alpha, solver, project, 0
        self.step, self.average = step, average
        self.measure = LiteralF1(labels) if solver == "paper" else self._measure(labels)
        self.optimiser = self._optimiser() if alpha > 0 and solver != "ratio" else None

    def _optimiser(self) -> torch.optim.Optimizer:
        if isinstance(self.measure, LiteralF1):
            return torch.optim.Adam(self.measure.parameters(), lr=PRIMAL_STEP)
        # The loss is multiplied by alpha, the steps of tau and epsilon are not.
        return torch.optim.SGD(self.measure.primal_groups(self.step / self.alpha))

    def loss(self, scores: Tensor, target: Tensor, index: Tensor) -> Tensor:
        """What is added to the main loss; 0 for the baseline, which has the node too."""
        if self.alpha == 0:
            return scores.new_zeros(())
        if self.optimiser:
            self.optimiser.zero_grad()
        return self.alpha * self.measure(scores, target, index=index)

    def after_step(self, training: Training) -> None:
        if self.optimiser:
            self.optimiser.step()
            if self.project == "step":
                self._project()

    def after_epoch(self, training: Training) -> None:
        if self.optimiser:
            if self.project == "epoch":
                self._project()
            if isinstance(self.measure, LiteralF1):
                self.measure.ascend(LAMBDA_STEP, MU_STEP)
            else:
                self.measure.dual_step()

    def _project(self) -> None:
        self.measure.project_()
        self.projections += 1

    def certificate(self, scores: Tensor, target: Tensor) -> float:
        """The guaranteed F1 in per cent of the training scores of the final network."""
        measure = eg.FBeta(labels=target, average=self.average)
        measure(scores, target, index=torch.arange(len(target)))
        return 100 * float(measure.diagnostics()["certificate"])

    def _measure(self, labels: Tensor) -> eg.FBeta:
        solver: Literal["ratio", "lagrangian"] = "ratio" if self.solver == "ratio" else "lagrangian"
        return eg.FBeta(labels=labels, solver=solver, average=self.average)
