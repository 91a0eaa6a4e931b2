"""The operators of the ratio solver: the definition, kernel and pure torch, hard cases, forward
mode, opcheck.

The other engines are laws: test_function_engines.py in eval mode, test_s_measures_training.py in
training.
"""

import math

import pytest
import torch
from torch.autograd import forward_ad

from evalgrad import PRAUC, ROCAUC, FBeta, _native
from evalgrad.s_measures import programs
from evalgrad.s_measures.multipliers import renewed_multipliers
from evalgrad.s_measures.surrogate_errors import (
    error_totals,
    weighted_errors,
)
from evalgrad.s_measures.surrogates import SURROGATES

surrogates = pytest.mark.parametrize("surrogate", SURROGATES)
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
FORMULAS = {
    "hinge": lambda z: max(0.0, z),
    "square": lambda z: z * z,
    "cross_entropy": lambda z: math.log2(1 + math.exp(z - 1)),
    "margin": lambda z: min(1.0, max(0.0, z)),
}
X = torch.randn(37, generator=torch.Generator().manual_seed(3))
Y = torch.arange(37) % 3 == 0


def by_loops(scores, positive, weight, formula):
    """Value and totals written from the definition."""
    sides = [
        [-s for s, y in zip(scores, positive, strict=True) if y],
        [s for s, y in zip(scores, positive, strict=True) if not y],
    ]
    totals = [
        [sum(formula(1 + u) for u in side), sum(u >= 0 for u in side), len(side)] for side in sides
    ]
    both = all(sides)
    return (
        sum(w * t[0] / t[2] for w, t in zip(weight, totals, strict=True)) if both else 0.0
    ), totals


