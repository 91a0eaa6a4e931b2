"""The paper's solver: reparameterised dual ascent with one tau and one lambda per positive
(algorithm 3, corrected).

    L = objective . (mean tau, eps F, eps R, eps) + mu . constraints . (mean tau, eps F, eps R, 1) +
    mean lambda_i (tau_i - s_i)

with s_i = eps f_i, minimised over the network, tau and eps on {tau_i <= eps, eps >= 1} and
maximised over lambda >= 0 and mu (eps = 1 but for F-beta, where mean tau = 1 bounds it from below).
Between projections the loss itself holds to that set: a tau above eps counts as eps, and pulls at
eps, not at itself. At the optimum of F-beta mu = -V and 0 <= lambda_i <= -mu. The penalty `augment`
turns lambda (tau - s) into the augmented Lagrangian's term: same saddle points, no cycling around
them, and lambda can be held within its bounds all the way; 0 is the paper's. The multipliers of
`at_least` follow the hard counts of the last dual step.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from evalgrad.s_measures.batch import Batch
from evalgrad.s_measures.counts import rates
from evalgrad.s_measures.layout import Members
from evalgrad.s_measures.optimisers import PLAIN, Groups, check_optimisers, taken, watch
from evalgrad.s_measures.programs import Program
from evalgrad.s_measures.projection import project_onto_ceiling
from evalgrad.s_measures.solver import Settings, Solver
from evalgrad.s_measures.surrogate_errors import error_totals
from evalgrad.s_measures.surrogates import SURROGATES, Surrogate


class LagrangianSolver(Solver):
    """One group of one measure: a batch with its positions in the data in, the Lagrangian out."""

    slot: Tensor
    lam: Tensor
    alarm: Tensor
    hard: Tensor

    def __init__(self, program: Program, known: Members, surrogate: Surrogate) -> None:
        super().__init__(program, known, surrogate)
        rows, constraints, _ = program.constraints.shape
        self.tau = nn.Parameter(torch.ones(rows, len(self.counts.positives)))
        self.epsilon = nn.Parameter(torch.ones(())) if program.fractional else None
        # item -> column of tau
        self.register_buffer("slot", known.positive.cumsum(0).sub(1).clamp_min(0), persistent=False)
        # beta^2 <= V: a start below the optimum
        price = float(program.objective[0, 3]) if program.fractional else 1.0
        start = -price if program.fractional else 0.0 if program.required else price
        self.register_buffer("mu", torch.full((rows, constraints), start))
        self.register_buffer("lam", torch.full(self.tau.shape, price))
        # false positives per negative at the last dual step; and all rates by hard counts, which
        # ask for nothing before the first
        self.register_buffer("alarm", torch.zeros(rows))
        self.register_buffer("hard", torch.zeros(rows, 4))
        self.calls = self.projections = 0
        # by `primal_groups`, what was taken and the last; an optimiser fills them in
        self.given: list[Groups] | None = []

    def forward(self, batch: Batch, settings: Settings) -> Tensor:
        """The Lagrangian, its means taken over the batch; 0 where the batch lacks a class."""
        scores, positive, position, mask = batch
        negative = ~positive
        if mask is not None:
            positive, negative = positive & mask, negative & mask
            scores = torch.where(mask, scores, 0)  # a NaN would reach gradients by a factor of 0
            position = torch.where(mask, position, 0)  # type: ignore[arg-type]  # has them all
        hits, others = positive.sum(), negative.sum()
        if self.training:
            self.counts.take(batch)
        epsilon, offset = self._epsilon(), scores - self._threshold().unsqueeze(-1)
        slot = self.slot[position]
        tau, lam = _under(self.tau[:, slot], epsilon), self.lam[:, slot]
        alarms = _mean(self.surrogate(1 + offset), negative, others)
        gap = tau - epsilon * self._gain(offset)
        pressed = self._pressed(settings)
        coupling = _mean(_coupling(lam, gap, settings.augment), positive, hits)
        if self.program.required:  # nothing asks for true positives while all constraints are met
            coupling = torch.where((pressed > 0).any(-1), coupling, 0)
        row = self._row(_mean(tau, positive, hits), epsilon * alarms)
        cost = (self.objective[:, :3] * row[:, :3]).sum(-1) + self.objective[:, 3] * epsilon
        price = (pressed * (self.constraints * row.unsqueeze(1)).sum(-1)).sum(-1)
        value = (self.share * (cost + price + coupling)).sum()
        shown = self._shown(value.detach(), batch)
        value = value + (shown - value.detach())
        return torch.where((hits.minimum(others) > 0) | value.isnan(), value, 0)

    def _shown(self, value: Tensor, batch: Batch) -> Tensor:
        """The value of the loss: for F-beta V of the scores, as of the ratio solver."""
        if self.ratio is None:
            return value
        zero = torch.zeros_like(self.share)
        scores = batch.scores.detach()
        if batch.mask is not None:
            scores = scores.masked_fill(~batch.mask, torch.nan)  # as if not seen
        totals = error_totals(scores, batch.positive, zero, self.surrogate)
        return self.ratio(totals[0])

    @torch.no_grad()
    def project_(self, settings: Settings) -> None:
        """Return tau and epsilon to their set, at every `project_every`-th call. Call it after
        optimiser steps, all or some.
        """
        check_optimisers(self.parameters(), self.given)
        self.calls += 1
        if self.calls % settings.project_every:
            return
        self.projections += 1
        if self.epsilon is None:
            self.tau.clamp_(max=1)
        else:  # rho = (step of epsilon) / (step of tau) of `primal_groups`
            tau, epsilon = project_onto_ceiling(
                self.tau[0] - 1, self.epsilon - 1, rho=1 / self.tau.shape[1]
            )
            self.tau.copy_(tau + 1)
            self.epsilon.copy_(epsilon + 1)

    @torch.no_grad()
    def load_multipliers(self, state: Mapping[str, Any]) -> None:
        """With every lambda at the mean of the old ones."""
        super().load_multipliers(state)
        self.lam.copy_(state["lam"].mean(-1, keepdim=True).expand_as(self.lam))

    @torch.no_grad()
    def dual_step(self, settings: Settings, lr: float | None = None) -> None:
        """mu <- mu + lr residual, lambda <- lambda + lr (tau - s) within its bounds, from the
        cached scores of the items seen.
        """
        step = settings.dual_lr if lr is None else lr
        scores = self.counts.cache[self.counts.positives] - self.thresholds().unsqueeze(-1)
        epsilon = self._epsilon()
        gap = _under(self.tau, epsilon) - epsilon * self._gain(scores)
        totals = self.counts.cached(self.thresholds())
        self.alarm = rates(totals, self.counts.prior())[:, 2]
        self.hard = rates(totals, self.counts.prior(), hard=True)
        if not self.program.fractional:
            self.remember(self.residual(self._whole()))
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
        scale = self.tau.shape[1] / float(self.share.mean())
        shared = [p for p in (self.epsilon, self.threshold) if p is not None]
        groups = [{"params": [self.tau], "lr": lr * scale, **PLAIN}]
        groups += [{"params": shared, "lr": lr, **PLAIN}] if shared else []
        watch(self.parameters())
        self.given = [*filter(taken, self.given or []), groups]
        return groups

    def report(self) -> dict[str, Any]:
        """The variables of the items and how often they were projected."""
        return {
            "lambda_range": [float(self.lam.min()), float(self.lam.max())],
            "lambda_ceiling": self.price().tolist(),
            "tau_mean": _under(self.tau, self._epsilon()).mean(1).tolist(),
            "epsilon": None if self.epsilon is None else float(self._epsilon()),
            "projections": self.projections,
        }

    def _threshold(self) -> Tensor:
        return torch.zeros_like(self.share) if self.threshold is None else self.threshold

    def _epsilon(self) -> Tensor:
        """Never below 1, wherever a step has taken it; the gradient arrives as if it were free, so
        that it can come back.
        """
        if self.epsilon is None:
            return torch.ones_like(self.share[0])
        held = self.epsilon - self.epsilon.detach() + 1
        return torch.where(self.epsilon < 1, held, self.epsilon)

    def _moved(self, step: float, ceiling: float) -> Tensor:
        """mu + step * residual of the whole data."""
        mu = self.mu + step * self.residual(self._whole())
        return mu if self.program.fractional else mu.clamp(0, ceiling)

    def _whole(self) -> Tensor:
        """(K, 4) the rates of the whole data, with every tau as it is and the alarms of the last
        dual step; of `at_least` the hard counts of that step.
        """
        if self.program.required:
            return self.hard
        epsilon = self._epsilon()
        return self._row(_under(self.tau, epsilon).mean(1), epsilon * self.alarm)

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

    def __getstate__(self) -> dict[str, Any]:
        """A copy is in no optimiser, or in one that is copied with it."""
        return {**self.__dict__, "given": [] if self.given == [] else None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        if self.given is None:
            watch(self.parameters())

    def get_extra_state(self) -> dict[str, int]:
        return {"calls": self.calls, "projections": self.projections}

    def set_extra_state(self, state: dict[str, int]) -> None:
        self.calls, self.projections = state["calls"], state["projections"]


def _under(tau: Tensor, epsilon: Tensor) -> Tensor:
    """min(tau, epsilon), at a tie tau itself: projected at every step, only tau has a gradient."""
    return torch.where(tau > epsilon, epsilon, tau)


def _mean(values: Tensor, member: Tensor, size: Tensor) -> Tensor:
    return torch.where(member, values, 0).sum(-1) / size.clamp_min(1)


def _coupling(lam: Tensor, gap: Tensor, augment: float) -> Tensor:
    if augment == 0:
        return lam * gap
    return ((lam + augment * gap).relu().square() - lam.square()) / (2 * augment)
