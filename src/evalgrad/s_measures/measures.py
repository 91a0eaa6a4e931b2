"""S-measures as modules: F-beta, precision at recall, recall at precision, areas under the ROC and
the PR curve.

Each is used as a regulariser, `loss = ce + alpha * reg(scores, target, index=index)`, or, with
`at_least=`, as a constraint whose multipliers are handled inside. With the corrections of
docs/s_measures.md: `programs` holds the measures, `ratio` (default) and `lagrangian` the two ways
to optimise them, `groups` the methods that all five classes share.

    reg = FBeta(labels=train_labels, solver="lagrangian")
    primal = torch.optim.SGD(reg.primal_groups(lr=0.1))
    for x, target, index in loader:
        loss = F.cross_entropy(...) + alpha * reg(scores, target, index=index) loss.backward();
        optimiser.step(); primal.step(); ... reg.project_(); reg.dual_step()
        # "ratio" needs neither, and no `primal` but for anchors
"""

from collections.abc import Sequence

from torch import nn
from typing_extensions import Unpack

from evalgrad._errors import fail
from evalgrad._options import number
from evalgrad.s_measures import groups, programs
from evalgrad.s_measures.groups import Labels, Options


class FBeta(nn.Module):
    """F-beta at threshold 0. The value is V with F_beta >= (1 + beta^2) / (1 + V): lower is better.

    Args:
        beta: > 0, weight of recall against precision.
        labels: (N,) group of every training item; more than two groups are averaged one-vs-rest.
            None (ratio only): class frequencies and totals are estimated from the batches.
        solver: "ratio", one scalar and any optimiser, or "lagrangian", the paper's tau, lambda,
            epsilon and mu.
        surrogate: "hinge", "square", "cross_entropy" or "margin", the bound on the 0-1 errors.
        at_least: make it a constraint F_beta >= at_least instead: the loss vanishes while hard
            counts meet it.
        options: see `groups.Options`.

    Example:
        >>> import torch
        >>> reg = FBeta(labels=[1, 0, 0, 1])
        >>> scores = torch.tensor([2.0, -2.0, -1.0, 1.0])  # all beyond the margin
        >>> float(reg(scores, torch.tensor([1, 0, 0, 1])))
        0.0
    """

    forward, diagnostics, primal_groups = groups.forward, groups.diagnostics, groups.primal_groups
    project_, dual_step, extra_repr = groups.project_, groups.dual_step, groups.extra_repr

    def __init__(
        self,
        beta: float = 1.0,
        *,
        labels: Labels = None,
        solver: str = "ratio",
        surrogate: str = "hinge",
        at_least: float | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__()
        number(above=0, repair="Use 1.0 for F1.")("FBeta", "beta", beta)
        _check_rate("FBeta", "at_least", at_least)
        self.options = {
            "beta": beta,
            "solver": solver,
            "surrogate": surrogate,
            "at_least": at_least,
        }
        self.groups = groups.build(
            "FBeta", programs.fbeta(beta, at_least), labels, solver, surrogate, options
        )


class PrecisionAtRecall(nn.Module):
    """Precision among scorers that find the share `recall` of the positives. The value is the false
    positives per positive.

    `at_least=p` makes it the constraint precision >= p and recall >= `recall`. Other arguments as
    in `FBeta`.
    """

    forward, diagnostics, primal_groups = groups.forward, groups.diagnostics, groups.primal_groups
    project_, dual_step, extra_repr = groups.project_, groups.dual_step, groups.extra_repr

    def __init__(
        self,
        recall: float,
        *,
        labels: Labels = None,
        solver: str = "ratio",
        surrogate: str = "hinge",
        at_least: float | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__()
        name = "PrecisionAtRecall"
        _check_rate(name, "recall", recall)
        _check_rate(name, "at_least", at_least)
        self.options = {
            "recall": recall,
            "solver": solver,
            "surrogate": surrogate,
            "at_least": at_least,
        }
        self.groups = groups.build(
            name, programs.precision_at_recall(recall, at_least), labels, solver, surrogate, options
        )


class RecallAtPrecision(nn.Module):
    """Recall among scorers whose alarms are right to the share `precision`. The value is 1 - recall
    where that is met.

    `at_least=r` makes it the constraint recall >= r and precision >= `precision`. Other arguments
    as in `FBeta`.
    """

    forward, diagnostics, primal_groups = groups.forward, groups.diagnostics, groups.primal_groups
    project_, dual_step, extra_repr = groups.project_, groups.dual_step, groups.extra_repr

    def __init__(
        self,
        precision: float,
        *,
        labels: Labels = None,
        solver: str = "ratio",
        surrogate: str = "hinge",
        at_least: float | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__()
        name = "RecallAtPrecision"
        _check_rate(name, "precision", precision)
        _check_rate(name, "at_least", at_least)
        self.options = {
            "precision": precision,
            "solver": solver,
            "surrogate": surrogate,
            "at_least": at_least,
        }
        self.groups = groups.build(
            name,
            programs.recall_at_precision(precision, at_least),
            labels,
            solver,
            surrogate,
            options,
        )


class ROCAUC(nn.Module):
    """Area under the ROC curve, from below: true-positive rates at the false-positive rates
    `anchors`.

    Every anchor learns its own threshold: give `primal_groups(lr)` to the optimiser. `anchors` is
    their number (evenly spread) or the rates themselves, ascending in (0, 1). Other arguments as in
    `FBeta`.
    """

    forward, diagnostics, primal_groups = groups.forward, groups.diagnostics, groups.primal_groups
    project_, dual_step, extra_repr = groups.project_, groups.dual_step, groups.extra_repr

    def __init__(
        self,
        anchors: int | Sequence[float] = 10,
        *,
        labels: Labels = None,
        solver: str = "ratio",
        surrogate: str = "hinge",
        **options: Unpack[Options],
    ) -> None:
        super().__init__()
        points = _anchors("ROCAUC", anchors)
        self.options = {"anchors": len(points), "solver": solver, "surrogate": surrogate}
        self.groups = groups.build(
            "ROCAUC", programs.roc_area(points), labels, solver, surrogate, options
        )


class PRAUC(nn.Module):
    """Area under the interpolated precision-recall curve, from below: recalls at the precisions
    `anchors`.

    Every anchor learns its own threshold, as in `ROCAUC`. An anchor that no threshold can reach
    keeps its multiplier at `max_multiplier`; `diagnostics()` says so. Other arguments as in
    `FBeta`.
    """

    forward, diagnostics, primal_groups = groups.forward, groups.diagnostics, groups.primal_groups
    project_, dual_step, extra_repr = groups.project_, groups.dual_step, groups.extra_repr

    def __init__(
        self,
        anchors: int | Sequence[float] = 10,
        *,
        labels: Labels = None,
        solver: str = "ratio",
        surrogate: str = "hinge",
        **options: Unpack[Options],
    ) -> None:
        super().__init__()
        points = _anchors("PRAUC", anchors)
        self.options = {"anchors": len(points), "solver": solver, "surrogate": surrogate}
        self.groups = groups.build(
            "PRAUC", programs.pr_area(points), labels, solver, surrogate, options
        )


def _anchors(name: str, anchors: int | Sequence[float]) -> list[float]:
    points = (
        [k / (anchors + 1) for k in range(1, anchors + 1)]
        if isinstance(anchors, int)
        else [float(a) for a in anchors]
    )
    if not points or points != sorted(set(points)) or not (points[0] > 0 and points[-1] < 1):
        fail(
            ValueError,
            name,
            "anchors",
            "a number >= 1 or rates ascending within (0, 1)",
            repr(anchors),
            "Try 10.",
        )
    return points


def _check_rate(name: str, argument: str, value: float | None) -> None:
    if value is not None and not 0 < value < 1:
        fail(
            ValueError,
            name,
            argument,
            "in (0, 1)",
            repr(value),
            "Give it as a fraction, not in per cent.",
        )
