"""The exact proximal operator of the Lovász extension of the Jaccard loss (the paper's appendix C,
corrected).

The proximal point u of x minimises f(u) + lam/2 ||u - x||^2. Its level set {u >= t} minimises F(A)
- lam sum_A (x_i - t), and the Jaccard loss F(A) depends only on the numbers (a, b) of foreground
and background items in A and is linear in a for fixed b. So the best set is a prefix of the sorted
foreground and a prefix of the sorted background, and one level t takes one scan over b. Divide and
conquer: try the level at which a segment would be constant; if some smaller set does better, split
the segment there. All segments of a row are tried at once; the number of rounds is the depth of the
division, about log n as a rule.
"""

import torch
from torch import Tensor

from evalgrad import _native
from evalgrad._inputs import set_rows
from evalgrad._options import checked, flag, number
from evalgrad._rows import working

LAM = number(above=0, repair="lam multiplies the quadratic term; 1.0 is a start.")


@checked(lam=LAM, hinge=flag)
def lovasz_prox(
    errors: Tensor,
    foreground: Tensor,
    *,
    lam: float,
    hinge: bool = False,
    mask: Tensor | None = None,
) -> Tensor:
    """Proximal point of the Lovász extension of the Jaccard loss, over the last axis; exact, and
    without a graph.

    A step of the proximal method moves x to u, that is, along the gradient lam (x - u):
    `lovasz_hinge_loss(gradient="prox")` trains with it.

    Args:
        errors: ``(*, n)``, the point x.
        foreground: bool, the same shape.
        lam: factor of the quadratic term, > 0. The larger, the closer u stays to x.
        hinge: take the extension of max(u, 0) instead of u, so that x are margins 1 - F y of either
            sign.
        mask: bool, the same shape, True = counts. Items left out are as if absent, and stay where
            they are.

    Example:
        >>> lovasz_prox(torch.tensor([1.0, 0.2]), torch.tensor([True, False]), lam=4.0)
        tensor([0.7500, 0.2000])
    """
    found = set_rows("lovasz_prox", errors, foreground, mask)
    u = proximal_point(working(found.rows), found.positive, found.mask, lam=lam, hinge=hinge)
    if found.invalid is not None:
        u = u.masked_fill(found.invalid.unsqueeze(1), torch.nan)
    return u.to(found.rows.dtype).reshape(*found.shape, u.shape[-1])


def proximal_point(
    x: Tensor, foreground: Tensor, mask: Tensor | None, *, lam: float, hinge: bool
) -> Tensor:
    """`lovasz_prox` of rows ``(R, n)``, without the checks."""
    counts = torch.ones_like(foreground) if mask is None else mask
    u: Tensor = _prox_rows(x, foreground, counts, float(lam))
    if hinge:  # where the extension would pull u below 0 the hinge is flat
        u = torch.maximum(u, x.clamp(max=0))
    return u if mask is None else torch.where(mask, u, x)


def _jaccard(total: int, a: Tensor, b: Tensor) -> Tensor:
    """F: the Jaccard loss when a of `total` foreground items and b background items are wrong."""
    return (a + b).double() / (total + b) if total else (b > 0).double()


class _Prefix:
    """Items of one kind in decreasing order of x, with the sums of every prefix."""

    def __init__(self, x: Tensor, chosen: Tensor) -> None:
        (index,) = chosen.nonzero(as_tuple=True)
        self.x, order = x[index].sort(descending=True)
        self.index = index[order]
        self.sums = torch.cat([x.new_zeros(1), self.x.cumsum(0)])

    def between(self, start: Tensor, end: Tensor) -> Tensor:
        return self.sums[end] - self.sums[start]

    def above(self, bound: Tensor, start: Tensor, end: Tensor) -> Tensor:
        """End of the part of [start, end) with x > bound."""
        return torch.searchsorted(-self.x, -bound).clamp(start, end)


def _spread(lengths: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """For ranges of the given lengths: which range each position belongs to, and the position
    counted from its start.
    """
    owner = torch.repeat_interleave(lengths)
    first = lengths.cumsum(0) - lengths
    return owner, start[owner] + torch.arange(owner.shape[0], device=start.device) - first[owner]


def _least(cost: Tensor, owner: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Smallest cost of each owner, and where it first stands."""
    best = cost.new_full((count,), torch.inf).scatter_reduce(0, owner, cost, "amin")
    hits = (cost == best[owner]).nonzero().squeeze(1)
    return best, owner.new_zeros(count).index_put((owner[hits].flip(0),), hits.flip(0))


def _prox_row(x: Tensor, foreground: Tensor, lam: float) -> Tensor:
    """One row, float64. A segment is a range [a0, a1) of the sorted foreground with a range [b0,
    b1) of the background.
    """
    front, back, total = _Prefix(x, foreground), _Prefix(x, ~foreground), int(foreground.sum())
    u = torch.empty_like(x)
    segments = torch.tensor([[0], [total], [0], [x.shape[0] - total]], device=x.device)
    while segments.shape[1]:
        a0, a1, b0, b1 = segments
        base, size = _jaccard(total, a0, b0), a1 - a0 + b1 - b0
        level = (
            front.between(a0, a1) + back.between(b0, b1) - (_jaccard(total, a1, b1) - base) / lam
        ) / size
        # For every b in [b0, b1] of every segment the best a, which takes what exceeds the level by
        # F's slope in a.
        own, b = _spread(b1 - b0 + 1, b0)
        a = front.above(level[own] + 1 / (lam * (total + b).clamp(min=1)), a0[own], a1[own])
        taken = a - a0[own] + b - b0[own]
        gain = front.between(a0[own], a) + back.between(b0[own], b) - level[own] * taken
        best, at = _least(_jaccard(total, a, b) - base[own] - lam * gain, own, segments.shape[1])
        # Better than taking nothing by more than rounding: split there. Otherwise the segment is
        # constant at its level.
        split = (
            (best < -1e-15 * (1 + lam * size * level.abs())) & (taken[at] > 0) & (taken[at] < size)
        )
        for side, start, end in ((front, a0, a1), (back, b0, b1)):
            painted, position = _spread(torch.where(split, 0, end - start), start)
            u[side.index[position]] = level[painted]
        upper, lower = torch.stack([a0, a[at], b0, b[at]]), torch.stack([a[at], a1, b[at], b1])
        segments = torch.cat([upper[:, split], lower[:, split]], dim=1)
    return u


def _prox_rows_pure(x: Tensor, foreground: Tensor, mask: Tensor, lam: float) -> Tensor:
    u = x.clone(memory_format=torch.contiguous_format)
    for i in range(x.shape[0]):
        counted = mask[i]
        if bool(counted.any()):  # float64: the sums would lose the small differences that decide
            u[i, counted] = _prox_row(x[i, counted].double(), foreground[i, counted], lam).to(
                x.dtype
            )
    return u


def _prox_rows_native(x: Tensor, foreground: Tensor, mask: Tensor, lam: float) -> Tensor:
    u = torch.empty(x.shape, dtype=torch.float64)
    _native.call("lovasz_prox", x.double(), foreground, mask, *x.shape, lam, u)
    return u.to(x.dtype)


def _empty(x: Tensor, foreground: Tensor, mask: Tensor, lam: float) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


_prox_rows = _native.operator(
    "lovasz_prox(Tensor x, Tensor foreground, Tensor mask, float lam) -> Tensor",
    pure=_prox_rows_pure,
    native=_prox_rows_native,
    fake=_empty,
    dtypes=(torch.float32, torch.float64),
)
