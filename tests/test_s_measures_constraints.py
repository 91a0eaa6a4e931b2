"""Every measure as a constraint, with both solvers: met by hard counts against a loss that pulls
elsewhere, and silent while it is met.
"""

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from evalgrad import (
    PRAUC,
    ROCAUC,
    FBeta,
    PartialROCAUC,
    PrecisionAtRecall,
    RecallAtPrecision,
    SensitivityAtSpecificity,
    metrics,
)
from evalgrad.s_measures.multipliers import residuals
from evalgrad.s_measures.trapezoids import shown_area

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


AREAS = {
    "roc": (ROCAUC, {}, 0.95),
    "roc, 4 anchors": (ROCAUC, {"anchors": 4}, 0.89),
    "partial roc": (PartialROCAUC, {"max_fpr": 0.2}, 0.95),
    "pr": (PRAUC, {}, 0.95),
    "pr, 4 anchors": (PRAUC, {"anchors": 4}, 0.89),
}


@pytest.mark.parametrize("name", AREAS)
@pytest.mark.parametrize("keywords", [{"index": INDEX}, {}], ids=["index", "no index"])
def test_what_satisfies_the_training_of_an_area_is_met(name, keywords):
    """Up to the most that the anchors can show, where the staircase that certifies shows less."""
    measure, options, at_least = AREAS[name]
    for scores, met in ((torch.where(Y, -2.0, 2.0), False), (torch.where(Y, 2.0, -2.0), True)):
        reg = measure(at_least=at_least, labels=Y, **options)
        for _ in range(20):
            value = reg(scores, Y, **keywords)
        report = reg.diagnostics()
        assert report["met"] == bool(value == 0) == met
    assert report["why"] == "All constraints are met."
    assert max(map(max, report["residuals"] + report["surrogate_residuals"])) < 0


@pytest.mark.parametrize("name", AREAS)
@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**6), share=st.floats(0.1, 0.99))
def test_anchors_that_hold_what_is_trained_show_the_area(name, seed, share):
    measure, options, most = AREAS[name]
    program = measure(at_least=share * most, **options).groups[0].program
    draw = torch.Generator().manual_seed(seed)
    rows = len(program.share)
    hit, one = 1 - torch.rand(rows, generator=draw) ** 3, torch.ones(rows)
    asked = program.constraints[:, 0]  # F or R may be as large as the row and T allow
    largest = -(asked[:, 0] * hit + asked[:, 3]) / (asked[:, 1] + asked[:, 2])
    false = largest * torch.rand(rows, generator=draw)
    rates = torch.stack([hit, false, false, one], dim=1)
    residual = residuals(rates, program.constraints, program.share, joint=True)
    assert residual[:, 0].max() <= 1e-6
    shown = float(program.area.shown(rates))
    assert shown <= 1 + 1e-6
    if residual.max() <= 1e-6:
        assert shown >= program.area.at_least - 1e-5


def test_anchors_everywhere_show_the_whole_area():
    scores = (X[:, 0] + 0.2 * X[:, 1]).round(decimals=1)  # with ties
    at = scores.unique().flip(0)[:, None]
    hit, alarm = ((scores >= at)[:, part].float().mean(1) for part in (Y, ~Y))
    rates = torch.stack([hit, 3 * alarm, alarm, torch.ones_like(hit)], dim=1)
    shuffled = rates[torch.randperm(len(rates))]
    assert float(shown_area(shuffled)) == pytest.approx(roc_auc_score(Y, scores), abs=1e-5)


@pytest.mark.parametrize("anchors", [2, 8, [0.2, 0.3, 0.9]])
@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    shift=st.floats(-4, 4),
    signal=st.sampled_from([0.0, 1.0]),
    spread=st.sampled_from([0.0, 2.0]),
)
def test_anchors_anywhere_show_little_more_than_the_area(anchors, seed, shift, signal, spread):
    """As docs/s_measures.md says; at one threshold, as at the start of a training, a line to (0, 0)
    shows .5 where everything is predicted.
    """
    draw = torch.Generator().manual_seed(seed)
    labels = torch.rand(400, generator=draw) < 0.1
    labels[:2] = torch.tensor([True, False])
    scores = torch.randn(400, generator=draw) + signal * labels + shift
    reg = PRAUC(anchors, at_least=0.45, labels=labels)
    threshold = reg.groups[0].threshold.data
    threshold.copy_(spread * torch.randn(threshold.shape, generator=draw))
    reg(scores, labels)
    shown = 0.45 - max(map(max, reg.diagnostics()["residuals"]))
    points = [0.0, *reg.groups[0].program.constraints[:, 0, 1].tolist(), 1.0]
    slack = max(high - low for low, high in pairwise(points))
    assert shown <= float(metrics.pr_auc(scores, labels)) + slack + 1e-4


def test_anchors_that_hover_show_all_between_them():
    """In turn below and above their precisions: up to twice as far apart as asked."""
    area = PRAUC(9, at_least=0.5).groups[0].program.area
    precision = torch.arange(1, 10) / 10 + 0.045 * (-1) ** torch.arange(9)
    hit = 1 - precision.square()
    false = hit * (1 - precision) / precision
    rates = torch.stack([hit, false, false / 9, torch.ones(9)], dim=1)
    place, level = (F.pad(x.flip(0), (1, 0)) for x in (1 - precision, hit))
    place, level = (F.pad(x, (0, 1), value=1.0) for x in (place, level))
    assert float(area.shown(rates)) == pytest.approx(float(torch.trapezoid(level, place)), abs=1e-6)


def test_everything_predicted_meets_no_area():
    labels = INDEX[:100] < 5
    reg = PRAUC(8, at_least=0.5, labels=labels)
    reg(torch.randn(100) + 9, labels)
    report = reg.diagnostics()
    assert not report["met"]


def test_the_area_of_a_part_of_the_items_meets_nothing():
    """A sampler that balances the classes has shown all positives and few negatives."""
    labels = torch.arange(2000) % 20 == 0
    scores = torch.randn(2000, generator=DRAW) + 1.5 * labels
    part = torch.cat([labels.nonzero()[:, 0], (~labels).nonzero()[:150, 0]])
    whole, shown = (float(metrics.pr_auc(scores[i], labels[i])) for i in (slice(None), part))
    assert whole < 0.5 < 0.7 < shown
    reg = PRAUC(at_least=0.6, labels=labels)
    reg(scores[part], labels[part], index=part)
    assert not reg.diagnostics()["met"]
    reg(scores, labels, index=torch.arange(2000))
    residuals = reg.diagnostics()["residuals"]
    assert max(map(max, residuals)) == pytest.approx(0.6 - whole)


def test_a_trapezoid_that_shows_more_than_the_area_is_told():
    """All of the curve's steps are at an anchor: the trapezoids cut the corners off."""
    rank, labels = INDEX[:100] // 20, INDEX[:100] // 20 == 2
    reg = ROCAUC([0.5], at_least=0.7, labels=labels)
    with torch.no_grad():
        reg.groups[0].threshold.fill_(1.5)
    reg(rank.float(), labels, index=INDEX[:100])
    report = reg.diagnostics()
    assert report["metric"] == 0.5
    assert not report["met"]
    assert "trapezoids between the anchors show it: pass more `anchors`" in report["why"]
