"""The Triton kernels of the S-measures: the definition, hard scores, rows of several tiles, whole
trainings next to the CPU's kernels, and seeded faults.
"""

import pytest
import torch
from broken import with_fault
from sanitizer import Trace
from test_s_measures_engines import FORMULAS, by_loops
from test_s_measures_training import MEASURES, assert_same_state, batches, step

from evalgrad import _triton
from evalgrad._triton import s_measures as kernels
from evalgrad.s_measures import surrogate_errors
from evalgrad.s_measures.surrogates import SURROGATES

INF = float("inf")
CLOSE = {"rtol": 1e-5, "atol": 1e-5, "equal_nan": True}


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("items", [1, 2, 37, 300])
def test_equals_the_definition(surrogate, items):
    generator = torch.Generator().manual_seed(items)
    x = torch.randn(1, items, generator=generator)
    positive, weight = torch.rand(1, items, generator=generator) < 0.3, torch.tensor([[0.7, 2.5]])
    kind = SURROGATES[surrogate]
    with Trace() as trace:
        value, gradient, totals = kernels.s_measure_errors(x, positive, weight, kind.code, 0.0, 0.0)
    assert dict(trace.launches) == {"_weighted_errors": 1}
    expected = by_loops(
        x[0].tolist(), positive[0].tolist(), weight[0].tolist(), FORMULAS[surrogate]
    )
    torch.testing.assert_close(value[0], torch.tensor(expected[0]), **CLOSE)
    torch.testing.assert_close(totals[0], torch.tensor(expected[1], dtype=torch.float32), **CLOSE)
    # the value is linear in each error: its derivative is the gradient
    leaf = x.double().requires_grad_()
    error = kind(1 + torch.where(positive, -leaf, leaf))
    means = [
        error[side].mean() if side.any() else leaf.new_zeros(()) for side in (positive, ~positive)
    ]
    wanted = (0.7 * means[0] + 2.5 * means[1]) * (positive.any() and not positive.all())
    (slope,) = torch.autograd.grad(wanted, leaf)
    torch.testing.assert_close(gradient, slope.float(), **CLOSE)


def hard_rows():
    """Far out, on the thresholds and the kinks, infinite, NaN, and rows without a class."""
    x = 4 * torch.randn(6, 300, generator=torch.Generator().manual_seed(0))
    positive = torch.rand(6, 300, generator=torch.Generator().manual_seed(1)) < 0.3
    x[0] = 15 + x[0]
    x[1] = x[1].round()
    x[2, :3], positive[2, :3] = INF * torch.tensor([1, -1, 1]), torch.tensor([True, False, False])
    x[3, 7] = torch.nan
    positive[4], positive[5] = False, True
    return x, positive, torch.tensor([[0.7, 2.5], [0.0, 1.0], [1.0, 0.0]]).repeat(2, 1)


def wrong_results(module, surrogate=0, square=0.0, prior=0.0):
    """Whether the kernels of a module differ from the cores, in several tiles and in one."""
    module._BLOCK = 128
    x, positive, weight = hard_rows()
    thresholds = torch.tensor([0.0, 0.3])
    data = (x[3], positive[3], thresholds + 2, thresholds, torch.tensor(True), surrogate)
    found, expected = [], [surrogate_errors._pure_totals(*data)]
    with Trace() as trace:
        found.append(module.s_measure_totals(*data))
        for n in (300, 100):
            batch = (x[:, :n].clone(), positive[:, :n].clone(), weight, surrogate, square, prior)
            found += module.s_measure_errors(*batch)
            expected += surrogate_errors._pure(*batch)
    same = [torch.allclose(a, b, **CLOSE) for a, b in zip(found, expected, strict=True)]
    return not all(same), trace


@pytest.fixture
def _small_tiles(monkeypatch):
    monkeypatch.setattr(kernels, "_BLOCK", 128)


