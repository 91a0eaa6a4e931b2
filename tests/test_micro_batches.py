"""Two passes give the gradient of the whole batch with the graph of one micro-batch."""

import copy

import pytest
import ranks
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

import evalgrad as eg
from evalgrad import _native
from evalgrad.distributed import global_batch, micro_batch_backward


def network(*extra):
    return nn.Sequential(nn.Conv2d(2, 16, 3, padding=1), *extra, nn.ReLU(), nn.Conv2d(16, 3, 1))


def segmentation(samples=8, side=12):
    images, target = torch.randn(samples, 2, side, side), torch.randint(3, (samples, side, side))
    return images, lambda scores: eg.lovasz_softmax_loss(scores, target)


def gradients(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def chunked(model, images, loss, size):
    """The gradient of the loss of scores made in micro-batches with one graph over all of them."""
    value = loss(torch.cat([model(part) for part in images.split(size)]))
    value.backward()
    return value.detach()


@pytest.mark.parametrize("size", [1, 3, 8, 20])
def test_gradient_is_that_of_the_whole_batch(size):
    model, (images, loss) = network(), segmentation()
    whole = copy.deepcopy(model)
    expected = loss(whole(images))
    expected.backward()
    value = micro_batch_backward(model, images, loss, size=size)
    torch.testing.assert_close(value, expected.detach(), rtol=0, atol=1e-6)
    torch.testing.assert_close(gradients(model), gradients(whole), rtol=0, atol=1e-6)


def test_adding_up_the_losses_of_micro_batches_is_something_else():
    model, images = network(), torch.randn(8, 2, 12, 12)
    target = (torch.arange(8)[:, None, None] // 3).expand(8, 12, 12)  # images of one class each
    whole = copy.deepcopy(model)
    eg.lovasz_softmax_loss(whole(images), target).backward()
    for part, label in zip(images.split(2), target.split(2)):
        (eg.lovasz_softmax_loss(model(part), label) / 4).backward()
    assert (gradients(model) - gradients(whole)).norm() > 0.2 * gradients(whole).norm()


def test_dropout_has_the_same_mask_in_both_passes():
    model, (images, loss) = network(nn.Dropout(0.5)), segmentation()
    once = copy.deepcopy(model)
    state = torch.get_rng_state()
    expected = chunked(once, images, loss, 3)
    after = torch.get_rng_state()
    torch.set_rng_state(state)
    value = micro_batch_backward(model, images, loss, size=3)
    torch.testing.assert_close(value, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(gradients(model), gradients(once), rtol=0, atol=1e-6)
    assert torch.equal(torch.get_rng_state(), after)


def test_running_statistics_are_updated_once():
    model, (images, loss) = network(nn.BatchNorm2d(16)), segmentation()
    once = copy.deepcopy(model)
    chunked(once, images, loss, 3)
    micro_batch_backward(model, images, loss, size=3)
    torch.testing.assert_close(gradients(model), gradients(once), rtol=0, atol=1e-6)
    for name, buffer in once.named_buffers():
        assert torch.equal(model.get_buffer(name), buffer), name
    assert model[1].num_batches_tracked == 3


def peak_bytes(step):
    """The most that the allocator of torch holds during a call beyond what it held before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        step()
    changes = [
        event for event in recorded.profiler.kineto_results.events() if event.name() == "[memory]"
    ]
    held = peak = 0
    for event in sorted(changes, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


@pytest.mark.skipif(
    _native.library is None,
    reason="without kernels the loss sorts all scores, in memory of its own",
)
@pytest.mark.filterwarnings("ignore:.*:UserWarning:torch.profiler")
def test_memory_is_that_of_one_micro_batch_and_the_scores():
    images, loss = segmentation(samples=32, side=24)
    target = torch.randint(3, (4, 24, 24))
    scores = 32 * 3 * 24 * 24 * 4
    models = [
        network(nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1)) for _ in range(3)
    ]
    one = peak_bytes(lambda: eg.lovasz_softmax_loss(models[0](images[:4]), target).backward())
    two_passes = peak_bytes(lambda: micro_batch_backward(models[1], images, loss, size=4))
    one_pass = peak_bytes(lambda: loss(models[2](images)).backward())
    assert two_passes <= 1.2 * one + scores
    assert one_pass > 4 * one  # what the two passes save


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 1)

    def forward(self, left, right):
        return (self.linear(left) * right).squeeze(1)


def test_several_inputs():
    inputs, target, model = (torch.randn(7, 3), torch.randn(7, 1)), torch.arange(7) % 2, Pair()
    whole = copy.deepcopy(model)
    loss = eg.AveragePrecisionHingeLoss()
    loss(whole(*inputs), target).backward()
    micro_batch_backward(model, inputs, lambda scores: loss(scores, target), size=2)
    torch.testing.assert_close(gradients(model), gradients(whole), rtol=0, atol=1e-6)


def test_what_the_loss_learns_gets_its_gradient_too():
    inputs, target = torch.randn(8, 3), torch.tensor([0, 1] * 4)
    model, loss = nn.Linear(3, 1), eg.ROCAUC()
    learned = [*model.parameters(), *loss.parameters()]
    same = copy.deepcopy(loss)  # its thresholds begin at the scores of the first batch
    value = same(model(inputs).squeeze(1), target)
    expected = torch.autograd.grad(value, [*model.parameters(), *same.parameters()])
    micro_batch_backward(model, inputs, lambda scores: loss(scores.squeeze(1), target), size=3)
    torch.testing.assert_close([p.grad for p in learned], list(expected))
    assert len(learned) > 2


def _over_ranks(rank, world):
    """Micro-batches within ranks: 5 samples in three, against 3 in two, one process with 8."""
    torch.manual_seed(0)
    model, images, target = (
        network().double(),
        torch.randn(8, 2, 6, 6).double(),
        torch.randint(3, (8, 6, 6)),
    )
    alone, own = copy.deepcopy(model), slice(0, 5) if rank == 0 else slice(5, 8)
    eg.lovasz_softmax_loss(alone(images), target).backward()
    loss, wrapped = global_batch(eg.lovasz_softmax_loss), DistributedDataParallel(model)
    micro_batch_backward(wrapped, images[own], lambda scores: loss(scores, target[own]), size=2)
    return (gradients(wrapped) - gradients(alone)).abs().max().item()


def test_micro_batches_of_ranks():
    errors = ranks.run(2, _over_ranks)
    assert all(error < 1e-10 for error in errors), errors


@pytest.mark.parametrize(
    ("error", "inputs", "size", "message"),
    [
        (
            TypeError,
            [1.0],
            2,
            (
                r"micro_batch_backward: `inputs` must be a tensor or a tuple of tensors with"
                r" samples; got \[1.0\]"
            ),
        ),
        (
            ValueError,
            (torch.ones(3, 2), torch.ones(4)),
            2,
            r"micro_batch_backward: `inputs` must be of equal length; got \[3, 4\]",
        ),
        (ValueError, torch.ones(3, 2), 0, "micro_batch_backward: `size` must be at least 1; got 0"),
    ],
)
def test_messages(error, inputs, size, message):
    with pytest.raises(error, match=message):
        micro_batch_backward(nn.Linear(2, 1), inputs, lambda scores: scores.sum(), size=size)


class Two(nn.Linear):
    def forward(self, x):
        return super().forward(x), x


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": torch.sum}, "`model` must be an nn.Module; got <built-in method sum"),
        ({"loss": 3}, "`loss` must be a function of the scores; got 3"),
        ({"inputs": torch.ones(4, 2).to_sparse()}, "`inputs` must be a dense tensor; got"),
        ({"model": Two(2, 1)}, "`model` must be a function of one tensor of scores, with samples;"),
        ({"loss": lambda scores: scores}, "`loss` must be a function of a tensor of one number"),
        ({"loss": lambda scores: scores.detach().sum()}, "of one number that depends on the scor"),
        ({"loss": lambda scores: 0.0}, "of one number .*; got one that returns 0.0. Use reduction"),
    ],
)
def test_a_model_and_a_loss_that_are_none(change, message):
    right = {"model": nn.Linear(2, 1), "inputs": torch.ones(4, 2), "loss": torch.Tensor.sum}
    with pytest.raises(TypeError, match=f"micro_batch_backward: .*{message}"):
        micro_batch_backward(**{**right, **change}, size=2)
