"""The S-measures written as one kind of problem: linear in the rates, one row per anchor.

The rates of a scorer at a threshold are (T, F, R, 1): true positives per positive, false positives
per positive, false positives per negative. Every measure is then

    min  sum_k share_k * objective_k . rates_k     s.t.  constraint_kj . rates_k <= 0  for all j,

and the solvers put surrogate counts in the place of the counts. F-beta is the one fractional
program: after the change of variables epsilon = 1/T its constraint is the equality mean(tau) = 1.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from evalgrad import metrics
from evalgrad._errors import describe, fail
from evalgrad._options import integer
from evalgrad.s_measures.trapezoids import RequiredArea, shown_area, trapezoid_shares

Valuation = Callable[[Tensor], Tensor]
Metric = Callable[[Tensor, Tensor], Tensor]
MOST_ANCHORS = 4096  # each learns a threshold, and has surrogates of its own
SLACK = 1e-6  # a rate this close to its bound has reached it: float32 totals


@dataclass(frozen=True)
class Program:
    """One measure: coefficients over the rates, and how rates and scores are valued.

    `certificate` maps rates (K, 4) to what each row contributes to the measure: summed, a lower
    bound of it from surrogate counts, its value at the trained thresholds from hard counts.
    `metric` is the exact measure of (scores, target).
    """

    objective: Tensor  # (K, 4)
    constraints: Tensor  # (K, J, 4)
    share: Tensor  # (K,) weight of each row in the loss
    certificate: Valuation
    metric: Metric
    fractional: bool = False  # F-beta: divide by T instead of constraining it
    square: float = 0.0  # its beta^2
    at_zero: bool = False  # F-beta, required too: a measure at threshold 0, not over all thresholds
    required: bool = False  # `at_least`: no objective, multipliers follow the hard counts
    anchored: bool = False  # an integral measure: every row learns its own threshold
    area: RequiredArea | None = None  # then the last constraint of the rows is one, their mean


def fbeta(beta: float, at_least: float | None) -> Program:
    """F_beta = (1 + beta^2) / (1 + V), V = (beta^2 + F) / T. Minimise beta^2 eps + eps F s.t.
    mean(tau) - 1 = 0.
    """
    value: dict[str, Any] = {
        "certificate": partial(_fbeta_value, beta=beta),
        "metric": partial(metrics.fbeta_score, beta=beta, ties="worst"),
        "at_zero": True,
    }
    if at_least is None:
        rows: Any = ([0, 1, 0, beta**2], [[1, 0, 0, -1]])
        return _single(*rows, fractional=True, square=beta**2, **value)
    # F_beta >= c multiplied out: c (beta^2 + F) - (1 + beta^2 - c) T <= 0
    row = [at_least - 1 - beta**2, at_least, 0, at_least * beta**2]
    return _single([0, 0, 0, 0], [row], required=True, **value)


def precision_at_recall(recall: float, at_least: float | None) -> Program:
    """Fewest false positives among the scorers with T >= recall; required: both recall and
    precision as asked.
    """
    value: dict[str, Any] = {
        "certificate": partial(_precision_value, recall=recall),
        "metric": partial(metrics.precision_at_recall, recall=recall),
    }
    if at_least is None:
        return _single([0, 1, 0, 0], [_recall_row(recall)], **value)
    return _single(
        [0, 0, 0, 0], [_recall_row(recall), _precision_row(at_least)], required=True, **value
    )


def recall_at_precision(precision: float, at_least: float | None) -> Program:
    """Most true positives among the scorers with T / (T + F) >= precision; the objective reads as 1
    - recall.
    """
    value: dict[str, Any] = {
        "certificate": partial(_recall_value, precision=precision),
        "metric": partial(metrics.recall_at_precision, precision=precision),
    }
    if at_least is None:
        return _single([-1, 0, 0, 1], [_precision_row(precision)], **value)
    return _single(
        [0, 0, 0, 0], [_recall_row(at_least), _precision_row(precision)], required=True, **value
    )


def sensitivity_at_specificity(specificity: float, at_least: float | None) -> Program:
    """Most true positives among the scorers with R <= 1 - specificity; the objective reads as 1 -
    sensitivity.
    """
    value: dict[str, Any] = {
        "certificate": partial(_sensitivity_value, most=1 - specificity),
        "metric": partial(metrics.sensitivity_at_specificity, specificity=specificity),
    }
    if at_least is None:
        return _single([-1, 0, 0, 1], [_alarm_row(1 - specificity)], **value)
    rows = [_recall_row(at_least), _alarm_row(1 - specificity)]
    return _single([0, 0, 0, 0], rows, required=True, **value)


def roc_area(anchors: int | Sequence[float], at_least: float | None) -> Program:
    """sum of (a_{k+1} - a_k) * (TPR at FPR <= a_k), a_{K+1} = 1: the staircase of the anchors below
    the ROC curve. Required: the trapezoids between (0, 0), the anchors and (1, 1).
    """
    points = anchor_rates("ROCAUC", "anchors", anchors)
    rows = [_alarm_row(a) for a in points]
    staircase = torch.tensor([*points, 1.0]).diff()
    metric = partial(metrics.roc_auc, ties="worst")
    certificate = partial(_area_value, rows=torch.tensor(rows), share=staircase)
    if at_least is None:
        return _anchored(rows, staircase, certificate, metric)
    wanted = at_least - (1 - points[-1]) / 2
    share = trapezoid_shares([0.0, *points, 1.0])
    area = RequiredArea(at_least, shown_area)
    return _required_area("ROCAUC", rows, share, wanted, area, certificate, metric)


def partial_roc_area(
    max_fpr: float, anchors: int | Sequence[float], at_least: float | None
) -> Program:
    """`roc_area` up to `max_fpr`, standardised by McClish; the last trapezoid is level."""
    points = anchor_rates("PartialROCAUC", "anchors", anchors, end=max_fpr)
    rows = [_alarm_row(a) for a in points]
    staircase = torch.tensor([*points, max_fpr]).diff()
    metric = partial(metrics.partial_roc_auc, max_fpr=max_fpr, ties="worst")
    certificate = partial(_partial_value, rows=torch.tensor(rows), share=staircase, max_fpr=max_fpr)
    if at_least is None:
        return _anchored(rows, staircase, certificate, metric)
    share = trapezoid_shares([0.0, *points, max_fpr])
    share[-1] += (max_fpr - points[-1]) / 2
    least = max_fpr**2 / 2
    wanted = least + (2 * at_least - 1) * (max_fpr - least)
    shown = partial(_shown_partial, max_fpr=max_fpr)
    area = RequiredArea(at_least, shown)
    return _required_area("PartialROCAUC", rows, share, wanted, area, certificate, metric)


def pr_area(anchors: int | Sequence[float], at_least: float | None) -> Program:
    """sum of (p_k - p_{k-1}) * (recall at precision >= p_k), p_0 = 0: the staircase below the PR
    curve. Required: the trapezoids between recall 1 at precision 0, the anchors and recall 0 at 1.
    """
    points = anchor_rates("PRAUC", "anchors", anchors)
    rows = [_precision_row(p) for p in points]
    staircase = torch.tensor([0.0, *points]).diff()
    certificate = partial(_area_value, rows=torch.tensor(rows), share=staircase)
    if at_least is None:
        return _anchored(rows, staircase, certificate, metrics.pr_auc)
    share, wanted = trapezoid_shares([0.0, *points, 1.0]), at_least - points[0] / 2
    rise = 2 * float(torch.tensor([0.0, *points, 1.0]).diff().max())  # anchors hover
    area = RequiredArea(at_least, partial(shown_area, of_predicted=True, rise=rise))
    return _required_area("PRAUC", rows, share, wanted, area, certificate, metrics.pr_auc)


def anchor_rates(function: str, argument: str, anchors: object, *, end: float = 1.0) -> list[float]:
    """The rates of a number of anchors, evenly spread, or those given, ascending in (0, `end`)."""
    points: list[float] = []
    if isinstance(anchors, int) and not isinstance(anchors, bool):
        integer(1, most=MOST_ANCHORS, repair="Try 10.")(function, argument, anchors)
        points = [end * k / (anchors + 1) for k in range(1, anchors + 1)]
    elif isinstance(anchors, Iterable) and not isinstance(anchors, str):
        with suppress(TypeError, ValueError):
            points = [float(a) for a in anchors]
    if not points or points != sorted(set(points)) or not (points[0] > 0 and points[-1] < end):
        must = f"a number >= 1 or rates ascending within (0, {end:g})"
        fail(ValueError, function, argument, must, describe(anchors), "Try 10.")
    return points


def _recall_row(recall: float) -> list[float]:
    return [-1, 0, 0, recall]  # recall - T <= 0


def _precision_row(precision: float) -> list[float]:
    return [precision - 1, precision, 0, 0]  # precision F - (1 - precision) T <= 0


def _alarm_row(rate: float) -> list[float]:
    return [0, 0, 1, -rate]  # R - rate <= 0


def _single(objective: list[float], constraints: list[list[float]], **rest: Any) -> Program:
    rows = torch.tensor([constraints], dtype=torch.float32)
    return Program(torch.tensor([objective], dtype=torch.float32), rows, torch.ones(1), **rest)


def _anchored(
    rows: list[list[float]], share: Tensor, certificate: Valuation, metric: Metric
) -> Program:
    objective = torch.tensor([[-1.0, 0.0, 0.0, 1.0]]).repeat(len(rows), 1)
    constraints = torch.tensor(rows).unsqueeze(1)
    return Program(objective, constraints, share, certificate, metric, anchored=True)


def _required_area(
    name: str,
    rows: list[list[float]],
    share: Tensor,
    wanted: float,
    area: RequiredArea,
    certificate: Valuation,
    metric: Metric,
) -> Program:
    """Each anchor holds its rate, and the mean of the rows `mean - T_k <= 0`, weighted by `share`,
    is one constraint of all: sum share_k T_k >= wanted.
    """
    mean = wanted / float(share.sum())
    if mean >= 1:
        must = (
            f"below {area.at_least - wanted + float(share.sum()):.4g}, the most these anchors can"
            " show"
        )
        repair = "Pass more `anchors`, or some closer to the ends."
        fail(ValueError, name, "at_least", must, repr(area.at_least), repair)
    both = torch.tensor([[row, _recall_row(mean)] for row in rows])
    nothing = torch.zeros(len(rows), 4)
    return Program(
        nothing, both, share, certificate, metric, required=True, anchored=True, area=area
    )


def _fbeta_value(rates: Tensor, beta: float) -> Tensor:
    hit, alarms = rates[:, 0].clamp_min(0), rates[:, 1]
    return (1 + beta**2) * hit / (hit + beta**2 + alarms)


def _precision_value(rates: Tensor, recall: float) -> Tensor:
    hit, alarms = rates[:, 0], rates[:, 1]
    return torch.where(hit >= recall - SLACK, hit / (hit + alarms), 0)


def _recall_value(rates: Tensor, precision: float) -> Tensor:
    hit, alarms = rates[:, 0], rates[:, 1]
    return torch.where(precision * alarms <= (1 - precision) * hit + SLACK, hit.clamp_min(0), 0)


def _sensitivity_value(rates: Tensor, most: float) -> Tensor:
    return torch.where(rates[:, 2] <= most + SLACK, rates[:, 0].clamp_min(0), 0)


def _partial_value(rates: Tensor, rows: Tensor, share: Tensor, max_fpr: float) -> Tensor:
    """Standardised, its constant spread over the rows."""
    area, least = _area_value(rates, rows, share), max_fpr**2 / 2
    return (1 / len(rows) + (area - least / len(rows)) / (max_fpr - least)) / 2


def _shown_partial(rates: Tensor, max_fpr: float) -> Tensor:
    """Standardised."""
    least = max_fpr**2 / 2
    return (1 + (shown_area(rates, end=max_fpr) - least) / (max_fpr - least)) / 2


def _area_value(rates: Tensor, rows: Tensor, share: Tensor) -> Tensor:
    reached = (rates * rows.to(rates)).sum(-1) <= SLACK
    return share.to(rates) * torch.where(reached, rates[:, 0].clamp_min(0), 0)
