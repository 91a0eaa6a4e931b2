"""Totals over the whole data, from what the minibatches showed: a score cache, or a fading sum of
batch totals.

The measures are ratios of totals, so a batch alone is biased. With `index=` the last score of every
item is kept and totals are exact up to staleness; without it the totals of every batch are added to
a sum of which each earlier batch keeps the share `momentum`. Either way they end as the rates of
`programs`.
"""

import hashlib
from typing import Any

import torch
from torch import Tensor, nn

from evalgrad._errors import fail
from evalgrad._labels import readable
from evalgrad.s_measures.batch import Batch
from evalgrad.s_measures.layout import Members
from evalgrad.s_measures.surrogate_errors import error_totals
from evalgrad.s_measures.surrogates import Surrogate

# The multipliers cost more than the loss of a small batch, so that they move every so many batches;
# with a cache, whose totals cost a look at every item, not before a part of the data has passed.
EVERY, PARTS = 16, 8


def rates(totals: Tensor, prior: Tensor | float, *, hard: bool = False) -> Tensor:
    """(K, 4): the rates (T, F, R, 1) by surrogate or by hard counts. `prior` = negatives per
    positive.
    """
    error = totals[..., 1 if hard else 0] / totals[..., 2].clamp_min(torch.finfo(totals.dtype).tiny)
    alarm = error[:, 1]
    return torch.stack([1 - error[:, 0], prior * alarm, alarm, torch.ones_like(alarm)], dim=-1)


def keep(state: Tensor, new: Tensor, due: Tensor | bool) -> None:
    """Write the new state over the old if it is due; in a graph, which has no branch, a choice."""
    state.copy_(new if due is True else torch.where(due, new, state))  # type: ignore[arg-type]


class Counts(nn.Module):
    """What one group knows about the data: its labels `positives` (N,) if given, cached scores,
    averaged totals.
    """

    cache: Tensor
    totals: Tensor
    labels: Tensor
    positives: Tensor

    def __init__(self, known: Members | None, rows: int, surrogate: Surrogate) -> None:
        super().__init__()
        nothing = torch.zeros(0, dtype=torch.bool)
        labels, counted = (nothing, nothing) if known is None else (x.clone() for x in known)
        self.surrogate, self.counting = surrogate, int(counted.sum())
        negatives = (counted & ~labels).sum()
        self.known_prior = None if known is None else float(negatives / labels.sum())
        self.fingerprint = hashlib.blake2b(labels.numpy().tobytes(), digest_size=16).hexdigest()
        # Tensors, to move inside a graph; no buffers, to stay on the CPU, where a look at them
        # waits for nothing. Batches or items since the last move: due at the first batch.
        self.progress = torch.tensor(max(EVERY, len(labels)))
        self.indexed = torch.zeros((), dtype=torch.bool)  # whether the last batch had positions
        self.register_buffer("cache", torch.full(labels.shape, torch.nan))  # NaN: not seen yet
        self.register_buffer("totals", torch.zeros(rows, 2, 3))
        self.register_buffer("labels", labels, persistent=False)
        self.register_buffer("positives", labels.nonzero().squeeze(1), persistent=False)

    def take(self, batch: Batch) -> Tensor | bool:
        """Take a batch in; says whether the multipliers are due to move."""
        self.indexed.fill_(batch.position is not None)
        if batch.position is None:
            return self._tick(1, EVERY)
        self.store(batch.scores.detach(), batch.positive, batch.position, batch.mask)
        size, items = batch.scores.shape[0], self.counting
        return self._tick(size, min(items, max(EVERY * size, items // PARTS)))

    def _tick(self, step: int, cycle: int) -> Tensor | bool:
        """Move the clock; it starts anew when it reaches the cycle. Tensors in a graph, which has
        no branches.
        """
        if torch.compiler.is_compiling():
            due = self.progress.add_(step) >= cycle
            self.progress.mul_(~due)
            return due
        progress = int(self.progress) + step
        self.progress.fill_(0 if progress >= cycle else progress)
        return progress >= cycle

    def store(
        self, scores: Tensor, positive: Tensor, index: Tensor, mask: Tensor | None = None
    ) -> None:
        """Remember the scores of a batch; an item drawn twice counts once."""
        if readable(index):
            check_index(index, positive, self.labels)
        new = scores.to(self.cache.dtype)
        if mask is not None and len(mask):
            new, index = self._of_the_first(new, index, mask)
        self.cache.scatter_(0, index, new)

    def _of_the_first(self, new: Tensor, index: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Where items cannot be dropped, those that do not count repeat the first that does: their
        own positions may be none at all, or those of others in the batch.
        """
        first = mask.int().argmax(0, keepdim=True)
        some = mask.gather(0, first)
        score = torch.where(some, new.gather(0, first), self.cache[:1])
        place = torch.where(some, index.gather(0, first), 0)
        return torch.where(mask, new, score), torch.where(mask, index, place)

    def cached(
        self, threshold: Tensor, *, scale: Tensor | None = None, due: Tensor | bool = True
    ) -> Tensor:
        """Totals of the items seen so far, at the present thresholds; see `error_totals`."""
        return error_totals(
            self.cache, self.labels, threshold, self.surrogate, scale=scale, due=due
        )

    def prior(self) -> Tensor | float:
        """Negatives per positive: of the labels, else of the batches seen, 1 before the first."""
        if self.known_prior is not None:
            return self.known_prior
        positives, negatives = self.totals[0, :, 2].unbind()
        return torch.where(positives.minimum(negatives) > 0, negatives / positives, 1)

    def complete(self) -> bool:
        """Whether every item that counts has been scored."""
        return self.seen() >= self.counting

    def seen(self) -> int:
        """How many items have been scored."""
        return int((~self.cache.isnan()).sum())

    def get_extra_state(self) -> dict[str, Any]:
        return {
            "positives": self.fingerprint,
            "progress": int(self.progress),
            "indexed": bool(self.indexed),
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.progress.fill_(state["progress"])
        self.indexed.fill_(state["indexed"])


def check_index(index: Tensor, positive: Tensor, labels: Tensor) -> None:
    """Positions in the data, where the label is that of the batch."""
    if not len(index):
        return
    low, high = map(int, index.aminmax())
    if low < 0 or high >= len(labels):
        must = f"in 0..{len(labels) - 1}, the positions in `labels`"
        repair = "Let the dataset return the position of each item."
        fail(ValueError, "S-measure", "index", must, f"{low} to {high}", repair)
    found = labels.index_select(0, index)
    if not torch.equal(found, positive):
        item = int(index[found != positive][0])
        repair = (
            "Pass the dataset positions of the batch, not positions within it, and `labels` in the"
            " order of the dataset."
        )
        must, got = "equal to `labels` at `index`", f"a different label for item {item}"
        fail(ValueError, "S-measure", "target", must, got, repair)
