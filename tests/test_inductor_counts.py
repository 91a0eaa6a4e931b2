"""Kernels and bytes of benchmarks/inductor.py: at small shapes they are what formulas say."""

import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from accounting import sort_cost
from inductor import TORCH, can_count, inductor

pytestmark = [
    pytest.mark.skipif(not can_count(), reason=f"private interfaces of torch {TORCH}"),
    pytest.mark.filterwarnings("ignore"),  # the compiler's own
]


def meta(*shape, **options):
    return torch.empty(shape, device="meta", **options)


def test_a_chain_of_operations_is_a_kernel_in_either_direction():
    n = 1000
    x, target = meta(n, requires_grad=True), meta(n)
    count = inductor(lambda x, t: (2 * x + 1).mul(t).sum(), x, target)
    forward = 4 * (n + n + 1)  # x and target, and a sum
    backward = 4 * (1 + n + n)  # the upstream gradient and target, and the gradient
    assert count == (2, {}, forward + backward)


def test_a_sort_stays_apart_and_is_charged_with_its_passes():
    n = 8192
    x, target = meta(n, requires_grad=True), meta(n)
    count = inductor(lambda x, t: x.sort().values.mul(t).sum(), x, target)
    moved, launches, _ = sort_cost((n,), 4)
    assert count.apart["sort"] == 1
    assert count.kernels > launches
    assert count.bytes > moved


def test_cross_entropy_moves_four_times_the_logits():
    """Two reads in forward, for the sum and for the labels; a read and a write in backward."""
    shape = (2, 19, 64, 64)
    x, target = meta(*shape, requires_grad=True), meta(2, 64, 64, dtype=torch.int64)
    count = inductor(F.cross_entropy, x, target)
    pixels = target.numel()
    # of a pixel: a label of 8 bytes, the largest logit and the sum, written once and read twice
    assert 8 * pixels < count.bytes - 4 * 4 * x.numel() < 64 * pixels
    assert not count.apart


def test_nothing_of_the_device_that_is_not_here_stays():
    x, target = meta(10, requires_grad=True), meta(10)
    inductor(lambda x, t: (x * t).sum(), x, target)
    assert torch.cuda.is_available.__module__ == "torch.cuda"
