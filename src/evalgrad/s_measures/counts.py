"""Totals over the whole data, from what the minibatches showed: a score cache, or a moving average
of batch totals.

The measures are ratios of totals, so a batch alone is biased. With `index=` the last score of every
item is kept and totals are exact up to staleness; without it the batch totals are averaged. Either
way they end as the rates of `programs`.
"""

import hashlib
from typing import Any

import torch
from torch import Tensor, nn

from evalgrad._labels import readable
from evalgrad.s_measures.surrogate_errors import error_totals
from evalgrad.s_measures.surrogates import Surrogate

# batches of the moving average between new totals; with a cache it is one pass over the data
EVERY = 32


def rates(totals: Tensor, prior: Tensor | float, *, hard: bool = False) -> Tensor:
    """(K, 4): the rates (T, F, R, 1) by surrogate or by hard counts. `prior` = negatives per
    positive.
    """
    error = totals[..., 1 if hard else 0] / totals[..., 2].clamp_min(torch.finfo(totals.dtype).tiny)
    alarm = error[:, 1]
    return torch.stack([1 - error[:, 0], prior * alarm, alarm, torch.ones_like(alarm)], dim=-1)


class Counts(nn.Module):
    """What one group knows about the data: its labels `positives` (N,) if given, cached scores,
    averaged totals.
    """

    cache: Tensor
    totals: Tensor
    labels: Tensor
    positives: Tensor

    def __init__(self, positives: Tensor | None, rows: int, momentum: float = 0.9) -> None:
        super().__init__()
        labels = torch.zeros(0, dtype=torch.bool) if positives is None else positives.clone()
        self.momentum = float(momentum)  # a kernel takes no integer for it
        self.known_prior = None if positives is None else float((~labels).sum() / labels.sum())
        self.fingerprint = hashlib.blake2b(
            labels.cpu().numpy().tobytes(), digest_size=16
        ).hexdigest()
        # Tensors, to move inside a graph; no buffers, to stay on the CPU, where a look at them
        # waits for nothing.
        # batches or items since the last totals: due at the first batch
        self.progress = torch.tensor(max(EVERY, len(labels)))
        self.indexed = torch.zeros((), dtype=torch.bool)
        # of the kernel of `plain_batch` on the last batch; no state
        self.report = torch.zeros((), dtype=torch.int64)
        self.register_buffer("cache", torch.full(labels.shape, torch.nan))  # NaN: not seen yet
        self.register_buffer("totals", torch.zeros(rows, 2, 3))
        self.register_buffer("labels", labels, persistent=False)
        self.register_buffer("positives", labels.nonzero().squeeze(1), persistent=False)

    def update(
        self,
        scores: Tensor,
        positive: Tensor,
        index: Tensor | None,
        batch_totals: Tensor,
        threshold: Tensor,
        surrogate: Surrogate,
    ) -> Tensor:
        """Take one batch in; says whether the totals are new, not at every batch: the multipliers
        cost more than the loss.
        """
        due = self.progress.add_(1 if index is None else scores.shape[0]) >= self.cycle(index)
        if index is None:
            self.indexed.fill_(False)
        else:
            self.store(scores, positive, index)
        if torch.compiler.is_compiling() or due:
            new = (
                self._averaged(batch_totals)
                if index is None
                else self.cached(threshold, surrogate, due=due)
            )
            self.totals.copy_(torch.where(due, new, self.totals))
            self.progress.mul_(~due)
        return due

    def cycle(self, index: Tensor | None) -> int:
        """Batches of a moving average, or items of a cache, between new totals."""
        return EVERY if index is None else self.cache.shape[0]

    def store(self, scores: Tensor, positive: Tensor, index: Tensor) -> None:
        """Remember the scores of a batch; an item drawn twice counts once."""
        if readable(index):
            check_index(index, positive, self.labels)
        self.indexed.fill_(True)
        self.cache.scatter_(0, index, scores.to(self.cache.dtype))

    def cached(self, threshold: Tensor, surrogate: Surrogate, **options: Tensor) -> Tensor:
        """Totals of the items seen so far, at the present thresholds; options of `error_totals`."""
        return error_totals(self.cache, self.labels, threshold, surrogate, **options)

    def prior(self) -> Tensor | float:
        """Negatives per positive: of the labels, else of the batches seen, 1 before the first."""
        size = self.totals[0, :, 2]
        return (
            torch.where(size.amin() > 0, size[1] / size[0], 1)
            if self.known_prior is None
            else self.known_prior
        )

    def _averaged(self, batch_totals: Tensor) -> Tensor:
        new = batch_totals.to(self.totals)
        # An overflowed batch stays out: a gradient scaler skips its step, and an infinite average
        # would never recover.
        return torch.where(
            new.isfinite().all(), torch.lerp(new, self.totals, self.momentum), self.totals
        )

    def get_extra_state(self) -> dict[str, Any]:
        return {
            "positives": self.fingerprint,
            "progress": int(self.progress),
            "indexed": bool(self.indexed),
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.progress.fill_(state["progress"])
        self.indexed.fill_(state["indexed"])


def keep_single(module: nn.Module, fn: Any, recurse: bool = True) -> nn.Module:
    """`_apply` of the solvers: `.half()` moves them but leaves their state in single precision,
    which totals need.
    """

    def wide(tensor: Tensor) -> Tensor:
        moved = fn(tensor)
        return tensor.to(moved.device) if moved.dtype in (torch.float16, torch.bfloat16) else moved

    return nn.Module._apply(module, wide, recurse)


def check_index(index: Tensor, positive: Tensor, labels: Tensor) -> None:
    """Positions in the data, where the label is that of the batch."""
    if len(index) and not (int(index.min()) >= 0 and int(index.max()) < len(labels)):
        raise ValueError(
            f"S-measure: `index` must lie in 0..{len(labels) - 1}, the positions in `labels`; got"
            f" {int(index.min())} to {int(index.max())}. Let the dataset return the position of"
            " each item."
        )
    if not torch.equal(labels[index], positive):
        item = int(index[labels[index] != positive][0])
        raise ValueError(
            "S-measure: `target` must agree with `labels` at `index`; got another label for item"
            f" {item}. Pass the dataset positions of the batch, not positions within it, and"
            " `labels` in the order of the dataset."
        )


def same_positives(module: Any, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """Hook of the solvers before loading: refuse the state of other data while nothing has been
    copied yet.
    """
    state = state_dict.get(prefix + "counts._extra_state")
    if state is not None and state["positives"] != module.counts.fingerprint:
        raise ValueError(
            "load_state_dict: `labels` of this S-measure differ from those it was saved with, so"
            " its per-item state would belong to other items. Build it with the labels of the same"
            " data in the same order, or start a fresh one."
        )
