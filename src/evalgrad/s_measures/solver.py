"""What both solvers are made of: the program of a measure, the counts of the data, thresholds.

A solver is one group of one measure. It holds state alone: the numbers that a user may change are
attributes of the measure (`Settings`), and each call brings them along.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from evalgrad._errors import fail
from evalgrad.s_measures.batch import Batch
from evalgrad.s_measures.counts import Counts, keep
from evalgrad.s_measures.layout import Members
from evalgrad.s_measures.multipliers import residuals
from evalgrad.s_measures.programs import Program
from evalgrad.s_measures.surrogate_errors import Ratio
from evalgrad.s_measures.surrogates import Surrogate

PER_ITEM = {"counts.cache", "tau", "lam"}  # of the state


class Settings:
    """Numbers a user rarely touches; the same for all measures, whose attributes they are."""

    dual_lr: float = 0.2  # step of the multipliers
    max_multiplier: float = 100.0  # cap of the multipliers of inequality constraints
    momentum: float = 0.98  # share that a batch keeps in the totals at the next, without `index`
    project_every: int = 1  # lagrangian: `project_()` works at every such call
    augment: float = 5.0  # lagrangian: penalty of the augmented Lagrangian, 0 for the paper's


class Solver(nn.Module):
    """One group of one measure: a batch in, its loss out."""

    objective: Tensor
    constraints: Tensor
    share: Tensor
    mu: Tensor  # (K, J), set by the subclass
    trend: Tensor  # (K, J) residuals that moved the multipliers, averaged over some ten moves
    latest: Tensor  # (K, J) and over some three: one of a batch or a fading sum is noisy
    moves: Tensor  # how many there were

    def __init__(self, program: Program, known: Members | None, surrogate: Surrogate) -> None:
        super().__init__()
        self.program, self.surrogate = program, surrogate
        rows = len(program.share)
        self.counts = Counts(known, rows, surrogate)
        # what the value of F-beta is made of; None for the others
        prior = self.counts.known_prior or 0.0
        self.ratio = Ratio(program.square, prior) if program.fractional else None
        self.threshold = nn.Parameter(torch.zeros(rows)) if program.anchored else None
        for name in ("objective", "constraints", "share"):
            self.register_buffer(name, getattr(program, name).clone(), persistent=False)
        for name in ("trend", "latest"):
            self.register_buffer(name, torch.zeros(program.constraints.shape[:2]))
        self.register_buffer("moves", torch.zeros(()))
        self.register_load_state_dict_pre_hook(_same_positives)  # type: ignore[no-untyped-call]

    def forward(self, batch: Batch, settings: Settings) -> Tensor:
        """The loss of the batch; in training mode its scores also enter the totals of the data."""
        raise NotImplementedError

    def dual_step(self, settings: Settings, lr: float | None = None) -> None:
        """Ascend in the multipliers, by `lr` or `dual_lr`."""
        raise NotImplementedError

    def project_(self, settings: Settings) -> None:
        """Return the variables of the items to their set, where there are any."""

    def primal_groups(self, lr: float) -> list[dict[str, Any]]:
        """Parameter groups of the solver's own variables, for an optimiser."""
        return [{"params": [self.threshold], "lr": lr}] if self.threshold is not None else []

    @torch.no_grad()
    def load_multipliers(self, state: Mapping[str, Any]) -> None:
        """What `state` holds besides the items; see `SMeasure.load_multipliers`."""
        for key, own in self._shared().items():
            own.copy_(state[key])
        if state.get("counts._extra_state", {}).get("indexed"):
            self.counts.totals.zero_()  # they were those of the old cache

    def multipliers_fit(self, state: Mapping[str, Any]) -> bool:
        """Whether `load_multipliers` can take all of `state`."""
        own = self._shared()
        theirs = {key for key, x in state.items() if isinstance(x, Tensor)} - PER_ITEM
        if theirs != own.keys() or any(state[key].shape != x.shape for key, x in own.items()):
            return False
        # F-beta's mu is -V; as that of a constraint it would train the inverse
        return bool((state["mu"] < 0).all()) == self.program.fractional

    def _shared(self) -> dict[str, Tensor]:
        """The state that is not of single items."""
        state = self.state_dict().items()
        return {key: x for key, x in state if isinstance(x, Tensor) and key not in PER_ITEM}

    def report(self) -> dict[str, Any]:
        """What `diagnostics()` adds for this solver alone."""
        return {}

    def residual(self, found: Tensor) -> Tensor:
        """(K, J): how far rates (K, 4) are from the constraints; <= 0 is met."""
        joint = self.program.area is not None
        return residuals(found, self.constraints, self.share, joint)

    def remember(self, residual: Tensor, due: Tensor | bool = True) -> None:
        """Keep what moved the multipliers, to tell what still falls from what has stalled."""
        fresh = (self.moves == 0) | ~self.trend.isfinite()
        for average, pace in ((self.trend, 0.1), (self.latest, 0.3)):
            keep(average, torch.where(fresh, residual, torch.lerp(average, residual, pace)), due)
        keep(self.moves, self.moves + 1, due)

    def stalled(self) -> bool:
        """Whether the largest residual stays where it was, far from 0, over the last moves: what
        falls has a larger slow average, what hovers around 0 a smaller one.
        """
        worst = int(self.latest.argmax())
        latest, average = float(self.latest.flatten()[worst]), float(self.trend.flatten()[worst])
        return float(self.moves) >= 20 and latest > 0.02 and 0.9 < average / latest < 1.1

    def thresholds(self) -> Tensor:
        """(K,) the decision threshold of every row, 0 unless it is learned."""
        return torch.zeros_like(self.share) if self.threshold is None else self.threshold.detach()

    def widen(self) -> None:
        """Back to single precision, the coefficients as exact as they were.

        `half()` on a model narrows this state with the rest, but sums over many items need it wide;
        totals that did not fit are forgotten.
        """
        self.float()
        for name in ("objective", "constraints", "share"):
            getattr(self, name).copy_(getattr(self.program, name))
        self.counts.totals.nan_to_num_(nan=0.0, posinf=0.0)


def _same_positives(module: Any, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """Before loading: refuse the state of other data while nothing has been copied yet."""
    state = state_dict.get(prefix + "counts._extra_state")
    if state is not None and state["positives"] != module.counts.fingerprint:
        repair = (
            "Its per-item state would belong to other items: build the S-measure with the labels of"
            " the same data in the same order. For other data keep the rest by"
            " `load_multipliers(state_dict)`."
        )
        must, got = "those it was saved with", "others"
        fail(ValueError, "load_state_dict", "labels", must, got, repair)
