"""What a solver knows about itself: certificate, true metric, residuals, dual identity, and why a
constraint is unmet.
"""

from typing import Any

import torch
from torch import Tensor

from evalgrad.s_measures.counts import rates
from evalgrad.s_measures.solver import Settings, Solver

FINE = torch.linspace(-1, 1, 33).tolist()  # relative offsets tried around a scale or threshold


@torch.no_grad()
def diagnose(solver: Solver, settings: Settings) -> dict[str, Any]:
    """State of one group as plain numbers; see `SMeasure.diagnostics`."""
    counts, program = solver.counts, solver.program
    totals = counts.cached(solver.thresholds()) if counts.indexed else counts.totals
    soft, hard = rates(totals, counts.prior()), rates(totals, counts.prior(), hard=True)
    residual = (solver.constraints * (hard if program.required else soft).unsqueeze(1)).sum(-1)
    report = {
        "source": _source(solver),
        "certificate": float(_certificate(solver, soft).sum()),
        "metric": _metric(solver, hard),
        "at_threshold": float(program.certificate(hard).sum()),
        "recall": hard[:, 0].tolist(),
        "precision": (hard[:, 0] / (hard[:, 0] + hard[:, 1]).clamp_min(1e-12)).tolist(),
        "mu": solver.mu.tolist(),
        **_duality(solver, soft, residual),
        **solver.report(),
    }
    if not program.fractional:
        report |= {
            "residuals": residual.tolist(),
            "met": bool((residual <= 1e-3).all()),
            "why": _why(solver, residual, hard, settings.max_multiplier),
        }
    return report


def _source(solver: Solver) -> str:
    counts = solver.counts
    if counts.indexed:
        return (
            f"cache of the last scores, {100 * float((~counts.cache.isnan()).float().mean()):.0f} %"
            " of the items seen"
        )
    return "moving average over batches" if bool(counts.totals.any()) else "nothing seen yet"


def _certificate(solver: Solver, soft: Tensor) -> Tensor:
    """The best bound of each row over rescaled scores, which leave every hard prediction as it is.

    P@R, R@P and the areas are measures over all thresholds, so for them the threshold may move as
    well.
    """
    program, counts = solver.program, solver.counts
    best = program.certificate(soft)
    if not counts.indexed:
        return best
    # nothing scored yet, or scores that are NaN: nothing is certified
    if bool(counts.cache.isnan().all()):
        return torch.full_like(best, torch.nan)
    shift = solver.thresholds()
    scale = torch.ones_like(shift)
    for width in (0.5, 0.03):
        for part in ("scale",) if program.fractional else ("shift", "scale"):
            tried_scale, tried_shift = scale, shift
            for offset in FINE:
                c, b = tried_scale, tried_shift
                c, b = (
                    (c * (1 + width * offset) ** 2, b)
                    if part == "scale"
                    else (c, b + width * offset / c)
                )
                bound = program.certificate(rates(counts.cached(b, scale=c), counts.prior()))
                better = bound > best
                best = torch.where(better, bound, best)
                scale, shift = torch.where(better, c, scale), torch.where(better, b, shift)
    return best


def _metric(solver: Solver, hard: Tensor) -> float:
    seen = ~solver.counts.cache.isnan()
    if not solver.counts.indexed:
        return float(solver.program.certificate(hard).sum())
    return float(solver.program.metric(solver.counts.cache[seen], solver.counts.labels[seen]))


def _duality(solver: Solver, soft: Tensor, residual: Tensor) -> dict[str, Any]:
    """`dual_identity` is 0 at an optimum: mu + V for F-beta, the complementary slackness mu *
    residual otherwise.
    """
    if not solver.program.fractional:
        return {"dual_identity": float((solver.mu * residual).abs().amax())}
    ratio = (solver.objective * soft).sum(-1) / soft[:, 0]
    return {"V": float(ratio), "dual_identity": float(solver.mu + ratio)}


def _why(solver: Solver, residual: Tensor, hard: Tensor, ceiling: float) -> str:
    """One sentence on the constraint that is furthest from being met."""
    worst = float(residual.amax())
    if solver.counts.indexed and bool(solver.counts.cache.isnan().any()):
        return (
            f"Not every item has been scored yet ({_source(solver)}): finish a pass over the data"
            " in training mode."
        )
    if not bool(solver.counts.totals.any()) and not solver.counts.indexed:
        return "Nothing seen yet: call the measure in training mode."
    if worst <= 1e-3:
        return "All constraints are met."
    row = int(residual.amax(-1).argmax())
    unmet = f"A constraint is unmet by {worst:.3g}"
    if float(hard[row, 0]) == 0:
        return (
            f"{unmet}: no positive scores above the threshold. Give the scorer a bias term or train"
            " it on cross-entropy first."
        )
    if float(solver.mu[row].amax()) >= ceiling:
        return (
            f"{unmet} with its multiplier at `max_multiplier`: the scorer seems unable to meet it;"
            " ask for less."
        )
    return f"{unmet} and its multiplier is still rising: train longer or raise `dual_lr`."
