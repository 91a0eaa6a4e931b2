"""The five S-measures written as one kind of problem: linear in the rates, one row per anchor.

The rates of a scorer at a threshold are (T, F, R, 1): true positives per positive, false positives
per positive, false positives per negative. Every measure is then

    min  sum_k share_k * objective_k . rates_k     s.t.  constraint_kj . rates_k <= 0  for all j,

and the solvers put surrogate counts in the place of the counts. F-beta is the one fractional
program: after the change of variables epsilon = 1/T its constraint is the equality mean(tau) = 1.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from evalgrad import metrics
from evalgrad._errors import describe, fail

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
    certificate: Callable[[Tensor], Tensor]
    metric: Callable[[Tensor, Tensor], Tensor]
    fractional: bool = False  # F-beta: divide by T instead of constraining it
    required: bool = False  # `at_least`: no objective, multipliers follow the hard counts
    anchored: bool = False  # an integral measure: every row learns its own threshold


def fbeta(beta: float, at_least: float | None) -> Program:
    """F_beta = (1 + beta^2) / (1 + V), V = (beta^2 + F) / T. Minimise beta^2 eps + eps F s.t.
    mean(tau) - 1 = 0.
    """
    value: dict[str, Any] = {
        "certificate": partial(_fbeta_value, beta=beta),
        "metric": partial(metrics.fbeta_score, beta=beta, ties="worst"),
    }
    if at_least is None:
        return _single([0, 1, 0, beta**2], [[1, 0, 0, -1]], fractional=True, **value)
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


def roc_area(anchors: int | Sequence[float]) -> Program:
    """sum of (a_{k+1} - a_k) * (TPR at FPR <= a_k), a_{K+1} = 1: the staircase of the anchors below
    the ROC curve.
    """
    points = anchor_rates("ROCAUC", "anchors", anchors)
    rows = torch.tensor([[0, 0, 1, -a] for a in points])
    metric = partial(metrics.roc_auc, ties="worst")
    return _anchored(rows, torch.tensor([*points, 1.0]).diff(), metric)


def pr_area(anchors: int | Sequence[float]) -> Program:
    """sum of (p_k - p_{k-1}) * (recall at precision >= p_k), p_0 = 0: the staircase below the PR
    curve.
    """
    points = anchor_rates("PRAUC", "anchors", anchors)
    rows = torch.tensor([_precision_row(p) for p in points])
    return _anchored(rows, torch.tensor([0.0, *points]).diff(), metrics.pr_auc)


def anchor_rates(function: str, argument: str, anchors: object) -> list[float]:
    """The rates of a number of anchors, evenly spread, or those given, ascending in (0, 1)."""
    points: list[float] = []
    if isinstance(anchors, int) and not isinstance(anchors, bool):
        points = [k / (anchors + 1) for k in range(1, anchors + 1)]
    elif isinstance(anchors, Iterable) and not isinstance(anchors, str):
        points = [float(a) for a in anchors]
    if not points or points != sorted(set(points)) or not (points[0] > 0 and points[-1] < 1):
        must = "a number >= 1 or rates ascending within (0, 1)"
        fail(ValueError, function, argument, must, describe(anchors), "Try 10.")
    return points


def _recall_row(recall: float) -> list[float]:
    return [-1, 0, 0, recall]  # recall - T <= 0


def _precision_row(precision: float) -> list[float]:
    return [precision - 1, precision, 0, 0]  # precision F - (1 - precision) T <= 0


def _single(objective: list[float], constraints: list[list[float]], **rest: Any) -> Program:
    rows = torch.tensor([constraints], dtype=torch.float32)
    return Program(torch.tensor([objective], dtype=torch.float32), rows, torch.ones(1), **rest)


def _anchored(rows: Tensor, share: Tensor, metric: Callable[[Tensor, Tensor], Tensor]) -> Program:
    objective = torch.tensor([[-1.0, 0.0, 0.0, 1.0]]).repeat(len(rows), 1)
    certificate = partial(_area_value, rows=rows, share=share)
    return Program(objective, rows.unsqueeze(1), share, certificate, metric, anchored=True)


def _fbeta_value(rates: Tensor, beta: float) -> Tensor:
    hit, alarms = rates[:, 0].clamp_min(0), rates[:, 1]
    return (1 + beta**2) * hit / (hit + beta**2 + alarms)


def _precision_value(rates: Tensor, recall: float) -> Tensor:
    hit, alarms = rates[:, 0], rates[:, 1]
    return torch.where(hit >= recall - SLACK, hit / (hit + alarms), 0)


def _recall_value(rates: Tensor, precision: float) -> Tensor:
    hit, alarms = rates[:, 0], rates[:, 1]
    return torch.where(precision * alarms <= (1 - precision) * hit + SLACK, hit.clamp_min(0), 0)


def _area_value(rates: Tensor, rows: Tensor, share: Tensor) -> Tensor:
    reached = (rates * rows.to(rates)).sum(-1) <= SLACK
    return share.to(rates) * torch.where(reached, rates[:, 0].clamp_min(0), 0)
