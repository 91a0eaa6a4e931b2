"""One test per message of the S-measures and their metrics: what was wrong, what came, the
repair.
"""

import pytest
import torch

from evalgrad import (
    ROCAUC,
    FBeta,
    PrecisionAtRecall,
    RecallAtPrecision,
    SizeHead,
    SizeLabels,
    majority_size_labels,
    metrics,
    project_onto_ceiling,
)

N = 200
Y, INDEX = torch.arange(N) % 3 == 0, torch.arange(N)
GOOD = (torch.zeros(N), Y)


@pytest.mark.parametrize(
    ("call", "kind", "match"),
    [
        (
            lambda: metrics.roc_auc(torch.zeros(3), torch.full((3,), 0.3)),
            ValueError,
            "`target` must be 0 or 1, or bool; got the label 0.3.*`target > 0.5`",
        ),
        (
            lambda: metrics.roc_auc(torch.zeros(3), torch.zeros(2).long()),
            ValueError,
            r"`target` must be of shape \(3,\)",
        ),
        (
            lambda: metrics.roc_auc(torch.zeros(3), torch.tensor([0, 1, 2])),
            ValueError,
            "`target` must be 0 or 1",
        ),
        (
            lambda: metrics.roc_auc(torch.zeros(3), torch.ones(3).bool(), mask=torch.full((3,), 2)),
            ValueError,
            "`mask` must be 0 or 1, or bool; got the label 2.*`mask > 0`",
        ),
        (
            lambda: metrics.precision_at_recall(torch.zeros(3), torch.ones(3).bool(), recall=90),
            ValueError,
            "`recall` must be finite and above 0 and at most 1; got 90. .* not in per cent",
        ),
        (
            lambda: metrics.pr_auc(torch.zeros(3), torch.ones(3).bool(), reduction="sum"),
            ValueError,
            "`reduction` must be one of 'mean', 'none'",
        ),
        (
            lambda: metrics.roc_auc(torch.zeros(3), torch.ones(3).bool(), ties="average"),
            ValueError,
            "roc_auc: `ties` must be one of 'standard', 'worst'; got 'average'",
        ),
        (
            lambda: metrics.fbeta_score(torch.zeros(3), torch.ones(3).bool(), beta=0),
            ValueError,
            "`beta`",
        ),
    ],
)
def test_messages_of_metrics(call, kind, match):
    with pytest.raises(kind, match=match):
        call()


@pytest.mark.parametrize(
    ("call", "kind", "match"),
    [
        (lambda: FBeta(0.0), ValueError, "`beta` must be finite and above 0"),
        (lambda: FBeta(labels=torch.zeros(5, dtype=torch.long)), ValueError, "without positives"),
        (
            lambda: FBeta(labels=torch.ones(5, dtype=torch.long)),
            ValueError,
            "without positives or negatives",
        ),
        (lambda: FBeta(labels=torch.zeros(5)), TypeError, "`labels` must be bool or integer"),
        (lambda: FBeta(solver="newton"), ValueError, "`solver` must be one of"),
        (lambda: FBeta(surrogate="ramp"), ValueError, "`surrogate` must be one of"),
        (lambda: FBeta(solver="lagrangian"), ValueError, "`labels` must be given"),
        (
            lambda: FBeta(labels=Y, solver="lagrangian", at_least=0.5),
            ValueError,
            "`at_least` must be used",
        ),
        (lambda: FBeta(speed=1), TypeError, "`speed` is not an option"),
        (lambda: FBeta(dual_lr=0), ValueError, "`dual_lr` must be finite and above 0"),
        (lambda: FBeta(momentum=1), ValueError, "`momentum` must be in"),
        (lambda: FBeta(augment=-1), ValueError, "`augment` must be"),
        (lambda: PrecisionAtRecall(80), ValueError, "`recall` must be in"),
        (lambda: RecallAtPrecision(0.5, at_least=1.5), ValueError, "`at_least` must be in"),
        (lambda: ROCAUC([0.5, 0.2]), ValueError, "`anchors` must be"),
        (
            lambda: FBeta(labels=Y)(GOOD[0].long(), Y),
            TypeError,
            "`scores` must be a floating-point tensor",
        ),
        (
            lambda: FBeta(labels=Y)(GOOD[0], Y.float()),
            TypeError,
            "`target` must be an integer or bool tensor",
        ),
        (lambda: FBeta(labels=Y)(torch.zeros(N, 1), Y), ValueError, "`scores` must have shape"),
        (lambda: FBeta(labels=Y)(GOOD[0], Y.long() + 1), ValueError, "`target` must be in 0..1"),
        (lambda: FBeta()(*GOOD, index=INDEX), ValueError, "needs `labels`"),
        (lambda: FBeta(labels=Y, solver="lagrangian")(*GOOD), ValueError, "`index` must be given"),
        (lambda: FBeta(labels=Y)(*GOOD, index=INDEX + 1), ValueError, "`index` must lie in"),
        (lambda: FBeta(labels=Y)(*GOOD, index=INDEX.flip(0)), ValueError, "agree with `labels`"),
    ],
)
def test_messages_of_modules(call, kind, match):
    with pytest.raises(kind, match=match):
        call()


@pytest.mark.parametrize(
    ("args", "rho", "kind", "match"),
    [
        ((torch.zeros(3, dtype=torch.long), torch.tensor(0)), 1.0, TypeError, "floating point"),
        ((torch.zeros(2, 3), torch.tensor(0.0)), 1.0, ValueError, "leading shape"),
        ((torch.zeros(3), torch.tensor(0.0)), 0.0, ValueError, "`rho` must be finite and above 0"),
    ],
)
def test_messages_of_projection(args, rho, kind, match):
    with pytest.raises(kind, match=match):
        project_onto_ceiling(*args, rho=rho)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: SizeHead(3, groups=1), "`groups` must be"),
        (lambda: SizeHead(3)(torch.zeros(2, 4)), "`features` must be"),
        (lambda: SizeLabels()(torch.zeros(2, 4)), "must be fitted"),
        (lambda: SizeLabels().fit(torch.zeros(4)), "`masks` must be"),
        (lambda: majority_size_labels(torch.tensor([[3]]), classes=3), "`target` must lie"),
    ],
)
def test_messages_of_size_head(call, match):
    with pytest.raises(ValueError, match=match):
        call()
