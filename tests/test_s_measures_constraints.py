"""Every measure as a constraint, with both solvers: met by hard counts against a loss that pulls
elsewhere, and silent while it is met.
"""

import pytest
import torch
import torch.nn.functional as F

from evalgrad import (
    PRAUC,
    ROCAUC,
    FBeta,
    PartialROCAUC,
    PrecisionAtRecall,
    RecallAtPrecision,
    SensitivityAtSpecificity,
)

DRAW = torch.Generator().manual_seed(0)
X = F.pad(torch.randn(300, 4, generator=DRAW), (0, 1), value=1.0)
Y = X[:, 0] + 0.7 * torch.randn(300, generator=DRAW) > 0.8
INDEX, ELSEWHERE = torch.arange(300), (X[:, 1] > 1).float()
CONSTRAINTS = {
    "f-beta": (FBeta, {"beta": 1.0, "at_least": 0.55}),
    "p@r": (PrecisionAtRecall, {"recall": 0.5, "at_least": 0.65}),
    "r@p": (RecallAtPrecision, {"precision": 0.65, "at_least": 0.5}),
    "s@s": (SensitivityAtSpecificity, {"specificity": 0.85, "at_least": 0.6}),
    "roc": (ROCAUC, {"at_least": 0.8}),
    "partial roc": (PartialROCAUC, {"max_fpr": 0.3, "at_least": 0.7}),
    "pr": (PRAUC, {"at_least": 0.55}),
}
solvers = pytest.mark.parametrize("solver", ["ratio", "lagrangian"])


def trained(reg, solver, steps):
    """Whether the constraint was met at the looks of the last third, and the last report."""
    weight, met = torch.zeros(5, requires_grad=True), []
    groups = reg.primal_groups(0.05)
    optimisers = [torch.optim.Adam([weight], lr=0.05)]
    optimisers += [torch.optim.SGD(groups, lr=0.05)] if groups else []
    for step in range(steps):
        for optimiser in optimisers:
            optimiser.zero_grad()
        scores = X @ weight
        pull = 0.3 * F.binary_cross_entropy_with_logits(scores, ELSEWHERE)
        (pull + reg(scores, Y, index=INDEX)).backward()
        for optimiser in optimisers:
            optimiser.step()
        reg.project_()
        if solver == "lagrangian":
            reg.dual_step()
        if step >= 2 * steps // 3 and step % 10 == 0:
            met.append(reg.diagnostics()["residuals"])
    worst = [max(map(max, residuals)) for residuals in met]
    return sum(worst) / len(worst), reg.diagnostics()


@pytest.mark.parametrize("name", CONSTRAINTS)
@solvers
def test_a_constraint_is_held_against_another_loss(name, solver):
    measure, options = CONSTRAINTS[name]
    reg = measure(labels=Y, solver=solver, **options)
    residual, report = trained(reg, solver, 180)
    assert residual < 0.1, report  # it hovers around 0
    assert report["metric"] > options["at_least"] - 0.03


@pytest.mark.parametrize("name", CONSTRAINTS)
@solvers
def test_a_constraint_that_is_met_adds_nothing(name, solver):
    measure, options = CONSTRAINTS[name]
    reg = measure(labels=Y, solver=solver, **options)
    if any("threshold" in key for key, _ in reg.named_parameters()):
        with torch.no_grad():  # such that anchor after anchor has no false positives
            reg.groups[0].threshold.fill_(1.0)
    scores = torch.where(Y, 9.0, -9.0).requires_grad_()
    for _ in range(3):
        value = reg(scores, Y, index=INDEX)
        reg.dual_step()
    (gradient,) = torch.autograd.grad(value, scores)
    assert value == 0
    assert gradient.eq(0).all()
    assert reg.diagnostics()["met"]
