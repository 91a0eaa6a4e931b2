"""The default solver: one scalar per constraint, O(1) state, any optimiser for the network.

A batch pays a weighted surrogate loss: one weight for its positives, one for its negatives. Every
few batches the totals of `counts` give new `multipliers` and these new weights. Constants are left
out of the loss, so it is >= 0 and 0 once all items lie beyond the margin; for F-beta the gradient
is that of F - v T and the value V = (beta^2 + F) / T.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from evalgrad.s_measures.batch import Batch
from evalgrad.s_measures.counts import keep
from evalgrad.s_measures.layout import Members
from evalgrad.s_measures.multipliers import class_weights, renewed_multipliers
from evalgrad.s_measures.programs import Program
from evalgrad.s_measures.solver import Settings, Solver
from evalgrad.s_measures.surrogate_errors import weighted_errors
from evalgrad.s_measures.surrogates import Surrogate


class RatioSolver(Solver):
    """One group of one measure: a batch in, its weighted surrogate loss out."""

    weight: Tensor

    def __init__(self, program: Program, known: Members | None, surrogate: Surrogate) -> None:
        super().__init__(program, known, surrogate)
        # errors of a positive | negative at score 1
        hit, alarm = surrogate(torch.tensor([0.0, 2.0])).tolist()
        # V of the constant scorer f = 1, which every scorer with a bias term can reach: a constant
        # and a factor of the prior.
        self.worst = (float(self.objective[0, 3]) / (1 - hit), alarm / (1 - hit))
        prior = self.counts.prior()
        highest = self._highest(prior)
        start = 0.0 if program.required else 1.0 if highest is None else -float(highest)
        mu = torch.full(program.constraints.shape[:2], start)
        # Of the mean surrogate of the positives | negatives.
        weight = class_weights(mu, prior, self.objective, self.constraints, self.share)
        self.register_buffer("mu", mu)
        self.register_buffer("weight", weight)

    def forward(self, batch: Batch, settings: Settings) -> Tensor:
        """Each class adds the mean surrogate of its members times the class weight.

        A batch that lacks one of the classes adds nothing: in expectation a multiple of the loss on
        the whole data, for uniform and for class-balanced samplers alike.
        """
        offset, counts = batch.scores, self.counts
        if self.threshold is not None:
            offset = offset - self.threshold.unsqueeze(-1)
        running = counts.totals if self.training and batch.position is None else None
        value, _ = weighted_errors(
            offset,
            batch.positive,
            self.weight,
            self.surrogate,
            mask=batch.mask,
            running=running,
            momentum=settings.momentum,
            ratio=self.ratio,
        )
        if self.training:
            due = counts.take(batch)
            if due is not False:
                self._learn(batch, due, settings)
        return value

    def _learn(self, batch: Batch, due: Tensor | bool, settings: Settings) -> None:
        if batch.position is not None:
            keep(self.counts.totals, self.counts.cached(self.thresholds(), due=due), due)
        self._renew(settings.dual_lr, settings.max_multiplier, due)

    def load_multipliers(self, state: Mapping[str, Any]) -> None:
        """With weights of the classes for the new frequencies."""
        super().load_multipliers(state)
        self.weight.copy_(
            class_weights(
                self.mu, self.counts.prior(), self.objective, self.constraints, self.share
            )
        )

    def dual_step(self, settings: Settings, lr: float | None = None) -> None:
        """Move v or the multipliers by the latest totals. Training forwards do this by
        themselves.
        """
        self._renew(settings.dual_lr if lr is None else lr, settings.max_multiplier)

    def _renew(self, step: float, ceiling: float, due: Tensor | bool = True) -> None:
        """New multipliers and weights, in place: the graphs of earlier batches hold gradients, not
        weights.
        """
        prior = self.counts.prior()
        mu, weight, residual = renewed_multipliers(
            self.counts.totals,
            self.mu,
            self.weight,
            self.objective,
            self.constraints,
            self.share,
            prior=prior,
            highest=self._highest(prior),
            step=step,
            ceiling=ceiling,
            hard=self.program.required,
            joint=self.program.area is not None,
        )
        keep(self.mu, mu, due)
        keep(self.weight, weight, due)
        if not self.program.fractional:
            self.remember(residual, due)

    def _highest(self, prior: Tensor | float) -> Tensor | float | None:
        """The largest V of use; None but for F-beta."""
        return self.worst[0] + self.worst[1] * prior if self.program.fractional else None
