"""The paper's solver: reparameterised dual ascent with one tau and one lambda per positive
(algorithm 3, corrected).

    L = objective . (mean tau, eps F, eps R, eps) + mu . constraints . (mean tau, eps F, eps R, 1) +
    mean lambda_i (tau_i - s_i)

with s_i = eps f_i, minimised over the network, tau and eps on {tau_i <= eps, eps >= 0} and
maximised over lambda >= 0 and mu (eps = 1 but for F-beta). At the optimum of F-beta mu = -V and 0
<= lambda_i <= -mu. The penalty `augment` turns lambda (tau - s) into the augmented Lagrangian's
term: same saddle points, no cycling around them, and lambda can be held within its bounds all the
way; 0 is the paper's.
"""

from typing import Any

import torch
from torch import Tensor, nn

from evalgrad.s_measures.batch import Batch
from evalgrad.s_measures.counts import rates
from evalgrad.s_measures.programs import Program
from evalgrad.s_measures.projection import project_onto_ceiling
from evalgrad.s_measures.solver import Settings, Solver
from evalgrad.s_measures.surrogates import SURROGATES, Surrogate


class LagrangianSolver(Solver):
    """One group of one measure: a batch with its positions in the data in, the Lagrangian out."""

    slot: Tensor
    lam: Tensor
    alarm: Tensor

    def __init__(self, program: Program, positives: Tensor, surrogate: Surrogate) -> None:
        super().__init__(program, positives, surrogate)
        rows, constraints, _ = program.constraints.shape
        self.tau = nn.Parameter(torch.ones(rows, len(self.counts.positives)))
        self.epsilon = nn.Parameter(torch.ones(())) if program.fractional else None
        # item -> column of tau
        self.register_buffer("slot", positives.cumsum(0).sub(1).clamp_min(0), persistent=False)
        # beta^2 <= V: a start below the optimum
        price = float(program.objective[0, 3]) if program.fractional else 1.0
        start = -price if program.fractional else price
        self.register_buffer("mu", torch.full((rows, constraints), start))
        self.register_buffer("lam", torch.full(self.tau.shape, price))
        # false positives per negative at the last dual step
        self.register_buffer("alarm", torch.zeros(rows))
        self.calls = self.projections = 0

    def forward(self, batch: Batch, settings: Settings) -> Tensor:
        """The Lagrangian, its means taken over the batch; 0 where the batch lacks a class."""
        scores, positive, position = batch
        found = positive.sum()
        hits, others = found, len(scores) - found
        if self.training:
            self.counts.take(batch)
        epsilon, offset = self._epsilon(), scores - self._threshold().unsqueeze(-1)
        slot = self.slot[position]
        tau, lam = self.tau[:, slot], self.lam[:, slot]
        alarm = epsilon * _mean(self.surrogate(1 + offset), ~positive, others)
        gap = tau - epsilon * self._gain(offset)
        coupling = _mean(_coupling(lam, gap, settings.augment), positive, hits)
        row = self._row(_mean(tau, positive, hits), alarm)
        cost = (self.objective[:, :3] * row[:, :3]).sum(-1) + self.objective[:, 3] * epsilon
        pressed = (self._pressed(settings) * (self.constraints * row.unsqueeze(1)).sum(-1)).sum(-1)
        value = (self.share * (cost + pressed + coupling)).sum()
        return torch.where((hits.minimum(others) > 0) | value.isnan(), value, 0)

    @torch.no_grad()
    def project_(self, settings: Settings) -> None:
        """Return tau and epsilon to their set, at every `project_every`-th call. Call it after each
        optimiser step.
        """
        self.calls += 1
        if self.calls % settings.project_every:
            return
        self.projections += 1
        if self.epsilon is None:
            self.tau.clamp_(max=1)
        else:  # rho = (step of epsilon) / (step of tau) of `primal_groups`
            tau, epsilon = project_onto_ceiling(
                self.tau[0], self.epsilon, rho=1 / self.tau.shape[1]
            )
            self.tau.copy_(tau)
            self.epsilon.copy_(epsilon)

    @torch.no_grad()
    def dual_step(self, settings: Settings, lr: float | None = None) -> None:
        """mu <- mu + lr residual, lambda <- lambda + lr (tau - s) within its bounds, from the
        cached scores of the items seen.
        """
        step = settings.dual_lr if lr is None else lr
        scores = self.counts.cache[self.counts.positives] - self.thresholds().unsqueeze(-1)
        gap = self.tau - self._epsilon() * self._gain(scores)
        totals = self.counts.cached(self.thresholds())
        self.alarm = rates(totals, self.counts.prior())[:, 2]
        self.mu = self._moved(step, settings.max_multiplier)
        lam = self.lam + step * gap.nan_to_num(0)
        # without its square only a lambda above the price would pull tau down again
        if settings.augment > 0:
            lam = lam.minimum(self.price().unsqueeze(-1))
        self.lam = lam.clamp_min(0)

    def price(self) -> Tensor:
        """(K,) what L falls by per unit of mean tau, -mu for F-beta: at an optimum no lambda is
        larger, or its tau would fall.
        """
        return -(self.objective[:, 0] + (self.mu * self.constraints[..., 0]).sum(-1))

    def primal_groups(self, lr: float) -> list[dict[str, Any]]:
        """Parameter groups for `torch.optim.SGD` whose steps match the projection; never for Adam.

        The loss averages over the n positives, so a step of tau is n times smaller than one of
        epsilon unless its rate is n times larger.
        """
        plain = {"momentum": 0.0, "weight_decay": 0.0}
        scale = self.tau.shape[1] / float(self.share.mean())
        shared = [p for p in (self.epsilon, self.threshold) if p is not None]
        groups = [{"params": [self.tau], "lr": lr * scale, **plain}]
        return groups + ([{"params": shared, "lr": lr, **plain}] if shared else [])

    def report(self) -> dict[str, Any]:
        """The variables of the items and how often they were projected."""
        return {
            "lambda_range": [float(self.lam.min()), float(self.lam.max())],
            "lambda_ceiling": self.price().tolist(),
            "tau_mean": self.tau.mean(1).tolist(),
            "epsilon": None if self.epsilon is None else float(self.epsilon),
            "projections": self.projections,
        }

    def _threshold(self) -> Tensor:
        return torch.zeros_like(self.share) if self.threshold is None else self.threshold

    def _epsilon(self) -> Tensor:
        return torch.ones_like(self.share[0]) if self.epsilon is None else self.epsilon

    def _moved(self, step: float, ceiling: float) -> Tensor:
        """mu + step * residual of the whole data, with every tau as it is and the alarms of the
        last dual step.
        """
        row = self._row(self.tau.mean(1), self._epsilon() * self.alarm)
        mu = self.mu + step * (self.constraints * row.unsqueeze(1)).sum(-1)
        return mu if self.program.fractional else mu.clamp(0, ceiling)

    @torch.no_grad()
    def _pressed(self, settings: Settings) -> Tensor:
        """What multiplies the residual of a batch: the derivative of mu r + augment r^2 / 2 at the
        residual r of the whole data.

        Without the square, scale and mu circle around each other: r is the drift of mu, and mu + V
        that of the scale.
        """
        return self._moved(settings.augment, settings.max_multiplier)

    def _row(self, hit: Tensor, alarm: Tensor) -> Tensor:
        return torch.stack([hit, self.counts.prior() * alarm, alarm, torch.ones_like(hit)], dim=-1)

    def _gain(self, offset: Tensor) -> Tensor:
        """The bound on tau / eps besides 1: f for the hinge (1 - hinge = min(1, f)), else 1 - l(1 -
        f).
        """
        return offset if self.surrogate == SURROGATES["hinge"] else 1 - self.surrogate(1 - offset)

    def get_extra_state(self) -> dict[str, int]:
        return {"calls": self.calls, "projections": self.projections}

    def set_extra_state(self, state: dict[str, int]) -> None:
        self.calls, self.projections = state["calls"], state["projections"]


def _mean(values: Tensor, member: Tensor, size: Tensor) -> Tensor:
    return torch.where(member, values, 0).sum(-1) / size.clamp_min(1)


def _coupling(lam: Tensor, gap: Tensor, augment: float) -> Tensor:
    if augment == 0:
        return lam * gap
    return ((lam + augment * gap).relu().square() - lam.square()) / (2 * augment)
