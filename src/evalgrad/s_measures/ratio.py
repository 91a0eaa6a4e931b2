"""The default solver: one scalar per constraint, O(1) state, any optimiser for the network.

A batch pays a weighted surrogate loss: one weight for its positives, one for its negatives. From
time to time the totals of `counts` give new `multipliers` and these new weights. Constants are left
out of the loss, so it is >= 0 and 0 once all items lie beyond the margin; for F-beta it is F + v (1
- T), which tends to V - beta^2.
"""

from typing import Any

import torch
from torch import Tensor, nn

from evalgrad.s_measures.counts import Counts, keep_single, same_positives
from evalgrad.s_measures.multipliers import class_weights, renewed_multipliers
from evalgrad.s_measures.plain_batch import is_plain, plain_batch
from evalgrad.s_measures.programs import Program
from evalgrad.s_measures.surrogate_errors import weighted_errors
from evalgrad.s_measures.surrogates import Surrogate


class RatioSolver(nn.Module):
    """One group of one measure: scores (B,) and their positives (B,) in, the weighted surrogate
    loss out.
    """

    _apply = keep_single
    objective: Tensor
    constraints: Tensor
    share: Tensor
    mu: Tensor
    weight: Tensor

    def __init__(
        self,
        program: Program,
        positives: Tensor | None,
        surrogate: Surrogate,
        *,
        dual_lr: float,
        max_multiplier: float,
        momentum: float,
    ) -> None:
        super().__init__()
        self.program, self.surrogate = program, surrogate
        self.dual_lr, self.max_multiplier = dual_lr, max_multiplier
        rows, constraints, _ = program.constraints.shape
        self.counts = Counts(positives, rows, momentum)
        self.register_load_state_dict_pre_hook(same_positives)  # type: ignore[no-untyped-call]
        self.threshold = nn.Parameter(torch.zeros(rows)) if program.anchored else None
        for name in ("objective", "constraints", "share"):
            self.register_buffer(name, getattr(program, name).clone(), persistent=False)
        # errors of a positive | negative at score 1
        hit, alarm = surrogate(torch.tensor([0.0, 2.0])).tolist()
        # V of the constant scorer f = 1, which every scorer with a bias term can reach: a constant
        # and a factor of the prior.
        self.worst = (
            [float(self.objective[0, 3]) / (1 - hit), alarm / (1 - hit)]
            if program.fractional
            else []
        )
        prior = float(self.counts.prior())
        start = (
            -(self.worst[0] + self.worst[1] * prior)
            if program.fractional
            else 0.0
            if program.required
            else 1.0
        )
        self.register_buffer("mu", torch.full((rows, constraints), start))
        # Of the mean surrogate of the positives | negatives.
        self.register_buffer(
            "weight", class_weights(self.mu, prior, self.objective, self.constraints, self.share)
        )

    def forward(self, scores: Tensor, positive: Tensor, index: Tensor | None) -> Tensor:
        """Class means of the surrogate, and nothing where a class is missing: in expectation a
        multiple of the loss on the whole data, for uniform and for class-balanced samplers alike.
        """
        counts, surrogate = self.counts, self.surrogate
        if self.threshold is None and is_plain(scores, positive, index, counts, surrogate):
            value, new = plain_batch(
                scores, positive, index, self.weight, counts, surrogate, training=self.training
            )
            if new:
                self.dual_step()
            return value
        offset = scores if self.threshold is None else scores - self.threshold.unsqueeze(-1)
        value, totals = weighted_errors(offset, positive, self.weight, surrogate)
        if self.training:
            due = counts.update(
                scores.detach(), positive, index, totals, self.thresholds(), surrogate
            )
            # a graph has no branch: the operators look at `due` themselves
            if torch.compiler.is_compiling() or due:
                self._renew(due, self.dual_lr)
        return value

    def project_(self) -> None:
        """Nothing to project: the ratio has no per-item variables."""

    def dual_step(self, lr: float | None = None) -> None:
        """Move v or the multipliers by the latest totals. Training forwards do this by
        themselves.
        """
        self._renew(torch.ones((), dtype=torch.bool), self.dual_lr if lr is None else lr)

    def _renew(self, due: Tensor, step: float) -> None:
        """New multipliers and weights if `due`, and none while a class was never seen or after a
        total overflowed.

        In place: the graphs of earlier batches hold gradients, not weights.
        """
        state, program = (
            (self.counts.totals, self.mu, self.weight),
            (
                self.objective,
                self.constraints,
                self.share,
            ),
        )
        rule = (
            self.counts.known_prior or 0.0,
            self.worst,
            step,
            self.max_multiplier,
            self.program.required,
        )
        mu, weight = renewed_multipliers(*state, *program, due, *rule)
        self.mu.copy_(mu)
        self.weight.copy_(weight)

    def primal_groups(self, lr: float) -> list[dict[str, Any]]:
        """The thresholds of the anchors; nothing for the measures at one operating point."""
        return [{"params": [self.threshold], "lr": lr}] if self.threshold is not None else []

    def thresholds(self) -> Tensor:
        """(K,) the decision threshold of every row, 0 unless it is learned."""
        return torch.zeros_like(self.share) if self.threshold is None else self.threshold.detach()
