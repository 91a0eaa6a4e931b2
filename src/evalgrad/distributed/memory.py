"""Past scores beside the present ones, for ranking losses whose batch is too small to rank in.

The average precision of a handful of items says little. A ring buffer of earlier scores makes the
list longer at the cost of a copy. What it holds is stale: scores of the network as it was some
steps ago. They have no gradient; with a fast-moving network keep few.
"""

from __future__ import annotations  # a torch built without `distributed` has no ProcessGroup

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from evalgrad._errors import describe, fail
from evalgrad._inputs import floating, like
from evalgrad._labels import read_mask
from evalgrad._options import integer
from evalgrad.distributed.gather import check_group, gather_batch


class CrossBatchMemory(nn.Module):
    """Returns the scores of the batch followed by stored ones of earlier batches; in training mode
    it then stores the batch.

    Over ranks the batch is the union of the ranks' batches, so that the memory is the same on every
    rank and the loss is that of the global batch (do not wrap it in `global_batch`). Everything is
    a buffer: a run resumed from a state_dict is bitwise the same.

    Args:
        capacity: how many scores are stored per list; the oldest are dropped first.
        lists: the leading dimensions of the scores: ``()`` for scores ``(n,)``, ``(classes,)`` for
            ``(classes, n)``.
        group: the ranks among which the gradients are averaged; None: all.

    Example:
        >>> import evalgrad as eg
        >>> memory, loss = CrossBatchMemory(1024), eg.DirectAveragePrecisionLoss()
        >>> for scores in torch.randn(3, 8, requires_grad=True):
        ...     scores, target, mask = memory(scores, torch.arange(8) < 2)
        ...     loss(scores, target, mask).backward()
        >>> mask.sum()  # 8 of this batch, 16 of the two before
        tensor(24)
    """

    scores: Tensor
    target: Tensor
    mask: Tensor
    place: Tensor

    def __init__(
        self, capacity: int, *, lists: Sequence[int] = (), group: dist.ProcessGroup | None = None
    ) -> None:
        super().__init__()
        repair = "Try the number of items in a few dozen batches."
        integer(1, most=2**24, repair=repair)("CrossBatchMemory", "capacity", capacity)
        _check_lists(lists)
        check_group("CrossBatchMemory", group)
        self.capacity, self.lists, self.group = capacity, tuple(lists), group
        self.register_buffer("scores", torch.zeros(*self.lists, capacity))
        self.register_buffer("target", torch.zeros(*self.lists, capacity, dtype=torch.int64))
        self.register_buffer("mask", torch.zeros(*self.lists, capacity, dtype=torch.bool))
        # where the next score goes
        self.register_buffer("place", torch.zeros((), dtype=torch.int64))

    def forward(
        self, scores: Tensor, target: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Scores, target and mask of the present and the remembered items, along the last axis.

        Args:
            scores: ``(*lists, n)``, this rank's.
            target: the same shape, bool or integers. Any integer is stored, because labels of
                retrieval are names: it is the loss that refuses one.
            mask: bool, the same shape, True = keep.
        """
        scores, target, mask = self._plain(scores, target, mask)
        now = [gather_batch(x, self.group, dim=-1) for x in (scores, target, mask)]
        pairs = zip(now, (self.scores, self.target, self.mask), strict=True)
        scores, target, mask = (
            torch.cat([present, past.to(present.dtype)], -1) for present, past in pairs
        )
        if self.training:
            self._remember(*now)
        return scores, target, mask

    @torch.no_grad()
    def _remember(self, *now: Tensor) -> None:
        count = now[0].shape[-1]
        latest = range(count)[-self.capacity :]
        places = (
            self.place + torch.arange(latest.start, count, device=self.place.device)
        ) % self.capacity
        for past, present in zip((self.scores, self.target, self.mask), now, strict=True):
            past.index_copy_(-1, places, present[..., latest.start :].to(past.dtype))
        self.place.add_(count).remainder_(self.capacity)

    def _plain(
        self, scores: Tensor, target: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        name = "CrossBatchMemory"
        scores = floating(name, "scores", scores)
        target = like(name, "target", target, scores)
        if target.is_floating_point() or target.is_complex():
            repair = "Convert labels with `.long()`; soft labels and grades cannot be stored."
            fail(TypeError, name, "target", "bool or integers", describe(target), repair)
        mask = torch.ones_like(target, dtype=torch.bool) if mask is None else mask
        mask = read_mask(name, like(name, "mask", mask, scores))
        if tuple(scores.shape[:-1]) != self.lists:
            must, repair = (
                f"of shape {(*self.lists, 'n')}",
                "Pass the leading dimensions to the constructor: `lists=(classes,)`.",
            )
            fail(ValueError, name, "scores", must, describe(scores), repair)
        return scores, target, mask

    def extra_repr(self) -> str:
        return f"{self.capacity}, lists={self.lists}"


def _check_lists(lists: object) -> None:
    repair = "Pass the leading dimensions of the scores, e.g. lists=(classes,)."
    if not isinstance(lists, Sequence) or isinstance(lists, str):
        fail(TypeError, "CrossBatchMemory", "lists", "a tuple of sizes", describe(lists), repair)
    for size in lists:
        integer(0, most=2**24, repair=repair)("CrossBatchMemory", "lists", size)
