"""The gradient of a large batch with the memory of a small one.

Plain gradient accumulation adds up the losses of micro-batches, which for a loss that follows a
metric is not the loss of the batch. Two passes give the exact gradient: first the scores of all
micro-batches without a graph, and the gradient of the loss in the scores; then each micro-batch
again, with a graph, whose backward pass starts from its slice of that gradient. The price is a
second forward.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from evalgrad._errors import describe, fail
from evalgrad._inputs import plain
from evalgrad._options import integer


def micro_batch_backward(
    model: nn.Module,
    inputs: Tensor | tuple[Tensor, ...],
    loss: Callable[[Tensor], Tensor],
    *,
    size: int,
    backward: Callable[[Tensor, Tensor], object] = Tensor.backward,
) -> Tensor:
    """Add the gradient of ``loss(model(*inputs))`` to the parameters, with a graph of `size`
    samples at a time.

    It replaces the forward and the backward pass of one training step and returns the value of the
    loss. Both passes see the same random numbers and the same buffers, so dropout uses the same
    mask, and the running statistics of BatchNorm are those after one forward pass of each
    micro-batch. As in any gradient accumulation, BatchNorm normalises by the statistics of the
    micro-batch. With DDP the gradients are reduced once, at the last micro-batch.

    Args:
        model: returns one tensor of scores, with the samples in dim 0. It must not depend on any
            other state that changes.
        inputs: the model's input tensors for the whole batch, with the samples in dim 0.
        loss: a function of the scores of the whole batch, e.g. ``lambda scores: criterion(scores,
            target)``; with several processes, use a `global_batch` inside.
        size: samples per micro-batch; it determines the peak memory.
        backward: how to go backward from the scores of a micro-batch and their gradient; with
            Lightning Fabric, ``fabric.backward``.

    Example:
        >>> model, target = nn.Linear(4, 1), torch.tensor([0, 1, 0, 1, 1, 0])
        >>> loss = lambda scores: (scores[:, 0] * target).sum()
        >>> value = micro_batch_backward(model, torch.randn(6, 4), loss, size=2)
        >>> model.bias.grad
        tensor([3.])
    """
    _check(model, inputs, loss, backward, size)
    size = int(size)
    given = inputs if isinstance(inputs, tuple) else (inputs,)
    parts = list(zip(*(x.split(size) for x in given), strict=True))
    buffers = [buffer.clone() for buffer in model.buffers()]
    with torch.random.fork_rng(_accelerators(model)):
        value, slopes = _slopes(model, parts, loss)
    with torch.no_grad():
        for buffer, before in zip(model.buffers(), buffers, strict=True):
            buffer.copy_(before)
    for i, (part, slope) in enumerate(zip(parts, slopes.split(size), strict=True)):
        with nullcontext() if i == len(parts) - 1 else _no_exchange(model):
            backward(model(*part), slope)
    return value


def _slopes(
    model: nn.Module, parts: list[tuple[Tensor, ...]], loss: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """The loss of the whole batch and its gradient in the scores. Parameters of the loss, such as
    thresholds, get theirs here.
    """
    with torch.no_grad():
        returned = [model(*part) for part in parts]
    if not all(isinstance(part, Tensor) and part.ndim for part in returned):
        must, repair = "one tensor of scores, with samples", "Wrap it in a module that picks them."
        _fail_returned("model", must, returned[0], repair)
    scores = torch.cat(returned).requires_grad_()
    with torch.enable_grad():
        value = loss(scores)
    depends = isinstance(value, Tensor) and value.numel() == 1 and value.requires_grad
    if depends:
        # not autograd.grad, which would leave out parameters of the loss itself
        value.backward()
    if not depends or scores.grad is None:
        must = "a tensor of one number that depends on the scores"
        _fail_returned("loss", must, value, 'Use reduction="mean", and nothing detached.')
    return value.detach(), scores.grad


def _no_exchange(model: nn.Module) -> AbstractContextManager[Any]:
    """DDP's own way to accumulate; elsewhere gradients may as well be exchanged for every
    micro-batch.
    """
    return (
        model.no_sync() if isinstance(model, nn.parallel.DistributedDataParallel) else nullcontext()
    )


def _accelerators(model: nn.Module) -> list[int]:
    """Devices whose random numbers the model may use; those of the CPU are always kept."""
    return sorted({p.device.index for p in model.parameters() if p.device.type == "cuda"})


def _fail_returned(argument: str, must: str, value: object, repair: str) -> NoReturn:
    got = f"one that returns {describe(value)}"
    fail(TypeError, "micro_batch_backward", argument, f"a function of {must}", got, repair)


def _check(model: object, inputs: object, loss: object, backward: object, size: int) -> None:
    function = "micro_batch_backward"
    if not isinstance(model, nn.Module):
        repair = "Its parameters get the gradient: pass the module itself."
        fail(TypeError, function, "model", "an nn.Module", describe(model), repair)
    if not callable(loss):
        repair = "Pass e.g. `lambda scores: criterion(scores, target)`."
        fail(TypeError, function, "loss", "a function of the scores", describe(loss), repair)
    if not callable(backward):
        must, repair = "a function of two tensors", "Leave it out, or pass `fabric.backward`."
        fail(TypeError, function, "backward", must, describe(backward), repair)
    _check_inputs(function, inputs if isinstance(inputs, tuple) else (inputs,), inputs)
    repair = "Use the largest number of samples that fits into memory."
    integer(1, repair=repair)(function, "size", size)


def _check_inputs(function: str, given: tuple[Any, ...], inputs: object) -> None:
    if not given or not all(isinstance(x, Tensor) and x.ndim for x in given):
        must = "a tensor or a tuple of tensors with samples"
        repair = "Bind other arguments in a module that calls `model(x, option)`."
        fail(TypeError, function, "inputs", must, describe(inputs), repair)
    for x in given:
        if x.is_nested or x.layout is not torch.strided or x.is_quantized:
            plain(function, "inputs", x)  # which says how to convert it
    lengths = [len(x) for x in given]
    if len(set(lengths)) > 1:
        repair = "Every sample needs all inputs."
        fail(ValueError, function, "inputs", "of equal length", repr(lengths), repair)
