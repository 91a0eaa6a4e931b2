"""S-measures as modules: F-beta, precision at recall, recall at precision, sensitivity at
specificity, areas under the ROC curve, a part of it, and the PR curve.

Each is used as a regulariser, `loss = ce + alpha * reg(scores, target, index=index)`, or, with
`at_least=`, as a constraint whose multipliers are handled inside. With the corrections of
docs/s_measures.md: `programs` holds the measures, `ratio` (default) and `lagrangian` the two ways
to optimise them, `module` what all classes share.

    reg = FBeta(labels=train_labels, solver="lagrangian")
    primal = torch.optim.SGD(reg.primal_groups(lr=0.01))
    for x, target, index in loader:
        loss = F.cross_entropy(...) + alpha * reg(scores, target, index=index)
        loss.backward()
        optimiser.step()
        # "ratio" needs none of these, and `primal` for the areas alone
        primal.step()
        reg.project_()
        reg.dual_step()
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from evalgrad.s_measures import programs
from evalgrad.s_measures.module import Options, SMeasure

if TYPE_CHECKING:  # known to every type checker; `typing` has it from Python 3.11
    from typing_extensions import Unpack


class FBeta(SMeasure):
    """F-beta at threshold 0; lower is better.

    The value, with either solver, is V = (beta^2 + F) / T, where T are the true and F the false
    positives per positive by the surrogate: on the whole data F_beta >= (1 + beta^2) / (1 + V)
    wherever T > 0, and V = beta^2 once all items lie beyond the margin. On a batch V is an
    estimate. The gradient is that of the solver: for "ratio" of F - v T, v the V of the whole data,
    which is T times that of V; for "lagrangian" of the Lagrangian.

    Args:
        beta: > 0, weight of recall against precision.
        at_least: make it a constraint F_beta >= at_least instead: the loss vanishes while hard
            counts meet it.
        labels: (N,) group of every training item; more than two groups are averaged one-vs-rest.
            None (ratio only): class frequencies and totals are estimated from the batches.
        solver: "ratio", one scalar and any optimiser, or "lagrangian", the paper's tau, lambda,
            epsilon and mu.
        surrogate: "hinge", "square", "cross_entropy" or "margin", the bound on the 0-1 errors.
        dual_lr: step of the multipliers.
        max_multiplier: cap of the multipliers of inequality constraints.
        momentum: forgetting, when no `index` is given: the share of their weight that the totals of
            earlier batches keep at each batch.
        project_every: lagrangian: `project_()` works at every such call.
        augment: lagrangian: penalty of the augmented Lagrangian, 0 for the paper's plain one.
        average: "macro" or "micro" of labels (N, C), which are C tasks; of more than two groups
            also "pairwise". None: macro for groups.
        ignore_index: label of items that do not count, in `labels` and `target`.

    Example:
        >>> import torch
        >>> reg = FBeta(labels=[1, 0, 0, 1])
        >>> scores = torch.tensor([2.0, -2.0, -1.0, 1.0])  # all beyond the margin
        >>> float(reg(scores, torch.tensor([1, 0, 0, 1])))
        1.0
    """

    program = staticmethod(programs.fbeta)

    def __init__(
        self, beta: float = 1.0, *, at_least: float | None = None, **options: "Unpack[Options]"
    ) -> None:
        super().__init__({"beta": beta, "at_least": at_least}, options)


class PrecisionAtRecall(SMeasure):
    """Precision among scorers that find the share `recall` of the positives. The value is the false
    positives per positive.

    `at_least=p` makes it the constraint precision >= p and recall >= `recall`. Other arguments as
    in `FBeta`.
    """

    program = staticmethod(programs.precision_at_recall)

    def __init__(
        self, recall: float, *, at_least: float | None = None, **options: "Unpack[Options]"
    ) -> None:
        super().__init__({"recall": recall, "at_least": at_least}, options)


class RecallAtPrecision(SMeasure):
    """Recall among scorers whose alarms are right to the share `precision`. The value is 1 - recall
    where that is met.

    `at_least=r` makes it the constraint recall >= r and precision >= `precision`. Other arguments
    as in `FBeta`.
    """

    program = staticmethod(programs.recall_at_precision)

    def __init__(
        self, precision: float, *, at_least: float | None = None, **options: "Unpack[Options]"
    ) -> None:
        super().__init__({"precision": precision, "at_least": at_least}, options)


class SensitivityAtSpecificity(SMeasure):
    """Sensitivity (recall) among scorers that tell the share `specificity` of the negatives. The
    value is 1 - sensitivity where that is met.

    `at_least=r` makes it the constraint sensitivity >= r and specificity >= `specificity`. Other
    arguments as in `FBeta`.

    Example:
        >>> import torch
        >>> reg = SensitivityAtSpecificity(0.95, labels=[1, 0, 0, 1])
        >>> reg(torch.tensor([2.0, -2.0, -1.0, 1.0]), torch.tensor([1, 0, 0, 1])).item()
        0.0
    """

    program = staticmethod(programs.sensitivity_at_specificity)

    def __init__(
        self, specificity: float, *, at_least: float | None = None, **options: "Unpack[Options]"
    ) -> None:
        super().__init__({"specificity": specificity, "at_least": at_least}, options)


class ROCAUC(SMeasure):
    """Area under the ROC curve, from below: true-positive rates at the false-positive rates
    `anchors`.

    Every anchor learns its own threshold: give `primal_groups(lr)` to the optimiser. `anchors` is
    their number (evenly spread) or the rates themselves, ascending in (0, 1). `at_least=a` makes it
    the constraint area >= a, by trapezoids between the anchors. Other arguments as in `FBeta`.
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

    `anchors` as in `ROCAUC`, ascending in (0, `max_fpr`); so are the learned thresholds and the
    other arguments.

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

    Every anchor learns its own threshold, as in `ROCAUC`. An anchor that no threshold can reach
    keeps its multiplier at `max_multiplier`; `diagnostics()` says so. Other arguments as in
    `ROCAUC`.
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
