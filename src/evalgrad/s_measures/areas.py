"""S-measures that are areas: under the ROC curve, a part of it, and the precision-recall curve.

Each is a sum over anchors, which are operating points with a threshold of their own; `measures` has
the operating points themselves, and how all of them are used.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from evalgrad.s_measures import programs
from evalgrad.s_measures.module import Options, SMeasure

if TYPE_CHECKING:  # known to every type checker; `typing` has it from Python 3.11
    from typing_extensions import Unpack


class ROCAUC(SMeasure):
    """Area under the ROC curve, from below: true-positive rates at the false-positive rates
    `anchors`.

    Every anchor learns its own threshold: add `primal_groups(lr)` to the optimiser.

    Args:
        anchors: their number (evenly spread), or the rates themselves, ascending in (0, 1).
        at_least: make it a constraint instead: area >= at_least, by trapezoids between the anchors.
        labels: (N,) group of every training item; more than two groups are averaged one-vs-rest.
            None (ratio only): class frequencies and totals are estimated from the batches.
        solver: "ratio" (default), one scalar and any optimiser, or "lagrangian", the paper's tau,
            lambda, epsilon and mu.
        surrogate: "hinge" (default), "square", "cross_entropy" or "margin", the bound on the 0-1
            errors.
        dual_lr: step of the multipliers, 0.2 by default.
        max_multiplier: cap of the multipliers of inequality constraints, 100 by default.
        momentum: decay of the totals if no `index` is given: at each batch the totals of earlier
            batches are multiplied by it, 0.98 by default.
        project_every: lagrangian: `project_()` projects only at every n-th call, 1 by default.
        augment: lagrangian: penalty of the augmented Lagrangian, 5 by default, 0 for the paper's
            plain one.
        average: "macro" or "micro" of labels (N, C), which are C tasks; of more than two groups
            also "pairwise". None: macro for groups.
        ignore_index: label of items to ignore, in `labels` and `target`.

    Example:
        >>> reg = ROCAUC(4, labels=[1, 0, 0, 1])
        >>> reg(torch.tensor([2.0, -2.0, -1.0, 1.0]), torch.tensor([1, 0, 0, 1])).item()
        0.0
    """

    program = staticmethod(programs.roc_area)

    def __init__(
        self,
        anchors: int | Sequence[float] = 10,
        *,
        at_least: float | None = None,
        **options: "Unpack[Options]",
    ) -> None:
        super().__init__({"anchors": anchors, "at_least": at_least}, options)


class PartialROCAUC(SMeasure):
    """Area under the ROC curve up to the false-positive rate `max_fpr`, standardised by McClish, as
    `metrics.partial_roc_auc`.

    Every anchor learns its own threshold, as in `ROCAUC`.

    Args:
        max_fpr: the false-positive rate at which the area ends, in (0, 1).
        anchors: their number (evenly spread), or the rates themselves, ascending in (0, `max_fpr`).
        at_least: make it a constraint instead: area >= at_least, by trapezoids between the anchors.
        labels: (N,) group of every training item; more than two groups are averaged one-vs-rest.
            None (ratio only): class frequencies and totals are estimated from the batches.
        solver: "ratio" (default), one scalar and any optimiser, or "lagrangian", the paper's tau,
            lambda, epsilon and mu.
        surrogate: "hinge" (default), "square", "cross_entropy" or "margin", the bound on the 0-1
            errors.
        dual_lr: step of the multipliers, 0.2 by default.
        max_multiplier: cap of the multipliers of inequality constraints, 100 by default.
        momentum: decay of the totals if no `index` is given: at each batch the totals of earlier
            batches are multiplied by it, 0.98 by default.
        project_every: lagrangian: `project_()` projects only at every n-th call, 1 by default.
        augment: lagrangian: penalty of the augmented Lagrangian, 5 by default, 0 for the paper's
            plain one.
        average: "macro" or "micro" of labels (N, C), which are C tasks; of more than two groups
            also "pairwise". None: macro for groups.
        ignore_index: label of items to ignore, in `labels` and `target`.

    Example:
        >>> import torch
        >>> reg = PartialROCAUC(0.1, anchors=4, labels=[1, 0, 0, 1])
        >>> reg(torch.tensor([2.0, -2.0, -1.0, 1.0]), torch.tensor([1, 0, 0, 1])).item()
        0.0
    """

    program = staticmethod(programs.partial_roc_area)

    def __init__(
        self,
        max_fpr: float,
        *,
        anchors: int | Sequence[float] = 5,
        at_least: float | None = None,
        **options: "Unpack[Options]",
    ) -> None:
        super().__init__({"max_fpr": max_fpr, "anchors": anchors, "at_least": at_least}, options)


class PRAUC(SMeasure):
    """Area under the interpolated precision-recall curve, from below: recalls at the precisions
    `anchors`.

    Every anchor learns its own threshold, as in `ROCAUC`. If no threshold can reach an anchor, its
    multiplier stays at `max_multiplier`, and `diagnostics()` says so.

    Args:
        anchors: their number (evenly spread), or the precisions themselves, ascending in (0, 1).
        at_least: make it a constraint instead: area >= at_least, by trapezoids between the anchors.
        labels: (N,) group of every training item; more than two groups are averaged one-vs-rest.
            None (ratio only): class frequencies and totals are estimated from the batches.
        solver: "ratio" (default), one scalar and any optimiser, or "lagrangian", the paper's tau,
            lambda, epsilon and mu.
        surrogate: "hinge" (default), "square", "cross_entropy" or "margin", the bound on the 0-1
            errors.
        dual_lr: step of the multipliers, 0.2 by default.
        max_multiplier: cap of the multipliers of inequality constraints, 100 by default.
        momentum: decay of the totals if no `index` is given: at each batch the totals of earlier
            batches are multiplied by it, 0.98 by default.
        project_every: lagrangian: `project_()` projects only at every n-th call, 1 by default.
        augment: lagrangian: penalty of the augmented Lagrangian, 5 by default, 0 for the paper's
            plain one.
        average: "macro" or "micro" of labels (N, C), which are C tasks; of more than two groups
            also "pairwise". None: macro for groups.
        ignore_index: label of items to ignore, in `labels` and `target`.

    Example:
        >>> reg = PRAUC(4, labels=[1, 0, 0, 1])
        >>> reg(torch.tensor([2.0, -2.0, -1.0, 1.0]), torch.tensor([1, 0, 0, 1])).item()
        0.0
    """

    program = staticmethod(programs.pr_area)

    def __init__(
        self,
        anchors: int | Sequence[float] = 10,
        *,
        at_least: float | None = None,
        **options: "Unpack[Options]",
    ) -> None:
        super().__init__({"anchors": anchors, "at_least": at_least}, options)
