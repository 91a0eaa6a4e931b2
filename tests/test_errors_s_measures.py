"""One test per message of the S-measures and their metrics: what was wrong, what came, the
repair.
"""

import warnings

import pytest
import torch

from evalgrad import (
    PRAUC,
    ROCAUC,
    FBeta,
    PartialROCAUC,
    PrecisionAtRecall,
    RecallAtPrecision,
    SensitivityAtSpecificity,
    SizeHead,
    SizeLabels,
    majority_size_labels,
    metrics,
    project_onto_ceiling,
)

N = 200
Y, INDEX = torch.arange(N) % 3 == 0, torch.arange(N)
GOOD = (torch.zeros(N), Y)
G = torch.arange(N) % 3  # three groups


@pytest.mark.parametrize(
    ("call", "kind", "match"),
    [
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
            lambda: metrics.precision_at_recall(torch.zeros(3), torch.ones(3).bool(), recall=90),
            ValueError,
            "`recall` must be finite and above 0 and at most 1; got 90. .* not a percentage",
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
        (lambda: FBeta(labels=[-1, 1, 1]), ValueError, "labels are -1 and 1: pass `labels > 0`"),
        (lambda: FBeta(labels=[0, 255]), ValueError, "255 means positive, pass `labels > 0`"),
        (lambda: FBeta(labels=[0.2, 1.0]), ValueError, "soft labels"),
        (
            lambda: FBeta(labels=[0, 1, 7]),
            ValueError,
            r"`labels.unique\(return_inverse=True\)\[1\]`",
        ),
        (lambda: FBeta(solver="newton"), ValueError, "`solver` must be one of"),
        (lambda: FBeta(surrogate="ramp"), ValueError, "`surrogate` must be one of"),
        (lambda: FBeta(solver="lagrangian"), ValueError, "`labels` must be given"),
        (lambda: FBeta(speed=1), TypeError, "FBeta: `speed` is not an option"),
        (
            lambda: ROCAUC(at_least=0.97),
            ValueError,
            r"`at_least` must be below 0\.9545, the most these anchors can show; .* more `anchors`",
        ),
        (lambda: PartialROCAUC(0.1, anchors=[0.2]), ValueError, r"ascending within \(0, 0\.1\)"),
        (lambda: SensitivityAtSpecificity(95), ValueError, "`specificity` must be .* percentage"),
        (lambda: FBeta(dual_lr=0), ValueError, "`dual_lr` must be finite and above 0"),
        (lambda: FBeta(momentum=1), ValueError, "`momentum` must be finite .* below 1"),
        (lambda: FBeta(augment=-1), ValueError, "`augment` must be"),
        (lambda: FBeta(augment="2"), TypeError, "`augment` must be a number; got '2'"),
        (lambda: FBeta(project_every=0), ValueError, "`project_every` must be at least 1"),
        (lambda: PrecisionAtRecall(80), ValueError, "`recall` must be finite .* fraction"),
        (lambda: RecallAtPrecision(0.5, at_least=1.5), ValueError, "`at_least` must be finite"),
        (lambda: ROCAUC([0.5, 0.2]), ValueError, "`anchors` must be"),
        (lambda: PRAUC("many"), ValueError, "`anchors` must be"),
        (
            lambda: FBeta(labels=Y)(GOOD[0].long(), Y),
            TypeError,
            "`scores` must be a floating-point tensor",
        ),
        (lambda: FBeta(labels=Y)(GOOD[0].numpy(), Y), TypeError, r"`torch.as_tensor\(scores\)`"),
        (lambda: FBeta(labels=Y)(GOOD[0], Y.numpy()), TypeError, r"`torch.as_tensor\(target\)`"),
        (lambda: FBeta(labels=Y)(GOOD[0], Y[1:]), ValueError, "`target` must be of shape"),
        (lambda: FBeta()(GOOD[0], Y[0]), ValueError, r"`target` must be of shape \(200,\)"),
        (lambda: FBeta(labels=Y)(GOOD[0], Y.long() + 1), ValueError, "`target` must be 0 or 1"),
        (lambda: FBeta(labels=Y)(GOOD[0], Y + 0.5), ValueError, "soft labels"),
        (lambda: FBeta(labels=Y)(torch.zeros(N, 3), Y), ValueError, "`labels=` with all of them"),
        (lambda: FBeta()(*GOOD, index=INDEX), ValueError, "`index` must be left out without `lab"),
        (lambda: FBeta(labels=Y)(*GOOD, index=Y), TypeError, "`index` must be an integer tensor"),
        (lambda: FBeta(labels=Y)(*GOOD, index=[1]), TypeError, r"`torch.as_tensor\(index\)`"),
        (lambda: FBeta(labels=Y, solver="lagrangian")(*GOOD), ValueError, "`index` must be given"),
        (
            lambda: FBeta(labels=Y)(*GOOD, index=INDEX + 1),
            ValueError,
            r"`index` must be in 0\.\.199",
        ),
        (
            lambda: FBeta(labels=Y)(*GOOD, index=INDEX.flip(0)),
            ValueError,
            "equal to `labels` at `index`",
        ),
        (lambda: FBeta(labels=G)(torch.zeros(N), G), ValueError, r"must be of shape \(\*, 3\)"),
        (lambda: FBeta(labels=G)(torch.zeros(N, 3), G + 1), ValueError, "the label 3"),
        (lambda: FBeta(labels="text"), TypeError, "FBeta: `labels` must be a tensor, an array"),
        (lambda: FBeta(labels=[None]), TypeError, "FBeta: `labels` must be a tensor, an array"),
        (lambda: FBeta().dual_step(-0.1), ValueError, "dual_step: `lr` must be .* at least 0"),
        (lambda: ROCAUC().primal_groups(-0.1), ValueError, "primal_groups: `lr` must be .* 0"),
        (lambda: ROCAUC().primal_groups("fast"), TypeError, "primal_groups: `lr` must be a number"),
        (
            lambda: FBeta().load_multipliers(FBeta()),
            TypeError,
            r"load_multipliers: `state_dict` must be .*; got FBeta\. Pass `old\.state_dict\(\)`",
        ),
        (lambda: FBeta(labels=Y.to("meta")), ValueError, "`labels` must be a tensor with values"),
        (
            lambda: FBeta(labels=Y)(*GOOD, index=INDEX.to("meta")),
            ValueError,
            "`index` must be on cpu; got a tensor on meta",
        ),
    ],
)
def test_messages_of_modules(call, kind, match):
    with pytest.raises(kind, match=match):
        call()


