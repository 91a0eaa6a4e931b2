"""What a solver knows about itself: certificate, true metric, residuals, dual identity, and why a
constraint is unmet.
"""

from typing import Any

import torch
from torch import Tensor

from evalgrad.s_measures.counts import rates
from evalgrad.s_measures.solver import Settings, Solver
from evalgrad.s_measures.trapezoids import RequiredArea

NOTHING = "Nothing seen yet: call the measure in training mode, on positives and negatives."
DIVERGED = (
    "A multiplier or a threshold is NaN: the training diverged. Start again from a state before it,"
    " with a lower learning rate."
)
TOLERANCE = 1e-3  # of a residual
SILENT = 0.01  # true positives per positive; a fading sum never forgets the last of them
FINE = torch.linspace(-1, 1, 33).tolist()  # relative offsets tried around a scale or threshold


@torch.no_grad()
def diagnose(solver: Solver, settings: Settings) -> dict[str, Any]:
    """State of one group as plain numbers; see `SMeasure.diagnostics`."""
    counts, program = solver.counts, solver.program
    totals = counts.cached(solver.thresholds()) if counts.indexed else counts.totals
    nothing = not bool((totals[..., 2] > 0).all())  # of one of the classes, at least
    # no score is above or below NaN, which counts do not show
    unknown = torch.nan if nothing or bool(solver.thresholds().isnan().any()) else 0.0
    soft = rates(totals, counts.prior()) + unknown
    hard = rates(totals, counts.prior(), hard=True) + unknown
    prior = _prior(solver, totals)
    seen = [rates(totals, prior, hard=kind) + unknown for kind in (False, True)]
    report = {
        "source": _source(solver),
        "certificate": float(_certificate(solver, seen[0], prior).sum()) + unknown,
        "metric": torch.nan if nothing else _metric(solver, hard),
        "at_threshold": float(program.certificate(seen[1]).sum()) + unknown,
        "recall": hard[:, 0].tolist(),
        "precision": (hard[:, 0] / (hard[:, 0] + hard[:, 1]).clamp_min(1e-12)).tolist(),
        "mu": solver.mu.tolist(),
        **_duality(solver, soft, solver.residual(hard if program.required else soft)),
        **solver.report(),
    }
    return report | _constraints(solver, soft, hard, settings)


def _constraints(solver: Solver, soft: Tensor, hard: Tensor, settings: Settings) -> dict[str, Any]:
    """`met` is by hard counts; None where nothing was seen, and for F-beta, which has none."""
    program = solver.program
    if program.fractional:
        return {"met": None, "why": "There is no constraint: F-beta is the objective."}
    residual, surrogate = solver.residual(hard), solver.residual(soft)
    if program.area is not None:  # it is judged by itself, not by its anchors
        residual = torch.full_like(residual, _missing_area(solver, program.area, hard))
        surrogate = torch.full_like(surrogate, program.area.missing(soft))
    unseen = bool(residual.isnan().any())
    diverged = bool(solver.mu.isnan().any() or solver.thresholds().isnan().any())
    why = DIVERGED if diverged else NOTHING if unseen else ""
    return {
        "residuals": residual.tolist(),
        "surrogate_residuals": surrogate.tolist(),
        "met": None if unseen else bool((residual <= TOLERANCE).all()),
        "why": why or _why(solver, residual, surrogate, hard, settings),
    }


def _missing_area(solver: Solver, area: RequiredArea, hard: Tensor) -> float:
    """Of the exact area once every item has been seen: of a part, that of precision and recall may
    be far too high. Before, of the trapezoids of its anchors, as in training. The staircase that
    certifies it ends far below 1.
    """
    known = solver.counts.indexed and solver.counts.complete()
    return area.at_least - _metric(solver, hard) if known else area.missing(hard)


