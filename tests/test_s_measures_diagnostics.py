"""The value of F-beta as a law, and what `diagnostics()` says: nothing before data, hard counts and
surrogates apart, what cannot be met apart from what still moves.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

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

solvers = pytest.mark.parametrize("solver", ["ratio", "lagrangian"])
surrogates = pytest.mark.parametrize("surrogate", ["hinge", "square", "cross_entropy", "margin"])
ITEMS = 24
Y, INDEX = torch.arange(ITEMS) % 4 == 0, torch.arange(ITEMS)


@solvers
@surrogates
@settings(max_examples=25, deadline=None)
@given(
    beta=st.sampled_from([0.5, 1.0, 2.0]),
    scale=st.sampled_from([0.3, 1.0, 4.0]),
    shift=st.floats(-1, 1),
    seed=st.integers(0, 10**6),
)
def test_the_value_bounds_f_beta(solver, surrogate, beta, scale, shift, seed):
    """On the whole data, wherever the surrogate finds a true positive at all."""
    draw = torch.Generator().manual_seed(seed)
    scores = scale * (torch.randn(ITEMS, generator=draw) + Y + shift)
    reg = FBeta(beta, labels=Y, solver=solver, surrogate=surrogate)
    value = reg(scores, Y, index=INDEX)
    loss = reg.groups[0].surrogate
    hit, alarm = 1 - loss(1 - scores[Y]).mean(), 3 * loss(1 + scores[~Y]).mean()
    expected = (beta**2 + alarm) / hit.clamp_min(1 / 6)
    torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-5)
    if hit > 0:
        bound = (1 + beta**2) / (1 + value.item())
        assert metrics.fbeta_score(scores, Y, beta=beta, ties="worst") >= bound - 1e-5


@solvers
@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_the_value_at_perfect_scores(solver, beta):
    reg = FBeta(beta, labels=Y, solver=solver)
    assert reg(torch.where(Y, 2.0, -2.0), Y, index=INDEX).item() == pytest.approx(beta**2)


@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_the_value_is_the_same_on_every_engine(pure):
    scores = torch.randn(ITEMS)
    kernel = FBeta(labels=Y)(scores, Y)
    torch._dynamo.reset()
    compiled = torch.compile(FBeta(labels=Y), backend="aot_eager", fullgraph=True, dynamic=True)
    torch.testing.assert_close(compiled(scores, Y), kernel)
    balanced = torch.cat([INDEX[Y], INDEX[~Y][:6]])  # the labels know how rare positives are
    value = FBeta(labels=Y)(scores[balanced], Y[balanced])
    hit = scores[Y].clamp(max=1).mean().clamp_min(1 / 6)
    alarm = 3 * (1 + scores[~Y][:6]).relu().mean()
    torch.testing.assert_close(value, (1 + alarm) / hit)


MEASURES = [
    lambda **o: FBeta(**o),
    lambda **o: FBeta(at_least=0.5, **o),
    lambda **o: PrecisionAtRecall(0.8, **o),
    lambda **o: RecallAtPrecision(0.8, at_least=0.5, **o),
    lambda **o: SensitivityAtSpecificity(0.8, **o),
    lambda **o: ROCAUC(3, **o),
    lambda **o: PartialROCAUC(0.3, at_least=0.6, **o),
    lambda **o: PRAUC(3, at_least=0.6, **o),
]


ALL = {
    "f-beta": lambda **o: FBeta(2.0, **o),
    "p@r": lambda **o: PrecisionAtRecall(0.6, **o),
    "r@p": lambda **o: RecallAtPrecision(0.6, **o),
    "s@s": lambda **o: SensitivityAtSpecificity(0.7, **o),
    "roc": lambda **o: ROCAUC(4, **o),
    "partial roc": lambda **o: PartialROCAUC(0.4, anchors=4, **o),
    "pr": lambda **o: PRAUC(4, **o),
}


@pytest.mark.parametrize("measure", ALL)
@pytest.mark.parametrize("at_least", [None, 0.4])
@settings(max_examples=30, deadline=None)
@given(
    solver=st.sampled_from(["ratio", "lagrangian"]),
    surrogate=st.sampled_from(["hinge", "square", "cross_entropy", "margin"]),
    scale=st.sampled_from([0.3, 1.0, 4.0]),
    shift=st.floats(-1.5, 1.5),
    tied=st.booleans(),
    seen=st.sampled_from([slice(None), slice(5), slice(19, None)]),
    seed=st.integers(0, 10**6),
)
def test_nothing_more_than_the_metric_is_certified(
    measure, at_least, solver, surrogate, scale, shift, tied, seen, seed
):
    """On the items seen, of which more or fewer than in the data are positive."""
    draw = torch.Generator().manual_seed(seed)
    scores = scale * (torch.randn(ITEMS, generator=draw) + 1.5 * Y + shift)
    scores = scores.round() if tied else scores
    reg = ALL[measure](labels=Y, at_least=at_least, solver=solver, surrogate=surrogate)
    for _ in range(2):
        reg(scores[seen], Y[seen], index=INDEX[seen])
        reg.dual_step()
    report = reg.diagnostics()
    assert report["metric"] == float(reg.groups[0].program.metric(scores[seen], Y[seen]))
    assert report["certificate"] <= report["metric"] + 1e-5
    assert report["at_threshold"] <= report["metric"] + 1e-5


def test_a_required_f_beta_is_certified_at_its_threshold():
    """All scores are below 0: another threshold would separate them, but F1 is 0."""
    reg = FBeta(labels=Y, at_least=0.6)
    reg(torch.where(Y, -0.1, -0.7), Y, index=INDEX)
    assert reg.diagnostics()["certificate"] == reg.diagnostics()["metric"] == 0


@pytest.mark.parametrize("make", MEASURES)
@solvers
def test_nothing_is_certified_before_data(make, solver):
    reg = make(labels=Y, solver=solver)
    for seen in ("nothing", "positives alone"):
        report = reg.diagnostics()
        assert all(math.isnan(report[key]) for key in ("certificate", "metric", "at_threshold"))
        assert all(math.isnan(x) for x in report["recall"] + report["precision"])
        assert report["met"] is None, seen
        reg(torch.ones(6), Y[Y], index=INDEX[Y])
    reg(torch.randn(ITEMS), Y, index=INDEX)
    assert 0 <= reg.diagnostics()["metric"] <= 1


def test_nothing_is_certified_before_data_without_labels():
    report = RecallAtPrecision(0.8).diagnostics()
    assert math.isnan(report["certificate"])
    assert report["met"] is None
    assert "Nothing seen yet" in report["why"]


def test_hard_counts_are_told_from_surrogate_ones():
    """Precision 1 for 0.7 asked, and all negatives within the margin."""
    reg = RecallAtPrecision(0.7, labels=Y)
    reg(torch.where(Y, 0.1, -0.1), Y, index=INDEX)
    report = reg.diagnostics()
    assert report["met"]
    assert report["precision"] == [1.0]
    assert report["residuals"][0][0] <= 0 < report["surrogate_residuals"][0][0]
    assert "met by hard counts. By the surrogates" in report["why"]
    reg(torch.where(Y, 9.0, -9.0), Y, index=INDEX)
    assert reg.diagnostics()["why"] == "All constraints are met."


def test_an_infeasible_request_is_told_from_one_that_moves():
    scores = torch.where(INDEX % 3 == 0, 1.0, -1.0)  # as many alarms among positives as elsewhere
    stuck = RecallAtPrecision(0.9, labels=Y, at_least=0.9)
    moving = RecallAtPrecision(0.9, labels=Y, at_least=0.9)
    for step in range(30):
        stuck(scores, Y, index=INDEX)
        better = torch.where(Y & (step / 2 > INDEX), 1.0, -1.0)  # positive after positive is found
        moving(better, Y, index=INDEX)
    assert "seems unable to meet it" in stuck.diagnostics()["why"]
    assert "still moving" in moving.diagnostics()["why"]


INFEASIBLE = {
    "f-beta": lambda: FBeta(at_least=0.9),
    "p@r": lambda: PrecisionAtRecall(0.8, at_least=0.8),
    "r@p": lambda: RecallAtPrecision(0.9, at_least=0.8),
    "s@s": lambda: SensitivityAtSpecificity(0.95, at_least=0.9),
    "pr": lambda: PRAUC(at_least=0.9),
}


def reasons(reg, labels, lr, epochs):
    """What `why` says at each pass of a linear scorer of items (600,), in batches, no `index`."""
    draw = torch.Generator().manual_seed(0)
    x, weight = torch.randn(600, 5, generator=draw), torch.zeros(5, requires_grad=True)
    x[:, 4] = 1
    target = labels(x, draw)
    thresholds = [p for group in reg.primal_groups(lr) for p in group["params"]]
    optimiser, found = torch.optim.Adam([weight, *thresholds], lr=lr), []
    for _ in range(epochs):
        for item in torch.randperm(600, generator=draw).split(60):
            optimiser.zero_grad()
            scores, hit = x[item] @ weight, target[item]
            pull = torch.nn.functional.binary_cross_entropy_with_logits(scores, hit.float())
            (reg(scores, hit) + 0.2 * pull).backward()
            optimiser.step()
        found.append(reg.diagnostics()["why"])
    return found


@pytest.mark.parametrize("name", INFEASIBLE)
def test_an_infeasible_request_is_told_without_index(name):
    """The labels are noise. The totals are those of the last 50 batches, noisy themselves."""
    found = reasons(INFEASIBLE[name](), lambda _, g: torch.rand(600, generator=g) < 0.15, 0.02, 80)
    told = ["seems unable to meet it" in why or "hardly any" in why for why in found[60:]]
    assert sum(told) >= 14


@pytest.mark.parametrize("lr", [1e-3, 2e-2])
def test_a_feasible_request_is_not_called_infeasible_without_index(lr):
    found = reasons(
        FBeta(at_least=0.6), lambda x, g: x[:, 0] + torch.rand(600, generator=g) > 1.5, lr, 40
    )
    assert not any("seems unable" in why for why in found)
    assert any("still moving" in why for why in found)


def test_no_positive_is_told_though_the_sum_never_forgets_one():
    reg = FBeta(at_least=0.6, labels=Y)
    reg(torch.where(Y, 2.0, -2.0), Y)
    for _ in range(300):
        reg(torch.full((ITEMS,), -2.0), Y)
    assert 0 < reg.diagnostics()["recall"][0] < 0.01
    assert "Give the scorer a bias term" in reg.diagnostics()["why"]


@solvers
def test_thresholds_that_no_optimiser_moves_are_told(solver):
    reg = ROCAUC(3, labels=Y, solver=solver)
    optimiser = torch.optim.SGD(reg.primal_groups(0.01))
    for stepped in (False, True):
        reg(torch.where(INDEX % 3 == 0, 1.0, -1.0), Y, index=INDEX).backward()
        assert ("add `primal_groups(lr)`" in reg.diagnostics()["why"]) != stepped
        optimiser.step()


def test_hovering_around_a_constraint_is_not_infeasible():
    reg = RecallAtPrecision(0.5, labels=Y, at_least=0.5)
    good, bad = torch.where(Y, 1.0, -1.0), torch.where(Y & (INDEX > 12), 1.0, -1.0)
    for step in range(41):
        reg(good if step % 2 else bad, Y, index=INDEX)
    report = reg.diagnostics()
    assert not report["met"]
    assert "still moving" in report["why"]


def test_groups_that_say_the_same_say_it_once():
    labels = torch.arange(12) % 3
    reg = FBeta(labels=labels)
    reg(torch.nn.functional.one_hot(labels, 3).float(), labels)
    why = reg.diagnostics()["why"]
    assert why == reg.diagnostics()["groups"][0]["why"]
    assert "no constraint" in why


def test_several_groups_say_whether_and_why():
    labels = torch.arange(30) % 3
    reg = RecallAtPrecision(0.7, labels=labels, at_least=0.5)
    assert reg.diagnostics()["met"] is None
    scores = torch.nn.functional.one_hot(labels, 3) * 4.0 - 2
    reg(scores, labels, index=torch.arange(30))
    report = reg.diagnostics()
    assert report["met"]
    assert report["why"] == "All constraints are met."
    scores[:, 1] = -2.0
    reg(scores, labels, index=torch.arange(30))
    report = reg.diagnostics()
    assert not report["met"]
    assert report["why"].startswith("Group 1: A constraint is unmet by 0.5 (hard counts)")


@pytest.mark.parametrize(
    ("solver", "indexed"), [("ratio", True), ("ratio", False), ("lagrangian", True)]
)
def test_a_training_that_diverged_meets_and_certifies_nothing(solver, indexed):
    """Nothing is wrong by a comparison with NaN: counts alone would show a perfect scorer."""
    reg = ROCAUC(3, labels=Y, solver=solver)
    options = {"index": INDEX} if indexed else {}
    reg(torch.randn(ITEMS), Y, **options)
    with torch.no_grad():
        reg.groups[0].threshold[1] = torch.nan
    report = reg.diagnostics()
    assert report["met"] is None
    assert math.isnan(report["certificate"])
    assert math.isnan(report["at_threshold"])
    assert math.isnan(report["metric"]) != indexed  # the exact area needs no threshold
    assert "the training diverged" in report["why"]
    reg.groups[0].mu.fill_(torch.nan)
    assert "the training diverged" in reg.diagnostics()["why"]


def test_a_multiplier_at_its_cap_is_told_at_once():
    reg = RecallAtPrecision(0.9, labels=Y, at_least=0.9)
    reg(torch.where(INDEX % 3 == 0, 1.0, -1.0), Y, index=INDEX)
    assert "still moving" in reg.diagnostics()["why"]
    reg.groups[0].mu.fill_(reg.max_multiplier)
    assert "seems unable to meet it" in reg.diagnostics()["why"]
