"""The accounting of benchmarks/accelerator.py: what an operation is charged with."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import evalgrad as eg
from evalgrad import _native

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from accounting import account, sort_cost


def meta(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device="meta")


def test_an_operation_reads_its_inputs_and_writes_its_results():
    x, row = meta(10, 100), meta(100)
    seen = account(lambda: (x + row).mul_(2), (x, row))
    assert seen.launches == 2
    assert seen.bytes == 4 * (1000 + 100 + 1000) + 4 * (1000 + 1000)
    assert seen.peak == 4 * 1000


def test_views_cost_nothing_and_expanded_axes_are_read_once():
    x, row = meta(10, 100), meta(100)
    assert account(lambda: x.T.reshape(100, 10)[:5], (x,)).launches == 0
    assert account(lambda: torch.mul(row.expand(10, 100), 2), (row,)).bytes == 4 * (100 + 1000)


def test_a_sort_is_charged_with_its_passes():
    x = meta(3, 8192)
    seen = account(lambda: x.sort(), (x,))
    amount, launches, temporary = sort_cost((3, 8192), 4)
    assert (seen.bytes, seen.launches) == (amount, launches)
    assert seen.peak == temporary + 3 * 8192 * (4 + 8)


def test_a_gather_reads_what_it_returns():
    x, few = meta(10, 100), meta(10, 1, dtype=torch.int64)
    assert account(lambda: x.gather(1, few), (x, few)).bytes == 10 * (8 + 4 + 4)
    row, many = meta(10), meta(1000, dtype=torch.int64)
    assert account(lambda: row.gather(0, many), (row, many)).bytes == 4 * 10 + 1000 * (8 + 4)


def test_waiting_for_the_host_is_seen():
    x = meta(4)
    seen = account(lambda: x + torch.tensor([1.0] * 4, device="meta"), (x,))
    assert sum(seen.syncs.values()) == 1


def test_segmentation_losses_do_not_wait_for_the_host():
    x, target = meta(2, 5, 8, 8).requires_grad_(), meta(2, 8, 8, dtype=torch.int64)
    for loss in (
        eg.LovaszSoftmaxLoss(ignore_index=255),
        eg.LovaszSoftmaxLoss(classes=[1, 2]),
        eg.LovaszSoftmaxLoss(bins=8),
    ):
        with _native.open_operators():
            seen = account(lambda loss=loss: loss(x, target).backward(), (x, target))
        assert seen.launches > 10
        assert seen.syncs == {}


def counted(loss, x, target):
    x.grad = None
    with _native.open_operators():
        return account(lambda: loss(x, target).backward(), (x, target))


@pytest.mark.parametrize(
    ("loss", "most_bytes", "most_memory"),
    [
        (eg.LovaszSoftmaxLoss(), 17, 2),
        (eg.LovaszSoftmaxLoss(metric="dice"), 17, 2),
        (eg.LovaszSoftmaxLoss(bins=4096), 7, 2),
        (eg.LossMaxPooling(nn.CrossEntropyLoss(reduction="none")), 2, 1),
    ],
    ids=["exact", "dice", "bins", "pooling"],
)
def test_bytes_and_memory_next_to_cross_entropy(loss, most_bytes, most_memory):
    x = meta(2, 19, 512, 1024).requires_grad_()
    target = meta(2, 512, 1024, dtype=torch.int64)
    usual, seen = counted(nn.functional.cross_entropy, x, target), counted(loss, x, target)
    assert seen.bytes <= most_bytes * usual.bytes
    assert seen.peak <= most_memory * usual.peak


@pytest.mark.parametrize(("bins", "most_bytes", "most_memory"), [(None, 9, 4), (4096, 7, 2)])
def test_bytes_and_memory_of_the_hinge_next_to_bce(bins, most_bytes, most_memory):
    x, target = meta(8, 512, 512).requires_grad_(), meta(8, 512, 512)
    usual = counted(nn.functional.binary_cross_entropy_with_logits, x, target)
    seen = counted(eg.LovaszHingeLoss(bins=bins), x, target)
    assert seen.bytes <= most_bytes * usual.bytes
    assert seen.peak <= most_memory * usual.peak
