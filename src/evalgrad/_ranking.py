"""Orders: who stands ahead of whom, on any device, without a sync."""

import torch
from torch import Tensor


def descending(values: Tensor, mask: Tensor | None = None) -> Tensor:
    """Indices that sort the last axis in decreasing order, NaN first; what the mask leaves out
    counts as -inf.
    """
    keys = values if mask is None else values.masked_fill(~mask, -torch.inf)
    return keys.argsort(dim=-1, descending=True, stable=True)


def against_the_model(scores: Tensor, target: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Scores sorted along the last axis in decreasing order, and the order: negatives ahead of the
    positives they tie with.

    Equal items of one class keep their order; what the mask leaves out, and NaN, counts as -inf;
    what is left out comes last.
    """
    kind = target.to(torch.uint8)
    if mask is not None:
        kind, scores = kind.masked_fill(~mask, 2), scores.masked_fill(~mask, -torch.inf)
    by_kind = kind.argsort(dim=-1, stable=True)
    ranked, by_score = (
        scores.nan_to_num(-torch.inf, torch.inf, -torch.inf)
        .gather(-1, by_kind)
        .sort(dim=-1, descending=True, stable=True)
    )
    return ranked, by_kind.gather(-1, by_score)