@pytest.mark.usefixtures("_small_tiles")
@pytest.mark.parametrize("surrogate", range(4))
@pytest.mark.parametrize("ratio", [(0.0, 0.0), (4.0, 0.0), (4.0, 3.0)])
def test_hard_rows_of_several_tiles(surrogate, ratio):
    wrong, trace = wrong_results(kernels, surrogate, *ratio)
    assert not wrong
    assert trace.clean, trace


def test_small_errors_of_cross_entropy_are_not_lost():
    x = torch.full((1, 2), 30.0)
    positive, weight = torch.tensor([[True, False]]), torch.tensor([[1.0, 0.0]])
    value, _, _ = kernels.s_measure_errors(x, positive, weight, 2, 0.0, 0.0)
    torch.testing.assert_close(
        value, torch.exp(-x[:, 0]) / torch.tensor(2.0).log(), rtol=1e-5, atol=0
    )


@pytest.mark.parametrize("make", MEASURES.values(), ids=MEASURES)
def test_trains_as_on_the_cpu(make, monkeypatch):
    """Values, gradients and state, batch by batch."""
    there, here, launched = make(), make(), 0
    for scores, target, keywords in batches(there, 40):
        with Trace() as trace:
            found = step(there, scores, target, keywords)
        assert trace.clean, trace
        launched += sum(trace.launches.values())
        with monkeypatch.context() as patch:
            patch.setattr(_triton, "INTERPRETED", False)
            expected = step(here, scores, target, keywords)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert_same_state(there, here, rtol=1e-4, atol=1e-5)
    assert launched >= 40


def test_what_is_left_to_the_core():
    empty, weight = torch.zeros(2, 0), torch.ones(2, 2)
    assert kernels.s_measure_errors(empty, empty.bool(), weight, 0, 0.0, 0.0) is None
    scores, zero = torch.zeros(5), torch.zeros(1)
    not_due = (scores, scores.bool(), zero, zero, torch.tensor(False), 0)
    assert kernels.s_measure_totals(*not_due) is None
    assert not torch.ops.evalgrad.s_measure_totals(*not_due).any()


# what is right, what is wrong, and with which surrogate, square and prior it shows
FAULTS = {
    "an item too many": ("slope * each), mask=i < n)", "slope * each), mask=i <= n)", 0),
    "items that are not there": ("(own == 0) & (i < n))", "own == 0)", 0),
    "the tile's own items alone": ("ALONE=alone", "ALONE=True", 0),
    "totals of one tile": ("return found.sum(1,", "return found[:, :1].sum(1,", 0),
    "tiles in one place": ("tl.num_programs(1) + tl.program_id(1)", "tl.num_programs(1)", 0),
    "every tile stores the value": ("mask=tile == 0)", "mask=tile >= 0)", 0),
    "a tie is right": ("(violation >= 0)", "(violation > 0)", 0),
    "NaN is an item of the data": ("seen & (offset == offset)", "seen", 0),
    "infinite errors without weight": ("(weight == 0) & (error == error)", "weight != weight", 0),
    "a class is missing": ("tl.minimum(items, others) > 0", "items > 0", 0),
    "the scale is forgotten": ("tl.load(scale + row) * (", "(", 0),
    "the slope at the kink": ("tl.where(z > 0, 1.0, 0.0)", "tl.where(z >= 0, 1.0, 0.0)", 0),
    "half a slope": ("z * z, 2 * z", "z * z, z", 1),
    "nats": ("(1 + tail) * _BITS", "(1 + tail)", 2),
    "no margin": ("(z > 0) & (z < 1)", "z > 0", 3),
    "T below one of n": ("found < 1 / n, 1 / n", "found < 1 / n, found", 0, 4.0),
    "a prior that was not given": ("tl.where(prior > 0, p", "tl.where(prior >= 0, p", 0, 4.0),
    "a prior that was given": ("prior * alarms / m, alarms", "alarms / n, alarms", 0, 4.0, 3.0),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault, tmp_path):
    right, wrong, *options = FAULTS[fault]
    is_wrong, trace = wrong_results(with_fault(tmp_path, "s_measures", right, wrong), *options)
    assert is_wrong or not trace.clean
