"""The union of the ranks' batches: any dtype, any sizes, gradients, and what happens when a rank is
gone.
"""

import os
import signal
from datetime import timedelta

import pytest
import ranks
import torch
import torch.distributed as dist

from evalgrad.distributed import gather_batch

SHARDS = {2: ((3, 3), (4, 1), (0, 5), (0, 0)), 4: ((2, 2, 2, 2), (3, 0, 1, 4), (0, 0, 0, 1))}
DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int16,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.complex64,
)


def _part(x, rank, sizes, dim=0):
    return x.narrow(dim, sum(sizes[:rank]), sizes[rank])


def _unions(rank, world):
    """Whether the union is the whole, for each dtype and shard."""
    same = {}
    for sizes in SHARDS[world]:
        for dtype in DTYPES:
            whole = (3 * torch.randn(sum(sizes), 2, 3)).to(dtype)
            same[sizes, dtype] = torch.equal(gather_batch(_part(whole, rank, sizes)), whole)
        lists = torch.randn(2, sum(sizes))
        same[sizes, "last axis"] = torch.equal(
            gather_batch(_part(lists, rank, sizes, -1), dim=-1), lists
        )
        strided = torch.randn(3, sum(sizes)).T
        same[sizes, "strided"] = torch.equal(gather_batch(_part(strided, rank, sizes)), strided)
        blank = torch.zeros(sum(sizes), 0, 4)
        same[sizes, "no pixels"] = gather_batch(_part(blank, rank, sizes)).shape == blank.shape
    return same


@pytest.mark.parametrize("world", [2, 4])
def test_union_of_any_dtype_and_size(world):
    for same in ranks.run(world, _unions):
        assert [key for key, equal in same.items() if not equal] == []


def _gradients(rank, world):
    """This rank's gradient of a function of the union, whose upstream gradient is not
    contiguous.
    """
    sizes = SHARDS[world][1]
    whole = torch.randn(sum(sizes), 3, dtype=torch.float64)
    own = _part(whole, rank, sizes).clone().requires_grad_()
    (gather_batch(own).T @ torch.arange(1.0, sum(sizes) + 1).double()).square().sum().backward()
    whole.requires_grad_()
    (whole.T @ torch.arange(1.0, sum(sizes) + 1).double()).square().sum().backward()
    return (own.grad - world * _part(whole.grad, rank, sizes)).abs().sum().item()


@pytest.mark.parametrize("world", [2, 4])
def test_gradient_is_the_own_slice_times_the_number_of_ranks(world):
    assert ranks.run(world, _gradients) == pytest.approx([0.0] * world, abs=1e-12)


def _nothing_like_the_others(rank, world):
    x = torch.randn(3, 2, dtype=torch.float64) if rank else torch.zeros(0, requires_grad=True)
    union = gather_batch(x)
    if not rank:
        union.sum().backward()
        assert x.grad.shape == (0,)
    return union.dtype, tuple(union.shape)


def test_a_rank_without_items_need_not_know_their_shape():
    assert ranks.run(2, _nothing_like_the_others) == [(torch.float64, (3, 2))] * 2


def _disagree(rank, world, kind):
    gather_batch(
        torch.zeros(2, 3 + rank)
        if kind == "shape"
        else torch.zeros(2, 3).to(torch.float64 if rank else torch.float32)
    )


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (
            "shape",
            "got float32 items of shape (3,) on rank 0 and float32 items of shape (4,) on rank 1",
        ),
        (
            "dtype",
            "got float32 items of shape (3,) on rank 0 and float64 items of shape (3,) on rank 1",
        ),
    ],
)
def test_ranks_that_disagree_all_say_so(kind, words):
    for answer in ranks.run(2, _disagree, kind):
        assert (
            f"gather_batch: `x` must have one dtype and one shape per item on all ranks; {words}"
            in answer
        )


def _one_is_killed(rank, world):
    gather_batch(torch.zeros(2))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    gather_batch(torch.zeros(2))


@pytest.mark.parametrize("world", [2, 4])
def test_a_killed_rank_ends_the_others_with_a_sentence(world):
    answers = ranks.run(world, _one_is_killed)
    assert answers.pop(1) is None
    for answer in answers:
        assert "gather_batch: rank" in answer
        assert "got no answer from the other ranks" in answer


def _one_never_comes(rank, world):
    impatient = dist.new_group(timeout=timedelta(seconds=1))
    try:
        return gather_batch(torch.zeros(2), impatient) if rank == 0 else "absent"
    finally:
        dist.barrier()  # rank 1 stays alive until rank 0 has given up


def test_a_rank_that_never_calls_is_waited_for_no_longer_than_the_timeout():
    waiting, absent = ranks.run(2, _one_never_comes)
    assert "did not call this function within the timeout of the process group" in waiting.replace(
        "\n", " "
    )
    assert absent == "absent"


def test_one_process_is_its_own_union():
    x = torch.randn(3, requires_grad=True)
    assert not dist.is_initialized()
    assert gather_batch(x) is x


@pytest.mark.parametrize("x", [3.0, torch.tensor(3.0)])
def test_what_has_no_items_is_refused(x):
    with pytest.raises(
        TypeError, match="gather_batch: `x` must be a tensor with 1 to 8 dimensions; got"
    ):
        gather_batch(x)


@pytest.mark.parametrize("dim", [2, -3, None, "0"])
def test_an_axis_that_is_none_is_refused_on_one_process_too(dim):
    message = "gather_batch: `dim` must be an axis of `x`, from -2 to 1; got"
    with pytest.raises(ValueError, match=message):
        gather_batch(torch.zeros(3, 2), dim=dim)
