"""S-measures as modules: F-beta, precision at recall, recall at precision, sensitivity at
specificity; `areas` has those under curves.

Each is used as a regulariser, `loss = ce + alpha * reg(scores, target, index=index)`, or, with
`at_least=`, as a constraint whose multipliers are handled inside. With the corrections of
docs/s_measures.md: `programs` holds the measures, `ratio` (default) and `lagrangian` the two ways
to optimise them, `module` what all classes share.

    reg = FBeta(labels=train_labels, solver="lagrangian")
    primal = torch.optim.SGD(reg.primal_groups(lr=0.01))
    for x, target, index in loader:
        loss = F.cross_entropy(...) + alpha * reg(scores, target, index=index)
        loss.backward()
        optimizer.step()
        # "ratio" needs none of these, and `primal` for the areas alone
        primal.step()
        reg.project_()
        reg.dual_step()
"""

from typing import TYPE_CHECKING

from evalgrad.s_measures import programs
from evalgrad.s_measures.module import Options, SMeasure

if TYPE_CHECKING:  # known to every type checker; `typing` has it from Python 3.11
    from typing_extensions import Unpack


class FBeta(SMeasure):
    """F-beta at threshold 0; lower is better.

    The value, with either solver, is V = (beta^2 + F) / T, where T and F are the surrogate numbers
    of true and false positives, divided by the number of positives: on the whole data F_beta >= (1
    + beta^2) / (1 + V) if T > 0, and V = beta^2 once all items are beyond the margin. On a batch V
    is an estimate. The gradient is that of the solver: for "ratio" of F - v T, v the V of the whole
    data, which is T times that of V; for "lagrangian" of the Lagrangian.

    It was not shown to beat cross-entropy with a threshold tuned on validation data; do not use it
    where most batches have no positive (docs/s_measures.md, "On imbalanced tables").

    Args:
        beta: > 0, weight of recall against precision.
        at_least: make it a constraint F_beta >= at_least instead: the loss vanishes while hard
            counts meet it.
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
    """Precision at a recall of at least `recall`. The value is the number of false positives per
    positive.

    It was not shown to beat cross-entropy on imbalanced tables, after 15 passes or 60
    (docs/s_measures.md says what to use it for).

    Args:
        recall: fraction of the positives that must be found, in (0, 1].
        at_least: make it a constraint instead: precision >= at_least and recall >= `recall`.
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
        >>> reg = PrecisionAtRecall(0.9, labels=[1, 0, 0, 1])
        >>> reg(torch.tensor([2.0, -2.0, -1.0, 1.0]), torch.tensor([1, 0, 0, 1])).item()
        0.0
    """

    program = staticmethod(programs.precision_at_recall)

    def __init__(
        self, recall: float, *, at_least: float | None = None, **options: "Unpack[Options]"
    ) -> None:
        super().__init__({"recall": recall, "at_least": at_least}, options)


class RecallAtPrecision(SMeasure):
    """Recall at a precision of at least `precision`. The value is 1 - recall if the precision is
    reached.

    It was not shown to beat cross-entropy on imbalanced tables, after 15 passes or 60
    (docs/s_measures.md says what to use it for).

    Args:
        precision: fraction of the predicted positives that must be right, in (0, 1).
        at_least: make it a constraint instead: recall >= at_least and precision >= `precision`.
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
        >>> reg = RecallAtPrecision(0.9, labels=[1, 0, 0, 1])
        >>> reg(torch.tensor([2.0, -2.0, -1.0, 1.0]), torch.tensor([1, 0, 0, 1])).item()
        0.0
    """

    program = staticmethod(programs.recall_at_precision)

    def __init__(
        self, precision: float, *, at_least: float | None = None, **options: "Unpack[Options]"
    ) -> None:
        super().__init__({"precision": precision, "at_least": at_least}, options)


class SensitivityAtSpecificity(SMeasure):
    """Sensitivity (recall) at a specificity of at least `specificity`. The value is 1 - sensitivity
    if the specificity is reached.

    Args:
        specificity: fraction of the negatives that must be predicted negative, in (0, 1).
        at_least: make it a constraint instead: sensitivity >= at_least and specificity >=
            `specificity`.
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
        >>> reg = SensitivityAtSpecificity(0.95, labels=[1, 0, 0, 1])
        >>> reg(torch.tensor([2.0, -2.0, -1.0, 1.0]), torch.tensor([1, 0, 0, 1])).item()
        0.0
    """

    program = staticmethod(programs.sensitivity_at_specificity)

    def __init__(
        self, specificity: float, *, at_least: float | None = None, **options: "Unpack[Options]"
    ) -> None:
        super().__init__({"specificity": specificity, "at_least": at_least}, options)
