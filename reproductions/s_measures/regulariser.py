"""The paper's regulariser, alpha times the F1 of an extra node that tells large from small, and
three ways to optimise it.
"""

from typing import Any, cast

import torch
from torch import Tensor

import evalgrad as eg
from evalgrad.s_measures.lagrangian import LagrangianSolver
from evalgrad_lab.fit import Hook, Training

ALPHAS = (1e-2, 1e-3, 1e-4)  # the paper's
# Section 4 of the paper: Adam with this step for the network, tau and epsilon, and these two for
# the multipliers.
PRIMAL_STEP, LAMBDA_STEP, MU_STEP = 1e-2, 1e-3, 1e-5
# of tau and epsilon with the corrected algorithm: plain SGD, as the projection needs
OWN_STEP = 0.1


class Regulariser(Hook):
    """The loss that is added, and the hook that steps and projects.

    `solver`: "ratio", the library's default; "lagrangian", the paper's algorithm corrected;
    "paper", with its step sizes. `project` says when tau and epsilon return to their set: after
    every "step", or once per "epoch" as the paper does.
    """

    def __init__(
        self, labels: Tensor, alpha: float, solver: str = "ratio", project: str = "epoch"
    ) -> None:
        self.alpha, self.solver, self.project, self.projections = alpha, solver, project, 0
        options: dict[str, Any] = (
            {"solver": "lagrangian", "augment": 0.0} if solver == "paper" else {"solver": solver}
        )
        self.measure = eg.FBeta(labels=labels, **options)
        self.optimiser = self._optimiser() if alpha > 0 and solver != "ratio" else None

    def _optimiser(self) -> torch.optim.Optimizer:
        if self.solver == "paper":
            return torch.optim.Adam(self.measure.parameters(), lr=PRIMAL_STEP)
        # The loss is multiplied by alpha, the steps of tau and epsilon are not.
        return torch.optim.SGD(self.measure.primal_groups(OWN_STEP / self.alpha))

    def loss(self, scores: Tensor, target: Tensor, index: Tensor) -> Tensor:
        """What is added to the main loss; 0 for the baseline, which has the node but not
        the term.
        """
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
            self._ascend()

    def _project(self) -> None:
        self.measure.project_()
        self.projections += 1

    def _ascend(self) -> None:
        if self.solver == "lagrangian":
            self.measure.dual_step()
            return
        # two sizes: one group of positives
        (group,) = (cast("LagrangianSolver", group) for group in self.measure.groups)
        before = group.mu
        self.measure.dual_step(LAMBDA_STEP)
        # the paper moves mu a hundred times less
        group.mu = before + MU_STEP / LAMBDA_STEP * (group.mu - before)

    def certificate(self, scores: Tensor, target: Tensor) -> float:
        """The guaranteed F1 in per cent of the training scores of the final network."""
        measure = eg.FBeta(labels=target)
        measure(scores, target, index=torch.arange(len(target)))
        return 100 * float(measure.diagnostics()["certificate"])
