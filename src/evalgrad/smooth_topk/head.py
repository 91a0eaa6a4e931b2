"""The head of `expansion`: S_j of the largest x, added up in descending order, and the way back.

    S_j <- S_j + exp(x_i - x_[j]) S_{j-1}     for every item i, the largest first

in double. Every factor that meets a non-zero S_{j-1} is at most 1. Degree by degree this is one
running sum over the items. The derivative by S_j behind an item is the same run from the other end,
so the two go together. S_j is at most binomial(items, j) < 2^items: more than LONG items take
another way.
"""

import torch
from torch import Tensor


def falls(top: Tensor, k: int, inverse: float) -> Tensor:
    """x_i - x_[j] <= 0 of the scores ``top (R, H)``, descending, times `inverse`: (R, k, H). Items
    before the j-th count as equal to it.
    """
    return ((top.unsqueeze(-2) - top[:, :k].unsqueeze(-1)) * inverse).clamp_max(0)


def run_head(falling: Tensor, pairs: Tensor, marginals: int) -> tuple[Tensor, Tensor]:
    """log S_j of all classes, (R, K), and p_j of the head for the last degrees, (R, marginals, H);
    `pairs` as `expansion._pairs` makes them.
    """
    # Before item j, where its factors mean nothing, S_j is 0.
    k, factors = falling.shape[1], falling.exp()
    # Forwards from S_0 = 1, as the first row of pairs says; backwards from d S_j / d S_b of the
    # head, up to a factor.
    ends = pairs[:, k + 1 - marginals :].flip(-1)
    starts = torch.cat([pairs[:, :1], ends], 1).softmax(-1)
    backwards = factors.flip(-2, -1).unsqueeze(1).expand(-1, marginals, -1, -1)
    runs = _runs(starts, torch.cat([factors.unsqueeze(1), backwards], 1))
    before, behind = runs[:, 0], runs[:, 1:].flip(-2, -1)
    log_s = torch.logsumexp(pairs + before[..., -1].log().unsqueeze(1), -1)
    # by S_j behind item i, times what item i adds to it; over S_j itself, the way back to no item
    added = (factors * before[:, :-1, :-1]).unsqueeze(1)
    return log_s, (behind[:, :, 1:, 1:] * added).sum(2) / behind[:, :, 0, :1]


def _runs(start: Tensor, factors: Tensor) -> Tensor:
    """S_j before each item and after the last, (*, K, H + 1), from S_j before the first, (*, K)."""
    first, *later = start.split(1, dim=-1)
    rows = [first.expand(*first.shape[:-1], factors.shape[-1] + 1)]
    for before, factor in zip(later, factors.unbind(-2), strict=True):
        rows.append(torch.cat([before, factor * rows[-1][..., :-1]], -1).cumsum(-1))
    return torch.stack(rows, -2)
