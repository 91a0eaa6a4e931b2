"""Any loss on the union of the ranks' batches.

A loss that follows a metric is not a mean over samples: the mean of the ranks' losses is not the
loss of their union, and training on it follows another objective, the more so the fewer items a
rank has. `global_batch` computes the loss of the union instead.
"""

from __future__ import annotations  # a torch built without `distributed` has no ProcessGroup

import inspect
from collections.abc import Callable, Collection
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from evalgrad._errors import describe, fail
from evalgrad._module import LossModule
from evalgrad._options import integer
from evalgrad.distributed import bin_counts
from evalgrad.distributed.gather import check_group, gather_batch, number_of_ranks
from evalgrad.lovasz import LovaszSoftmaxLoss

PER_ITEM = ("target", "mask", "index")  # the library's names of what belongs to the items
AXIS = "It is the axis of the items, e.g. dim=0."


def global_batch(
    loss: Callable[..., Tensor],
    group: dist.ProcessGroup | None = None,
    *,
    gather: Collection[str] = PER_ITEM,
    once: str | None = None,
    dim: int = 0,
) -> GlobalBatch:
    """Wrap a loss so that a call with this rank's tensors returns the loss of the concatenated
    batches of all ranks, the same on every rank.

    The gradient is scaled for DDP and FSDP2, which average it over the ranks: the average equals
    the gradient of one process with the concatenated batch. Every rank must call the loss at every
    step, with empty tensors if it has no items. Without an initialised process group it is the loss
    itself.

    Args:
        loss: a function or a module, of this library or any other. A module becomes a submodule, so
            its buffers are moved, saved and loaded.
        group: the ranks among which the gradients are averaged; None: all.
        gather: the names of keyword arguments that hold one entry per item. Tensors among the
            positional arguments are always gathered; every other keyword, such as `weight`, is
            passed on unchanged.
        once: name of the keyword argument with the position of each item in the dataset, e.g.
            ``"index"``. An item that several ranks have, for example from the padding of a
            `DistributedSampler`, is then used only once.
        dim: the dimension of the items, e.g. -1 for lists ``(classes, items)`` of a ranking loss.

    A `LovaszSoftmaxLoss` with `bins` over the batch all-reduces counts instead of gathering pixels:
    its communication does not depend on the number of pixels.

    Example:
        >>> import evalgrad as eg
        >>> loss = global_batch(eg.DirectAveragePrecisionLoss())
        >>> scores = torch.tensor([0.3, 0.1, 0.2], requires_grad=True)
        >>> round(loss(scores, torch.tensor([1, 1, 0])).item(), 4)  # one process: the loss itself
        0.1667
    """
    return GlobalBatch(loss, group, gather, once, dim)


class GlobalBatch(nn.Module):
    """The loss that `global_batch` returns: an `nn.Module` with the wrapped loss as `loss`.

    Args:
        loss: a function or a module, of this library or any other. A module becomes a submodule, so
            its buffers are moved, saved and loaded.
        group: the ranks among which the gradients are averaged; None: all.
        gather: the names of keyword arguments that hold one entry per item. Tensors among the
            positional arguments are always gathered; every other keyword, such as `weight`, is
            passed on unchanged.
        once: name of the keyword argument with the position of each item in the dataset, e.g.
            ``"index"``. An item that several ranks have, for example from the padding of a
            `DistributedSampler`, is then used only once.
        dim: the dimension of the items, e.g. -1 for lists ``(classes, items)`` of a ranking loss.

    Example:
        >>> import evalgrad as eg
        >>> loss = global_batch(eg.LovaszSoftmaxLoss())
        >>> isinstance(loss, GlobalBatch), isinstance(loss.loss, eg.LovaszSoftmaxLoss)
        (True, True)
    """

    def __init__(
        self,
        loss: Callable[..., Tensor],
        group: dist.ProcessGroup | None,
        gather: Collection[str],
        once: str | None,
        dim: int,
    ) -> None:
        super().__init__()
        _check_options(loss, gather, once)
        check_group("global_batch", group)
        integer(-64, 63, repair=AXIS)("global_batch", "dim", dim)
        self.loss, self.group, self.dim = loss, group, int(dim)
        self.gather, self.once = tuple(gather), once

    def forward(self, *tensors: Any, **keywords: Any) -> Tensor:
        self._check_dim([*tensors, *(keywords.get(name) for name in self.gather)])
        if number_of_ranks(self.group) == 1:
            return self.loss(*tensors, **keywords)
        if isinstance(self.loss, LovaszSoftmaxLoss) and bin_counts.applies(self.loss):
            return bin_counts.lovasz_softmax_loss(self.loss, *tensors, group=self.group, **keywords)
        union = [self._gathered(x) for x in tensors]
        named = {
            name: self._gathered(x) if name in self.gather else x for name, x in keywords.items()
        }
        if self.once is not None:
            keep = _first_of_each(named[self.once])
            union = [self._kept(x, keep) for x in union]
            named |= {name: self._kept(named[name], keep) for name in self.gather if name in named}
        return self.loss(*union, **named)

    def _check_dim(self, given: list[Any]) -> None:
        """Of what is gathered: one process must not hide it. Numbers are the loss's own matter."""
        for x in given:
            if isinstance(x, Tensor) and x.ndim and not -x.ndim <= self.dim < x.ndim:
                must = f"an axis of every tensor, here from {-x.ndim} to {x.ndim - 1}"
                fail(ValueError, "global_batch", "dim", must, repr(self.dim), AXIS)

    def _gathered(self, x: Any) -> Any:
        return gather_batch(x, self.group, dim=self.dim) if isinstance(x, Tensor) else x

    def _kept(self, x: Any, keep: Tensor) -> Any:
        return x.index_select(self.dim, keep) if isinstance(x, Tensor) else x

    def extra_repr(self) -> str:
        return f"gather={self.gather!r}, once={self.once!r}, dim={self.dim}"


def _first_of_each(index: Tensor) -> Tensor:
    """Places of the first occurrence of each value, in their order."""
    order = index.argsort(stable=True)
    ordered = index[order]
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return order[first].sort().values


def _check_options(loss: object, gather: object, once: object) -> None:
    function = "global_batch"
    if not callable(loss):
        must, repair = "a function or a module", "Pass the loss itself, not its value."
        fail(TypeError, function, "loss", must, describe(loss), repair)
    if isinstance(gather, str):
        repair = f"Write gather=({gather!r},)."
        fail(TypeError, function, "gather", "a tuple of names", repr(gather), repair)
    if not isinstance(gather, Collection) or not all(isinstance(name, str) for name in gather):
        repair = "Pass the names of keyword arguments of the loss."
        fail(TypeError, function, "gather", "a tuple of names", describe(gather), repair)
    if once is not None and not (isinstance(once, str) and once in gather):
        must, repair = "one of the names in `gather`", "Add it to `gather`."
        fail(ValueError, function, "once", must, describe(once), repair)
    _check_names(loss, gather)


def _check_names(loss: Callable[..., Any], gather: Collection[str]) -> None:
    """A name that the loss lacks would gather nothing; the usual ones are for many losses."""
    called: Any = type(loss).function if isinstance(loss, LossModule) else loss
    try:
        parameters = inspect.signature(getattr(called, "forward", called)).parameters.values()
    except (TypeError, ValueError):  # a function of C
        return
    names = {parameter.name for parameter in parameters}
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    for name in gather:
        if name not in names and name not in PER_ITEM:
            must, repair = "names of arguments of the loss", "Check the spelling."
            fail(ValueError, "global_batch", "gather", must, repr(name), repair)
