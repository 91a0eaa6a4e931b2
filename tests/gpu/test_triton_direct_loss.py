"""The Triton kernels of the ranking losses against every interleaving, in several tiles, with as
many launches for long lists as for short ones, and with seeded faults that the comparison or the
sanitizer must find.
"""

import math
import random

import oracles_direct_loss as oracles
import pytest
import torch
from broken import with_fault
from sanitizer import Trace
from test_direct_loss import assert_equals, draw_row, with_strangers

from evalgrad._triton import direct_loss as kernels
from evalgrad.direct_loss import operators

INF, NAN = math.inf, math.nan
# epsilon, sign, ndcg, k
POSITIVE, NEGATIVE = (1.5, 1, False, 0), (1.5, -1, False, 0)
CUT, NEGATIVE_CUT = (0.2, 1, True, 5), (1.5, -1, True, 5)
EVERY = [POSITIVE, NEGATIVE, (1.5, 1, True, 0), (1.5, -1, True, 0), CUT, NEGATIVE_CUT]


@pytest.mark.parametrize("options", EVERY)
def test_meets_every_interleaving(options):
    _, sign, ndcg, k = options
    for seed in range(6):
        rng = random.Random(seed)
        scores, target, epsilon = draw_row(rng, 8)
        padded, labels, mask, where = with_strangers(rng, scores, target)
        with Trace() as trace:
            value, _, gradient = kernels.direct_ranking(
                padded[None], labels[None], mask[None], epsilon, sign, ndcg, min(k, 3)
            )
        expected = oracles.direct_ranking(
            scores.tolist(), target.tolist(), epsilon, sign, "ndcg" if ndcg else "ap",
            min(k, 3) or None,
        )  # fmt: skip
        assert trace.clean, trace
        assert not gradient[0, ~mask].any()
        assert_equals((value[0], gradient[0, where]), expected)


def hard_rows():
    """Ties, also of 0 and -0, infinities, NaNs, one that does not count, and a void row."""
    generator = torch.Generator().manual_seed(7)  # in which the order of the n_i binds in row 4
    scores = torch.randn(6, 60, generator=generator)
    target = torch.rand(6, 60, generator=generator) < 0.25
    mask = torch.rand(6, 60, generator=generator) < 0.9
    scores[0] += 1.0 * target[0]
    scores[1] = scores[1].round()
    scores[1, scores[1] == 0] = -0.0
    scores[1, target[1] & (scores[1] == 0)] = 0.0
    scores[2, ::9], scores[2, 1::9] = INF, -INF
    scores[3, 4], mask[3, 4] = NAN, True
    scores[4] -= 1.0 * target[4]
    scores[5, 5], mask[5, 5], target[5] = NAN, False, False
    return scores, target, mask


def differs(options):
    """Whether the kernels are wrong on the hard rows, in tiles of 32."""
    arguments = (*hard_rows(), *options)
    with Trace() as trace:
        found = kernels.direct_ranking(*arguments)
    expected = operators._direct_pure(*arguments)
    wrong = not all(
        torch.allclose(mine, theirs, rtol=1e-5, atol=1e-6, equal_nan=True)
        for mine, theirs in zip(found, expected, strict=True)
    )
    return wrong, trace


@pytest.fixture
def _small_tiles(monkeypatch):
    monkeypatch.setattr(kernels, "_WIDTH", 32)
    monkeypatch.setattr(kernels, "_BLOCK", 32)


@pytest.mark.usefixtures("_small_tiles")
@pytest.mark.parametrize("options", EVERY)
def test_rows_of_several_tiles(options):
    wrong, trace = differs(options)
    assert not wrong
    assert trace.clean, trace


@pytest.mark.parametrize("options", [POSITIVE, NEGATIVE, CUT])
def test_launches_do_not_depend_on_the_length(options):
    counts = set()
    for n in (9, 40, 130):
        target = torch.arange(n) % n < 2
        with Trace() as trace:
            kernels.direct_ranking(torch.randn(1, n), target[None], None, *options)
        counts.add(sum(trace.launches.values()))
    assert len(counts) == 1
    assert counts.pop() <= 12  # and a sort


