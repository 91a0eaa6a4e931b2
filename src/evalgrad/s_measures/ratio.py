"""The default solver: one scalar per constraint, O(1) state, any optimiser for the network.

F-beta is a ratio V = (beta^2 + F) / T. Dinkelbach: minimise beta^2 + F - v T, then set v to the current ratio; v falls to the
optimum V*. The constrained measures use a multiplier instead, moved by the residual of the whole data (its integral and,
against oscillation, its present value). Either way a batch pays a weighted surrogate loss: one weight for its positives,
one for its negatives, renewed from the totals of `counts`. Constants are left out of the loss, so it is >= 0 and 0 once all
items lie beyond the margin; for F-beta it is F + v (1 - T), which tends to V - beta^2.
"""

from typing import Any

import torch
from torch import Tensor, nn

from evalgrad.s_measures.counts import Counts, keep_single, rates, same_positives
from evalgrad.s_measures.programs import Program
from evalgrad.s_measures.surrogate_errors import weighted_errors
from evalgrad.s_measures.surrogates import Surrogate

DAMPING = 20.0  # weight of the present residual against one step of its integral


class RatioSolver(nn.Module):
    """One group of one measure: scores (B,) and their positives (B,) in, the weighted surrogate loss out."""

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
        self.constant_errors = surrogate(torch.tensor([0.0, 2.0])).tolist()  # of a positive | negative at score 1
        prior = self.counts.prior()
        start = -float(self._worst_ratio(prior)) if program.fractional else 0.0 if program.required else 1.0
        self.register_buffer("mu", torch.full((rows, constraints), start))
        self.register_buffer("weight", self._weighed(self.mu, prior))  # of the mean surrogate of the positives | negatives

    def forward(self, scores: Tensor, positive: Tensor, index: Tensor | None) -> Tensor:
        """Class means of the surrogate, and nothing where a class is missing: in expectation a multiple of the loss on the whole
        data, for uniform and for class-balanced samplers alike.
        """
        offset = scores if self.threshold is None else scores - self.threshold.unsqueeze(-1)
        value, totals = weighted_errors(offset, positive, self.weight, self.surrogate)
        if self.training:
            due = self.counts.update(scores.detach(), positive, index, totals, self.thresholds, self.surrogate)
            if torch.compiler.is_compiling() or due:  # nothing branches in a graph: there, what is not due is computed and dropped
                self._renew(self.dual_lr, due)
        return value

    def project_(self) -> None:
        """Nothing to project: the ratio has no per-item variables."""

    @torch.no_grad()
    def dual_step(self, lr: float | None = None) -> None:
        """Move v or the multipliers by the latest totals. Training forwards do this by themselves."""
        self._renew(self.dual_lr if lr is None else lr, torch.ones((), dtype=torch.bool))

    @torch.no_grad()
    def _renew(self, step: float, due: Tensor) -> None:
        """New multipliers and weights where `due`, and nothing while a class was never seen or a total overflowed.

        In place: the graphs of earlier batches hold gradients, not weights.
        """
        prior = self.counts.prior()
        found = rates(self.counts.totals, prior, hard=self.program.required)
        if self.program.fractional:
            mu = pressed = -self._ratio(found, prior)
        else:
            residual = (self.constraints * found.unsqueeze(1)).sum(-1)
            mu = (self.mu + step * residual).clamp(0, self.max_multiplier)
            pressed = (mu + DAMPING * step * residual).clamp(0, self.max_multiplier)
        moves = due & (self.counts.totals[..., 2] > 0).all() & found.isfinite().all()
        self.mu.copy_(torch.where(moves, mu, self.mu))
        self.weight.copy_(torch.where(moves, self._weighed(pressed, prior), self.weight))

    def primal_groups(self, lr: float) -> list[dict[str, Any]]:
        """The thresholds of the anchors; nothing for the measures at one operating point."""
        return [{"params": [self.threshold], "lr": lr}] if self.threshold is not None else []

    def thresholds(self) -> Tensor:
        """(K,) the decision threshold of every row, 0 unless it is learned."""
        return torch.zeros_like(self.share) if self.threshold is None else self.threshold.detach()

    def _ratio(self, found: Tensor, prior: Tensor | float) -> Tensor:
        """V = (beta^2 + F) / T, at most that of a constant scorer: T <= 0 has no ratio, and no larger v is optimal."""
        worst = self._worst_ratio(prior)
        ratio = (self.objective * found).sum(-1, keepdim=True) / found[:, :1]
        return torch.where(found[:, :1] > 0, ratio.minimum(worst), worst)

    def _worst_ratio(self, prior: Tensor | float) -> Tensor:
        """V of the constant scorer f = 1, which every scorer with a bias term can reach."""
        hit, alarm = self.constant_errors
        return (self.objective[0, 3] + prior * alarm) / (1 - hit)

    def _weighed(self, multiplier: Tensor, prior: Tensor | float) -> Tensor:
        """Loss = sum_k share_k (objective_k + multiplier_k @ constraints_k) . (1 - mean error, F, R, .), constants dropped."""
        row = self.objective + (multiplier.unsqueeze(-1) * self.constraints).sum(1)
        return self.share.unsqueeze(-1) * torch.stack([-row[:, 0], prior * row[:, 1] + row[:, 2]], dim=-1)
