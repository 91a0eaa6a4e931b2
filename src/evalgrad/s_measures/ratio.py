"""The default solver: one scalar per constraint, O(1) state, any optimiser for the network.

F-beta is a ratio V = (beta^2 + F) / T. Dinkelbach: minimise beta^2 + F - v T, then set v to the current ratio; v falls to the
optimum V*. The constrained measures use a multiplier instead, moved by the residual of the whole data (its integral and,
against oscillation, its present value). Either way a batch pays a weighted surrogate loss: one weight for its positives,
one for its negatives, renewed from the totals of `counts`. Constants are left out of the loss, so it is >= 0 and 0 once all
items lie beyond the margin; for F-beta it is F + v (1 - T), which tends to V - beta^2.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from evalgrad.s_measures.counts import Counts, keep_single, rates, same_positives
from evalgrad.s_measures.programs import Program
from evalgrad.s_measures.surrogate_errors import weighted_errors
from evalgrad.s_measures.surrogates import Surrogate

Rows = list[list[float]]  # (rows, constraints)

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
        prior = float(self.counts.prior())
        start = -self._worst_ratio(prior) if program.fractional else 0.0 if program.required else 1.0
        self.register_buffer("mu", torch.full((rows, constraints), start))
        self.register_buffer("weight", torch.zeros(rows, 2))  # of the mean surrogate of the positives | negatives
        self._reweigh(self.mu.tolist(), prior)

    def forward(self, scores: Tensor, positive: Tensor, index: Tensor | None) -> Tensor:
        """Class means of the surrogate, and nothing where a class is missing: in expectation a multiple of the loss on the whole
        data, for uniform and for class-balanced samplers alike.
        """
        offset = scores if self.threshold is None else scores - self.threshold.unsqueeze(-1)
        value, totals = weighted_errors(offset, positive, self.weight, self.surrogate)
        if self.training:
            learn = self._learn_outside_graph if torch.compiler.is_compiling() else self._learn
            learn(scores.detach(), positive, index, totals)
        return value

    def _learn(self, scores: Tensor, positive: Tensor, index: Tensor | None, totals: Tensor) -> None:
        if self.counts.update(scores, positive, index, totals, self.thresholds, self.surrogate):
            self.dual_step()

    # State that moves in Python at some batches and not at others would make compile trace anew: it is left out of the graph.
    _learn_outside_graph = torch.compiler.disable(_learn)

    def project_(self) -> None:
        """Nothing to project: the ratio has no per-item variables."""

    @torch.no_grad()
    def dual_step(self, lr: float | None = None) -> None:
        """Move v or the multipliers by the latest totals. Training forwards do this by themselves.

        A few numbers, worked on as numbers: as tensors of one element they would cost more than the loss itself.
        """
        if float(self.counts.totals[..., 2].amin()) == 0:  # a class was never seen
            return
        step, prior = self.dual_lr if lr is None else lr, float(self.counts.prior())
        found = rates(self.counts.totals, prior, hard=self.program.required).tolist()
        if self.program.fractional:
            mu = pressed = [[-self._ratio(row, prior)] for row in found]
        else:
            residual = [[_dot(c, row) for c in rows] for rows, row in zip(self.program.constraints.tolist(), found, strict=True)]
            mu = self._moved(self.mu.tolist(), residual, step)
            pressed = self._moved(mu, residual, DAMPING * step)
        self.mu = self.mu.new_tensor(mu)  # new tensors: earlier graphs may still hold the old ones
        self._reweigh(pressed, prior)

    def primal_groups(self, lr: float) -> list[dict[str, Any]]:
        """The thresholds of the anchors; nothing for the measures at one operating point."""
        return [{"params": [self.threshold], "lr": lr}] if self.threshold is not None else []

    def thresholds(self) -> Tensor:
        """(K,) the decision threshold of every row, 0 unless it is learned."""
        return torch.zeros_like(self.share) if self.threshold is None else self.threshold.detach()

    def _moved(self, multiplier: Rows, residual: Rows, step: float) -> Rows:
        pairs = [zip(m, r, strict=True) for m, r in zip(multiplier, residual, strict=True)]
        return [[min(max(m + step * r, 0.0), self.max_multiplier) for m, r in row] for row in pairs]

    def _ratio(self, found: list[float], prior: float) -> float:
        """V = (beta^2 + F) / T, at most that of a constant scorer: T <= 0 has no ratio, and no larger v is optimal."""
        worst = self._worst_ratio(prior)
        return min(_dot(self.program.objective[0].tolist(), found) / found[0], worst) if found[0] > 0 else worst

    def _worst_ratio(self, prior: float) -> float:
        """V of the constant scorer f = 1, which every scorer with a bias term can reach."""
        hit, alarm = self.constant_errors
        return (float(self.program.objective[0, 3]) + prior * alarm) / (1 - hit)

    def _reweigh(self, multiplier: Rows, prior: float) -> None:
        """Loss = sum_k share_k (objective_k + multiplier_k @ constraints_k) . (1 - mean error, F, R, .), constants dropped."""
        program, weight = self.program, []
        for k, (objective, constraints) in enumerate(zip(program.objective.tolist(), program.constraints.tolist(), strict=True)):
            row = [o + _dot(multiplier[k], column) for o, *column in zip(objective, *constraints, strict=True)]
            weight.append([-row[0], prior * row[1] + row[2]])
        self.weight = self.share.unsqueeze(-1) * self.share.new_tensor(weight)


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))