@surrogates
@dtypes
# lanes and blocks, whole and broken
@pytest.mark.parametrize("items", [0, 1, 2, 16, 37, 1025, 2100])
def test_equals_the_definition(surrogate, dtype, items, request):
    draw = torch.Generator().manual_seed(items)
    scores, positive = (
        torch.randn(items, dtype=dtype, generator=draw),
        torch.rand(items, generator=draw) < 0.3,
    )
    weight, kind = torch.tensor([[0.7, 2.5]], dtype=dtype), SURROGATES[surrogate]
    value, totals = weighted_errors(scores, positive, weight, kind)
    expected, sums = by_loops(
        scores.tolist(), positive.tolist(), weight[0].tolist(), FORMULAS[surrogate]
    )
    tolerance = {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(value, torch.tensor(expected, dtype=dtype), **tolerance)
    torch.testing.assert_close(totals, torch.tensor([sums], dtype=dtype), **tolerance)
    torch.testing.assert_close(
        error_totals(scores, positive, torch.zeros(1), kind), totals, **tolerance
    )
    request.getfixturevalue("pure")
    torch.testing.assert_close(
        weighted_errors(scores, positive, weight, kind), (value, totals), **tolerance
    )
    torch.testing.assert_close(
        error_totals(scores, positive, torch.zeros(1), kind), totals, **tolerance
    )


@surrogates
def test_totals_leave_out_what_was_not_seen(surrogate, request):
    scores, seen = X.clone(), torch.arange(37) % 4 != 1
    scores[~seen] = torch.nan
    threshold, scale, kind = (
        torch.tensor([0.3, -0.2]),
        torch.tensor([2.0, 0.5]),
        SURROGATES[surrogate],
    )
    expected = [
        by_loops((c * (X[seen] - b)).tolist(), Y[seen].tolist(), (1, 1), FORMULAS[surrogate])[1]
        for b, c in zip(threshold, scale, strict=True)
    ]
    for _ in ("kernel", "pure"):
        torch.testing.assert_close(
            error_totals(scores, Y, threshold, kind, scale=scale),
            torch.tensor(expected),
            rtol=1e-5,
            atol=1e-5,
        )
        request.getfixturevalue("pure")


@surrogates
def test_items_are_seen_also_at_a_threshold_that_is_nan(surrogate, request):
    scores = X.clone()
    scores[::4] = torch.nan
    threshold, seen = torch.tensor([torch.nan]), ~scores.isnan()
    counts = torch.stack([(seen & Y).sum(), (seen & ~Y).sum()]).float()
    for _ in ("kernel", "pure"):
        (totals,) = error_totals(scores, Y, threshold, SURROGATES[surrogate])
        assert totals[:, 0].isnan().all()  # surrogate errors
        torch.testing.assert_close(totals[:, 1:], torch.stack([torch.zeros(2), counts], dim=1))
        request.getfixturevalue("pure")


@surrogates
@pytest.mark.parametrize("rows", [1, 3])
def test_kernel_gradient_equals_autograd_of_the_formula(surrogate, rows, request):
    kind, weight = SURROGATES[surrogate], torch.rand(rows, 2, dtype=torch.float64)
    offset = (X.double() - torch.linspace(-1, 1, rows).unsqueeze(-1)).requires_grad_()
    errors = kind(1 + torch.where(Y, -offset, offset))
    wanted = (weight[:, 0] * errors[:, Y].mean(1) + weight[:, 1] * errors[:, ~Y].mean(1)).sum()
    (expected,) = torch.autograd.grad(wanted, offset)
    for _ in ("kernel", "pure"):
        value, _ = weighted_errors(offset[0] if rows == 1 else offset, Y, weight, kind)
        torch.testing.assert_close(value, wanted)
        torch.testing.assert_close(torch.autograd.grad(value, offset)[0], expected)
        request.getfixturevalue("pure")


def multiplier_arguments(program, dtype=torch.float32):
    """What the solver of a program gives to `renewed_multipliers`, with totals of two different
    rows of scores per program row: tensors, and the rule.
    """
    rows, count, _ = program.constraints.shape
    threshold = torch.linspace(-0.5, 0.5, rows, dtype=dtype)
    totals = error_totals(X.to(dtype), Y, threshold, SURROGATES["hinge"])
    mu, weight = (
        torch.linspace(0, 1, rows * count, dtype=dtype).view(rows, count),
        torch.rand(rows, 2, dtype=dtype),
    )
    parts = [part.to(dtype) for part in (program.objective, program.constraints, program.share)]
    highest = float(program.objective[0, 3]) + 2 * 1.7 if program.fractional else None
    rule = {"prior": 1.7, "highest": highest, "step": 0.2, "ceiling": 100.0}
    return (totals, mu, weight, *parts), rule | {
        "hard": program.required,
        "joint": program.area is not None,
    }


PROGRAMS = {
    "fbeta": programs.fbeta(2.0, None),
    "fbeta, required": programs.fbeta(1.0, 0.6),
    "p@r, required": programs.precision_at_recall(0.8, 0.7),
    "r@p": programs.recall_at_precision(0.9, None),
    "s@s": programs.sensitivity_at_specificity(0.9, None),
    "roc": programs.roc_area([0.1, 0.4, 0.7], None),
    "roc, required": programs.roc_area([0.1, 0.4, 0.7], 0.6),
    "pr": programs.pr_area([0.3, 0.6], None),
}


def _residual(totals, constraint, prior, hard):
    """Of one row, from its totals (2, 3)."""
    (error, misses, hits), (alarms, wrong, others) = totals.tolist()
    alarm = (wrong if hard else alarms) / others
    rates = [1 - (misses if hard else error) / hits, prior * alarm, alarm, 1.0]
    return sum(c * r for c, r in zip(constraint, rates, strict=True))


@pytest.mark.skipif(_native.library is None, reason="built without kernels")
def test_operators_pass_opcheck():
    defined = torch.ops.evalgrad
    for square in (0.0, 4.0):
        errors = (X.view(1, -1), Y.view(1, -1), torch.ones(1, 2), 0, square, 0.0)
        torch.library.opcheck(defined.s_measure_errors.default, errors)
    for due in (False, True):
        totals = (X, Y, torch.ones(2), torch.zeros(2), torch.tensor(due), 0)
        torch.library.opcheck(defined.s_measure_totals.default, totals)


@pytest.mark.parametrize("prior", [0.0, 3.0])
def test_rows_have_a_ratio_each(prior, request):
    """V = (beta^2 + F) / T, and 0 for a row without positives."""
    offset, positive = X.double().view(1, -1).repeat(2, 1), torch.stack([Y, torch.zeros_like(Y)])
    missed, alarms = (1 - offset[0, Y]).relu().sum(), (1 + offset[0, ~Y]).relu().sum()
    n, m = Y.sum(), (~Y).sum()
    expected = (4 + (prior * alarms / m if prior else alarms / n)) / (1 - missed / n).clamp_min(
        1 / n
    )
    for _ in ("kernel", "pure"):
        value, _, _ = torch.ops.evalgrad.s_measure_errors(
            offset, positive, torch.ones(2, 2).double(), 0, 4.0, prior
        )
        torch.testing.assert_close(value, torch.stack([expected, expected * 0]))
        request.getfixturevalue("pure")


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
@dtypes
def test_multipliers_equal_the_definition(program, dtype):
    tensors, rule = multiplier_arguments(program, dtype)
    totals, mu, _, objective, constraints, share = tensors
    prior, highest, step, ceiling, hard, joint = rule.values()
    *new, residuals = renewed_multipliers(*tensors, **rule)
    if joint:  # one mean of all rows
        each = [
            _residual(totals[k], c[-1].tolist(), prior, hard) for k, c in enumerate(constraints)
        ]
        mean = sum(w * r for w, r in zip(share.tolist(), each, strict=True)) / float(share.sum())
    for k, (moved, weight) in enumerate(zip(*new, strict=True)):
        error, misses, hits = totals[k, 0].tolist()
        alarms, wrong, others = totals[k, 1].tolist()
        found, alarm = 1 - (misses if hard else error) / hits, (wrong if hard else alarms) / others
        rates = [found, prior * alarm, alarm, 1.0]
        row, wanted = objective[k].tolist(), []
        for j, constraint in enumerate(constraints[k].tolist()):
            largest = sum(max(c, 0) * r for c, r in zip(constraint, [1, prior, 1, 1], strict=True))
            residual = sum(c * r for c, r in zip(constraint, rates, strict=True)) / max(largest, 1)
            residual = mean if joint and j == constraints.shape[1] - 1 else residual
            if highest is None:
                assert float(residuals[k, j]) == pytest.approx(residual, abs=1e-5)
            new = min(max(float(mu[k, j]) + step * residual, 0), ceiling)
            pressed = min(max(new + 5 * step * residual, 0), ceiling)
            if highest is not None:
                ratio = (
                    sum(o * r for o, r in zip(objective[k].tolist(), rates, strict=True)) / found
                    if found > 0
                    else highest
                )
                new = pressed = -min(ratio, highest)
            wanted.append(new)
            row = [r + pressed * c for r, c in zip(row, constraint, strict=True)]
        close = {"rtol": 1e-5, "atol": 1e-5}
        torch.testing.assert_close(moved, torch.tensor(wanted, dtype=dtype), **close)
        classes = [-row[0] * float(share[k]), (prior * row[1] + row[2]) * float(share[k])]
        torch.testing.assert_close(weight, torch.tensor(classes, dtype=dtype), **close)


@pytest.mark.parametrize("spoiled", [torch.inf, torch.nan, 0.0])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_multipliers_stay_without_totals(program, spoiled):
    """A class never seen, or an overflow: an infinite multiplier would never recover."""
    (totals, mu, weight, *rest), rule = multiplier_arguments(program)
    totals[:, 0] = spoiled
    *new, _ = renewed_multipliers(totals, mu, weight, *rest, **rule)
    for after, before in zip(new, (mu, weight), strict=True):
        assert torch.equal(after, before)


@surrogates
def test_infinite_scores_are_limits_and_nan_shows(surrogate):
    kind, weight = SURROGATES[surrogate], torch.tensor([[0.0, 1.0]])
    scores = torch.where(Y, -torch.inf, -3.0)  # positives have no weight here
    value, _ = weighted_errors(scores.requires_grad_(), Y, weight, kind)
    assert value == weighted_errors(torch.full((37,), -3.0), Y, weight, kind)[0]
    assert torch.autograd.grad(value, scores)[0].isfinite().all()
    assert weighted_errors(torch.where(Y, torch.nan, 0.0), Y, weight, kind)[0].isnan()


@pytest.fixture(
    params=[
        lambda **o: FBeta(**o),
        lambda **o: FBeta(surrogate="square", **o),
        lambda **o: ROCAUC(3, **o),
    ]
)
def make(request):
    return request.param


def grad_of(measure, x):
    x = x.detach().clone().requires_grad_()
    value = measure(x, Y)
    return value.detach(), torch.autograd.grad(value, x)[0]


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # torch's own
def test_forward_mode(make):
    reg, tangent = make().eval(), torch.randn(37)
    _, gradient = grad_of(reg, X)
    with forward_ad.dual_level():
        value = reg(forward_ad.make_dual(X, tangent), Y)
        torch.testing.assert_close(forward_ad.unpack_dual(value).tangent, tangent @ gradient)


def test_a_second_derivative_is_refused_where_there_is_one():
    x = X.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(PRAUC(3, surrogate="square")(x, Y), x, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        gradient.sum().backward()


def test_backward_twice_adds_the_same_gradient():
    x = X.clone().requires_grad_()
    value = FBeta()(x, Y)
    value.backward(retain_graph=True)
    once = x.grad.clone()
    value.backward()
    assert torch.equal(x.grad, 2 * once)
