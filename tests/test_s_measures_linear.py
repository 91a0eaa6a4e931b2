"""Both solvers reach the optimum of the linear program that HiGHS solves: 1 % in full batches, 3 % with eighths.

A part of the table that `python benchmarks/s_measures.py` prints whole, so that the tests stay quick.
"""

import oracles_s_measures as oracles
import pytest
from training_s_measures import linear_problem, train

from evalgrad import PRAUC, ROCAUC, FBeta, PrecisionAtRecall, RecallAtPrecision

X, Y = linear_problem(1)
ROC, PR = [0.1, 0.3, 0.5, 0.7], [0.3, 0.45]


def single(kind: str, anchor: float) -> float:
    return oracles.anchored_program(X, Y, kind, [anchor], [1.0], free=False)


PROBLEMS = {
    **{f"fbeta {b}": (FBeta, b, lambda b=b: (1 + b**2) / (1 + oracles.fbeta_program(X, Y, b))) for b in (0.5, 1.0, 2.0)},
    "p@r": (PrecisionAtRecall, 0.8, lambda: 0.8 / (0.8 + single("precision@recall", 0.8))),
    "r@p": (RecallAtPrecision, 0.5, lambda: -single("recall@precision", 0.5)),
    "roc": (ROCAUC, ROC, lambda: -oracles.anchored_program(X, Y, "tpr@fpr", ROC, [0.2, 0.2, 0.2, 0.3], free=True)),
    "pr": (PRAUC, PR, lambda: -oracles.anchored_program(X, Y, "recall@precision", PR, [0.3, 0.15], free=True)),
}


FULL = [(problem, "ratio") for problem in PROBLEMS] + [("fbeta 1.0", "lagrangian"), ("roc", "lagrangian")]
EIGHTHS = [("fbeta 1.0", "ratio"), ("r@p", "lagrangian")]


@pytest.mark.parametrize(("problem", "solver"), FULL)
def test_full_batch_reaches_the_program(problem, solver):
    measure, argument, optimum = PROBLEMS[problem]
    reg = measure(argument, labels=Y, solver=solver)
    train(reg, X, Y, steps=800 if solver == "ratio" else 1500)
    report = reg.diagnostics()
    assert report["certificate"] == pytest.approx(optimum(), rel=0.01)
    assert report["certificate"] <= report["metric"] + 1e-6
    if measure is FBeta:
        best = (1 + argument**2) / optimum() - 1  # V*
        assert report["mu"][0][0] == pytest.approx(-best, rel=0.01)
        assert abs(report["dual_identity"]) < 0.01 * best
    if solver == "lagrangian":
        low, high = report["lambda_range"]
        assert low >= 0
        assert high <= 1.03 * max(report["lambda_ceiling"])


@pytest.mark.parametrize(("problem", "solver"), EIGHTHS)
def test_minibatches_come_close(problem, solver):
    measure, argument, optimum = PROBLEMS[problem]
    reg = measure(argument, labels=Y, solver=solver)
    train(reg, X, Y, steps=2000, batches=8)
    assert reg.diagnostics()["certificate"] == pytest.approx(optimum(), rel=0.03)


def test_rare_projections_cost_accuracy_but_are_counted():
    reports = []
    for every in (1, 20):
        reg = FBeta(labels=Y, solver="lagrangian", project_every=every)
        train(reg, X, Y, steps=200)
        reports.append(reg.diagnostics())
    assert [r["projections"] for r in reports] == [200, 10]
    assert reports[0]["certificate"] >= reports[1]["certificate"] - 1e-3
