"""Past scores beside the present ones: what is returned, what is kept, on every rank and after a
restart.
"""

import copy

import pytest
import ranks
import torch

import evalgrad as eg
from evalgrad.distributed import CrossBatchMemory


def batches(count, size=4, lists=()):
    generator = torch.Generator().manual_seed(1)
    for _ in range(count):
        yield (
            torch.randn(*lists, size, generator=generator),
            torch.randint(2, (*lists, size), generator=generator),
        )


@pytest.mark.parametrize("lists", [(), (3,)])
@pytest.mark.parametrize("capacity", [1, 6, 8, 100])
def test_the_last_scores_stand_behind_the_present_ones(capacity, lists):
    memory, past = CrossBatchMemory(capacity, lists=lists), []
    for scores, target in batches(5, lists=lists):
        all_scores, all_target, mask = memory(scores, target)
        assert torch.equal(all_scores[..., :4], scores)
        assert torch.equal(all_target[..., :4], target)
        assert mask[..., :4].all()
        for row in range(len(all_scores) if lists else 1):
            chosen = (row,) if lists else ()
            kept = mask[chosen][4:]
            found = zip(
                all_scores[chosen][4:][kept].tolist(), all_target[chosen][4:][kept].tolist()
            )
            expected = [(s[chosen], t[chosen]) for s, t in past]
            items = [pair for s, t in expected for pair in zip(s.tolist(), t.tolist())][-capacity:]
            assert sorted(found) == sorted(items)
        past.append((scores, target))


def test_only_the_present_has_a_gradient_and_it_is_that_of_the_long_list():
    memory, loss = CrossBatchMemory(8), eg.AveragePrecisionHingeLoss()
    (old, old_target), (new, target) = batches(2)
    memory(old, old_target)
    present = new.clone().requires_grad_()
    loss(*memory(present, target)).backward()
    both = torch.cat([new, old]).requires_grad_()
    loss(both, torch.cat([target, old_target])).backward()
    torch.testing.assert_close(present.grad, both.grad[:4])
    assert present.grad.abs().sum() > 0
    assert not memory.scores.requires_grad


def test_items_that_do_not_count_are_remembered_as_such():
    memory, hidden = CrossBatchMemory(4), torch.tensor([True, False, False, True])
    (old, old_target), (new, target) = batches(2)
    memory(old, old_target, hidden)
    assert torch.equal(memory(new, target)[2], torch.tensor([True] * 4 + hidden.tolist()))


def test_evaluation_remembers_nothing():
    memory = CrossBatchMemory(4).eval()
    before = copy.deepcopy(memory.state_dict())
    memory(*next(batches(1)))
    assert all(torch.equal(before[name], value) for name, value in memory.state_dict().items())


def test_a_loaded_state_continues_bit_by_bit():
    straight, broken = CrossBatchMemory(6), CrossBatchMemory(6)
    for i, batch in enumerate(batches(5)):
        if i == 3:
            state, broken = copy.deepcopy(broken.state_dict()), CrossBatchMemory(6)
            broken.load_state_dict(state)
        for one, two in zip(straight(*batch), broken(*batch), strict=True):
            assert torch.equal(one, two)


@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_it_compiles_without_a_break():
    memory, loss = CrossBatchMemory(6), eg.AveragePrecisionHingeLoss()
    same = copy.deepcopy(memory)
    step = torch.compile(lambda *batch: loss(*memory(*batch)), fullgraph=True, backend="aot_eager")
    for batch in batches(3):
        torch.testing.assert_close(step(*batch), loss(*same(*batch)))
    torch._dynamo.reset()


def _over_ranks(rank, world):
    """Three steps with uneven shards, against one process with the union: states and the last
    gradient.
    """
    memory, alone, loss = (
        CrossBatchMemory(6).double(),
        CrossBatchMemory(6).double(),
        eg.AveragePrecisionHingeLoss(),
    )
    for scores, target in batches(3, size=5):
        own = slice(0, 4) if rank == 0 else slice(4, 5)
        part, whole = scores.double()[own].requires_grad_(), scores.double().requires_grad_()
        loss(*memory(part, target[own])).backward()
        # One process must not gather: its own memory is asked outside of the group.
        union = (
            torch.cat([whole, alone.scores]),
            torch.cat([target, alone.target]),
            torch.cat([target >= 0, alone.mask]),
        )
        loss(*union).backward()
        alone._remember(whole, target, target >= 0)
        assert torch.allclose(part.grad, world * whole.grad[own], atol=1e-12)
    assert all(torch.equal(a, b) for a, b in zip(memory.buffers(), alone.buffers(), strict=True))
    return [buffer.tolist() for buffer in memory.buffers()]


def test_every_rank_remembers_the_same():
    one, two = ranks.run(2, _over_ranks)
    assert isinstance(one, list), one
    assert one == two


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: CrossBatchMemory(0), "CrossBatchMemory: `capacity` must be at least 1; got 0"),
        (
            lambda: CrossBatchMemory(4)(torch.ones(2, 3), torch.ones(2, 3).long()),
            (
                r"CrossBatchMemory: `scores` must be of shape \('n',\); got a float32 tensor of"
                r" shape \(2, 3\)"
            ),
        ),
        (
            lambda: CrossBatchMemory(4, lists=(-1,)),
            "CrossBatchMemory: `lists` must be at least 0; got -1",
        ),
        (
            lambda: CrossBatchMemory(4)(torch.ones(2), torch.ones(2).long(), torch.tensor([0, 7])),
            "CrossBatchMemory: `mask` must be 0 or 1, or bool; got the label 7",
        ),
    ],
)
def test_messages(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("lists", [7, "ab", None, (2.5,)])
def test_leading_dimensions_are_integers(lists):
    with pytest.raises(TypeError, match="CrossBatchMemory: `lists` must be "):
        CrossBatchMemory(4, lists=lists)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_labels_that_it_would_round_are_refused_and_not_remembered(dtype):
    memory = CrossBatchMemory(4)
    with pytest.raises(TypeError, match="CrossBatchMemory: `target` must be bool or integers; got"):
        memory(torch.ones(2), torch.tensor([0.5, 1.0]).to(dtype))
    assert not memory.mask.any()


@pytest.mark.parametrize(
    "loss", [eg.DirectAveragePrecisionLoss(), eg.AveragePrecisionHingeLoss(), eg.DirectNDCGLoss()]
)
def test_a_label_that_is_wrong_for_the_loss_is_told_while_it_is_remembered(loss):
    memory = CrossBatchMemory(4)
    (old, _), *rest = batches(3)
    with pytest.raises(ValueError, match="`target` must be 0 or 1, or bool; got the label 99"):
        loss(*memory(old, torch.tensor([1, 0, 99, 0])))
    scores, target = rest[0]
    with pytest.raises(ValueError, match="`target` must be 0 or 1, or bool; got the label 99"):
        loss(*memory(scores, target))
    assert loss(*memory(*rest[1])).isfinite()
