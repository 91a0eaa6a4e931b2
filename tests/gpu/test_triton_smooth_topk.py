"""The Triton kernels of smooth top-k against the oracle in 60 digits, on rows of several chunks,
and with seeded faults that the comparison or the sanitizer must find.
"""

import math

import pytest
import torch
from broken import with_fault
from sanitizer import Trace
from test_smooth_topk import check_row, draw

from evalgrad._triton import smooth_topk as kernels
from evalgrad.smooth_topk import loss

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize("kind", ["unit", "huge", "ties", "equal", "peaked"])
@pytest.mark.parametrize(("classes", "k"), [(3, 2), (10, 9), (33, 5), (40, 10)])
def test_equals_the_oracle(classes, k, kind):
    for i, temperature in enumerate((1.0, 1e-4)):
        x = draw(kind, classes, k, temperature, seed=i).float()
        check_row(kernels.smooth_topk, x, i, k, temperature)


def test_the_largest_k():
    x = draw("unit", 120, kernels.MOST_GUESSES, 0.1).float()
    check_row(kernels.smooth_topk, x, 3, kernels.MOST_GUESSES, 0.1)


def hard_rows():
    """Ties, infinities, all ruled out, a NaN, a label that does not exist, a row that is absent."""
    generator = torch.Generator().manual_seed(0)
    x, label = torch.randn(8, 70, generator=generator), torch.arange(8) * 9
    x[0] = x[0].round()
    x[1, [3, 17, 40]] = INF
    x[2, 5:] = -INF
    x[3, [18, 27, 60]] = -INF
    x[4, 50] = x[5, 1] = NAN
    x[5, 2:6] = INF  # an infinite loss that is absent is 0
    label[2], label[6] = 6, 70  # the first is among the largest: all others are ruled out
    return x, label, torch.tensor([1.0, 1, 1, 1, 1, 0, 1, 0.5])


def differs(module):
    """Whether the kernels of a module are wrong on the hard rows, in chunks of 16 classes."""
    module._CHUNK = 16
    x, label, factor = hard_rows()
    with Trace() as trace:
        found = module.smooth_topk(x, label, factor, 3, 0.5, 1.0)
    wrong = not all(
        torch.allclose(mine, theirs, rtol=1e-5, atol=1e-6, equal_nan=True)
        for mine, theirs in zip(found, loss._pure(x, label, factor, 3, 0.5, 1.0), strict=True)
    )
    return wrong, trace


def test_rows_of_several_chunks(monkeypatch):
    monkeypatch.setattr(kernels, "_CHUNK", 16)
    wrong, trace = differs(kernels)
    assert not wrong
    assert trace.clean, trace
    assert sum(trace.launches.values()) == 4


FAULTS = {
    "a class too many": ("mask = bulk & (c < C) &", "mask = bulk & (c <= C) &"),
    "every chunk stores the head": ("if chunk == 0:", "if chunk >= 0:"),
    "ties are in the head twice": ("(c > last_place)", "(c >= last_place)"),
    "a head of two chunks": ("candidate < chunks * HEAD", "candidate < 2 * HEAD"),
    "the label is written twice": ("mask=(place >= 0) & (place != y)", "mask=place >= 0"),
    "NaN is overlooked": ("((nan != 0) | (y < 0)", "((y < 0)"),
    "an absent row": ("tl.where(absent, 0.0, found * scale)", "found * scale"),
    "one degree less": ("for j in range(1, k):", "for j in range(1, k - 1):"),
    "all signs positive": ("power_sums, -power_sums)", "power_sums, power_sums)"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault, tmp_path):
    wrong, trace = differs(with_fault(tmp_path, "smooth_topk", *FAULTS[fault]))
    assert wrong or not trace.clean