MEASURES = [
    lambda **o: FBeta(**o),
    lambda **o: PrecisionAtRecall(0.8, **o),
    lambda **o: RecallAtPrecision(0.8, **o),
    lambda **o: SensitivityAtSpecificity(0.8, **o),
    lambda **o: ROCAUC(3, **o),
    lambda **o: PartialROCAUC(0.3, **o),
    lambda **o: PRAUC(3, **o),
]


@pytest.mark.parametrize("make", MEASURES)
@pytest.mark.parametrize("options", [{}, {"labels": Y}, {"labels": G}])
def test_a_target_without_an_axis_gets_a_sentence(make, options):
    scores = torch.zeros(N, 3) if len(options.get("labels", Y).unique()) > 2 else torch.zeros(N)
    with pytest.raises(ValueError, match="`target` must be of shape"):
        make(**options)(scores, torch.tensor(1))


def test_script_gets_a_sentence():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, of its deprecation
        with pytest.raises(RuntimeError, match=r"FBeta: torch.jit.script .* torch.export.export"):
            torch.jit.script(FBeta())


@pytest.mark.parametrize(
    ("scores", "target", "repair", "follow"),
    [
        (torch.zeros(N), Y.long() * 255, "`target > 0`", lambda x, y: (x, y > 0)),
        (torch.zeros(N), Y.long() * 2 - 1, "`target > 0`", lambda x, y: (x, y > 0)),
        (
            torch.zeros(N),
            torch.where(INDEX < 9, -100, Y.long()),
            "pass ignore_index=-100 to the constructor",
            lambda x, y: (x[y != -100], y[y != -100]),
        ),
        (
            torch.zeros(N, 2),
            Y,
            r"`scores\[:, 1\] - scores\[:, 0\]`",
            lambda x, y: (x[:, 1] - x[:, 0], y),
        ),
    ],
)
def test_the_advice_of_a_message_helps(scores, target, repair, follow):
    with pytest.raises(ValueError, match=repair):
        FBeta()(scores, target)
    assert FBeta()(*follow(scores, target)) > 0


@pytest.mark.parametrize(
    ("scores", "target", "repair", "follow"),
    [
        (
            torch.zeros(N, 3),
            torch.nn.functional.one_hot(G),
            r"`target.argmax\(-1\)`",
            lambda x, y: (x, y.argmax(-1)),
        ),
        (
            torch.zeros(20, 3, 10),
            G.view(20, 10),
            r"`scores.movedim\(1, -1\)`",
            lambda x, y: (x.movedim(1, -1), y),
        ),
    ],
)
def test_the_advice_for_groups_helps(scores, target, repair, follow):
    with pytest.raises(ValueError, match=repair):
        FBeta(labels=G)(scores, target)
    assert FBeta(labels=G)(*follow(scores, target)) > 0


@pytest.mark.parametrize(
    ("args", "rho", "kind", "match"),
    [
        (
            (torch.zeros(3, dtype=torch.long), torch.tensor(0)),
            1.0,
            TypeError,
            "a floating-point tensor",
        ),
        ((torch.zeros(3), 0.5), 1.0, TypeError, r"`torch.as_tensor\(epsilon\)`"),
        ((torch.zeros(3), torch.tensor(0).double()), 1.0, TypeError, "of the dtype of `tau`"),
        ((torch.zeros(2, 3), torch.tensor(0.0)), 1.0, ValueError, "one ceiling per row"),
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
        (
            lambda: majority_size_labels(torch.tensor([[3]]), classes=3),
            "`target` must be labels in \\[0, 2\\]",
        ),
    ],
)
def test_messages_of_size_head(call, match):
    with pytest.raises(ValueError, match=match):
        call()


def test_size_labels_of_probabilities_are_refused():
    said = r"`target` must be an integer or bool tensor of labels; got .* shape \(2, 3, 4\)"
    with pytest.raises(TypeError, match=said):
        majority_size_labels(torch.rand(2, 3, 4), classes=3)