def test_what_is_left_to_the_core():
    empty, few = torch.zeros(2, 0), torch.zeros(1, 4)
    assert kernels.direct_ranking(empty, empty.bool(), None, *POSITIVE) is None
    assert kernels.direct_ranking(few, few.bool(), None, 1e-40, *POSITIVE[1:]) is None
    many = torch.empty(1, 2**20, device="meta")  # a bit for each of 2^38 cells
    assert kernels.direct_ranking(many, many.bool(), None, *NEGATIVE) is None


# file, function, what is right, what is wrong, and with which options it shows
FAULTS = {
    "-0 is below 0": (
        "direct_lists", "sort_keys", "tl.where(x == 0, 0.0, x).to(", "x.to(", POSITIVE
    ),
    "what does not count does": (
        "direct_lists", "sort_keys", "!= 0, key, LEFT_OUT)", "!= 0, key, key)", POSITIVE
    ),
    "wide gaps stay": (
        "direct_lists", "split_rows", "tl.maximum(fall, -widest)", "tl.maximum(fall, -1e300)",
        POSITIVE,
    ),
    "the key before the first": (
        "direct_lists", "split_rows", "mask=(i > 0) & (i < n)", "mask=i < n", POSITIVE
    ),
    "a block forgets the one before": (
        "direct_lists", "split_rows", "psi_sum = psi + tl", "psi_sum = tl", NEGATIVE
    ),
    "the end of an interval is no candidate": (
        "direct_places", "place_negatives", "there = o <= high", "there = o < high", POSITIVE
    ),
    "two programs place a negative": (
        "direct_places", "place_negatives", "mine = (j < start + step) & (j <= N)", "mine = j <= N",
        POSITIVE,
    ),
    "a missing barrier": ("direct_chain", "run_chain", "tl.debug_barrier()", "pass", NEGATIVE),
    "a tile forgets the one before": (
        "direct_chain", "run_chain", "mask=start > 0, other", "mask=start < 0, other", NEGATIVE
    ),
    "records of another tile": (
        "direct_chain", "run_chain", "start // 32 + tl.arange", "tl.arange", NEGATIVE
    ),
    "every cell is a record": (
        "direct_chain", "run_chain", "(d + TIE * c >= best)", "(d >= d)", NEGATIVE
    ),
    "a record too far": ("direct_chain", "run_chain", "& (cell <= limit)", "", NEGATIVE),
    "who is pushed counts for nothing": (
        "direct_chain", "run_chain", "pushes) - m * pushed_phi", "pushes) * 0.0", CUT
    ),
    "records that were never written": (
        "direct_chain", "run_chain", "tl.minimum(limit, tl.load(rank + i))", "limit", NEGATIVE
    ),
    "the cutoff is one nearer": (
        "direct_chain", "run_chain", "(n + i + 1 <= k)", "(n + i + 2 <= k)", NEGATIVE_CUT
    ),
    "a column too many": (
        "direct_loss", "_write_gradient", "slope.to(tl.float32), mask=column < n)",
        "slope.to(tl.float32), mask=column <= n)", POSITIVE,
    ),
    "equal places count": (
        "direct_loss", "_write_gradient", "other=0) < number)", "other=0) <= number)", POSITIVE
    ),
    "NaN is overlooked": (
        "direct_loss", "_add_up", "tl.where(nan, float(\"nan\"), ideal)", "ideal * 1", POSITIVE
    ),
}  # fmt: skip


@pytest.mark.usefixtures("_small_tiles")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault, tmp_path, monkeypatch):
    file, function, right, wrong, options = FAULTS[fault]
    module = with_fault(tmp_path, file, right, wrong)
    monkeypatch.setattr(kernels, function, getattr(module, function))
    is_wrong, trace = differs(options)
    assert is_wrong or not trace.clean