def together(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """Macro averages of several groups; met where all are, and why the furthest is not."""
    average = {
        key: sum(report[key] for report in reports) / len(reports)
        for key in ("certificate", "metric", "at_threshold")
    }
    verdicts = [report["met"] for report in reports]
    first = next((c for c, met in enumerate(verdicts) if met is None), None)
    if first is None:
        worst = [max(map(max, report["residuals"])) for report in reports]
        first = worst.index(max(worst))
    met = None if None in verdicts else all(verdicts)
    why = reports[first]["why"]
    if any(report["why"] != why for report in reports):
        why = f"Group {first}: {why}"
    return {**average, "met": met, "why": why, "groups": reports}


def _source(solver: Solver) -> str:
    counts = solver.counts
    if counts.indexed:
        return (
            f"cache of the last scores, {100 * counts.seen() / counts.counting:.0f} % of the items"
            " seen"
        )
    return "moving average over batches" if bool(counts.totals.any()) else "nothing seen yet"


def _prior(solver: Solver, totals: Tensor) -> Tensor | float:
    """Negatives per positive of what `metric` is of, which may be a part of the labels."""
    positives, negatives = totals[0, :, 2].unbind()
    return negatives / positives if solver.counts.indexed else solver.counts.prior()


def _certificate(solver: Solver, soft: Tensor, prior: Tensor | float) -> Tensor:
    """The best bound of each row over rescaled scores, which leave every hard prediction as it is.

    P@R, R@P and the areas are measures over all thresholds, so for them the threshold may move as
    well; that of F-beta, whether objective or constraint, is 0.
    """
    program, counts = solver.program, solver.counts
    best = program.certificate(soft)
    if not counts.indexed or bool(soft.isnan().any()):
        return best
    shift = solver.thresholds()
    scale = torch.ones_like(shift)
    for width in (0.5, 0.03):
        for part in ("scale",) if program.at_zero else ("shift", "scale"):
            tried_scale, tried_shift = scale, shift
            for offset in FINE:
                c, b = tried_scale, tried_shift
                c, b = (
                    (c * (1 + width * offset) ** 2, b)
                    if part == "scale"
                    else (c, b + width * offset / c)
                )
                bound = program.certificate(rates(counts.cached(b, scale=c), prior))
                better = bound > best
                best = torch.where(better, bound, best)
                scale, shift = torch.where(better, c, scale), torch.where(better, b, shift)
    return best


def _metric(solver: Solver, hard: Tensor) -> float:
    seen = ~solver.counts.cache.isnan()
    if not solver.counts.indexed:
        return float(solver.program.certificate(hard).sum() + 0 * hard.sum())  # NaN shows
    return float(solver.program.metric(solver.counts.cache[seen], solver.counts.labels[seen]))


def _duality(solver: Solver, soft: Tensor, residual: Tensor) -> dict[str, Any]:
    """`dual_identity` is 0 at an optimum: mu + V for F-beta, the complementary slackness mu *
    residual otherwise.
    """
    if not solver.program.fractional:
        return {"dual_identity": float((solver.mu * residual).abs().amax())}
    ratio = (solver.objective * soft).sum(-1) / soft[:, 0]
    return {"V": float(ratio), "dual_identity": float(solver.mu + ratio)}


def _why(
    solver: Solver, residual: Tensor, surrogate: Tensor, hard: Tensor, settings: Settings
) -> str:
    """One sentence on the constraint that is furthest from being met."""
    if solver.counts.indexed and not solver.counts.complete():
        return (
            f"Not every item has been scored yet ({_source(solver)}): finish a pass over the data"
            " in training mode."
        )
    worst, bound = float(residual.amax()), float(surrogate.amax())
    if worst <= TOLERANCE and bound <= TOLERANCE:
        return "All constraints are met."
    if worst <= TOLERANCE:
        return (
            "All constraints are met by hard counts. By the surrogates, whose bound is what"
            f" certifies, one is still unmet by {bound:.3g}."
        )
    unmet = f"A constraint is unmet by {worst:.3g} (hard counts)"
    price = float(solver.mu[int(residual.amax(-1).argmax())].amax())
    stuck = price >= settings.max_multiplier or solver.stalled()
    return unmet + _why_unmet(solver, hard, price, stuck)


def _why_unmet(solver: Solver, hard: Tensor, price: float, stuck: bool) -> str:
    """`price`: the multiplier of the furthest constraint; `stuck`: nothing moves any more."""
    area = solver.program.area
    if area is not None and area.missing(hard) <= 0:
        return " though the trapezoids between the anchors show it: pass more `anchors`."
    if float(hard[:, 0].amax()) < SILENT:
        return (
            ": hardly any positive scores above the threshold. Give the scorer a bias term or train"
            " it on cross-entropy first."
        )
    if solver.threshold is not None and not bool(solver.threshold.any()):
        return (
            ", and no threshold has moved from 0: add `primal_groups(lr)` to the optimiser, or"
            " train longer."
        )
    if stuck:
        return (
            f" and no longer falls though its multiplier is at {price:.3g}: the scorer seems unable"
            " to meet it. Ask for less, or give the scorer more capacity."
        )
    return " and still moving: train longer or raise `dual_lr`."
