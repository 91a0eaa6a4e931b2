"""The exact proximal operator of the Lovász extension of the Jaccard loss (appendix C of Berman,
Rannen Triki, Blaschko: The Lovász-Softmax loss, CVPR 2018, corrected; docs/maths.md, "The proximal
point").

The proximal point u of x minimises f(u) + lam/2 ||u - x||^2. Its level set {u >= t} minimises F(A)
- lam sum_A (x_i - t), and the Jaccard loss F(A) depends only on the numbers (a, b) of foreground
and background items in A and is linear in a for fixed b. So the best set is a prefix of the sorted
foreground and a prefix of the sorted background, and one level t takes one scan over b. Divide and
conquer: try the level at which a segment would be constant; if some smaller set does better, split
the segment there. All segments of a row are tried at once; the number of rounds is the depth of the
division, about log n as a rule.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from evalgrad import _native
from evalgrad._binary_inputs import set_rows
from evalgrad._options import checked, flag, number
from evalgrad._rows import working

LAM = number(above=0, repair="It multiplies the quadratic term; start with 1.0.")


@checked(lam=LAM, hinge=flag)
def lovasz_prox(
    errors: Tensor,
    foreground: Tensor,
    *,
    lam: float,
    hinge: bool = False,
    mask: Tensor | None = None,
) -> Tensor:
    """Proximal point of the Lovász extension of the Jaccard loss, over the last dimension; exact,
    without autograd.

    A step of the proximal method moves x to u, that is, along the gradient lam (x - u):
    `lovasz_hinge_loss(gradient="prox")` trains with it.

    Args:
        errors: ``(*, n)``, the point x.
        foreground: bool, the same shape.
        lam: factor of the quadratic term, > 0. The larger, the closer u stays to x.
        hinge: use the extension of max(u, 0) instead of u, so that x are margins 1 - F y of either
            sign.
        mask: bool, the same shape, True = keep. The other items are ignored and returned unchanged.

    Example:
        >>> lovasz_prox(torch.tensor([1.0, 0.2]), torch.tensor([True, False]), lam=4.0)
        tensor([0.7500, 0.2000])
    """
    batch = set_rows("lovasz_prox", errors, foreground, mask)
    u = proximal_point(working(batch.rows), batch.positive, batch.mask, lam=lam, hinge=hinge)
    if batch.invalid is not None:
        u = u.masked_fill(batch.invalid.unsqueeze(1), torch.nan)
    return u.to(batch.rows.dtype).reshape(*batch.shape, u.shape[-1])


def proximal_point(
    x: Tensor, foreground: Tensor, mask: Tensor | None, *, lam: float, hinge: bool
) -> Tensor:
    """`lovasz_prox` of rows ``(R, n)``, without the checks."""
    counts = torch.ones_like(foreground) if mask is None else mask
    u: Tensor = _prox_rows(x, foreground, counts, float(lam))
    if hinge:  # where the extension would pull u below 0, max(u, 0) is flat
        u = torch.maximum(u, x.clamp(max=0))
    return u if mask is None else torch.where(mask, u, x)


# ---- one row, float64 ----------------------------------------------------------------------------


class _Prefix:
    """Items of one kind in decreasing order of x, with the sums of every prefix."""

    def __init__(self, x: Tensor, of_this_kind: Tensor) -> None:
        (index,) = of_this_kind.nonzero(as_tuple=True)
        self.x, order = x[index].sort(descending=True)
        self.index = index[order]  # where they stand in the row
        self.sums = torch.cat([x.new_zeros(1), self.x.cumsum(0)])

    def between(self, start: Tensor, end: Tensor) -> Tensor:
        """Sum of x over [start, end)."""
        return self.sums[end] - self.sums[start]

    def above(self, bound: Tensor, start: Tensor, end: Tensor) -> Tensor:
        """End of the part of [start, end) with x > bound."""
        return torch.searchsorted(-self.x, -bound).clamp(start, end)


class _Row(NamedTuple):
    """A row of items; P is the size of its foreground."""

    front: _Prefix  # foreground
    back: _Prefix  # background
    P: int
    lam: float

    def loss(self, a: Tensor, b: Tensor) -> Tensor:
        """F(a, b): the Jaccard loss with a foreground and b background items wrong."""
        return (a + b).double() / (self.P + b) if self.P else (b > 0).double()

    def level(self, segments: Tensor) -> Tensor:
        """t of every segment: the value of u on it if u is constant there."""
        a0, a1, b0, b1 = segments
        total = self.front.between(a0, a1) + self.back.between(b0, b1)
        step = self.loss(a1, b1) - self.loss(a0, b0)
        return (total - step / self.lam) / _size(segments)


def _size(segments: Tensor) -> Tensor:
    a0, a1, b0, b1 = segments
    return a1 - a0 + b1 - b0


def _prox_row(x: Tensor, foreground: Tensor, lam: float) -> Tensor:
    """The proximal point u of one row.

    A segment is a range [a0, a1) of the sorted foreground with a range [b0, b1) of the sorted
    background; `segments (4, number)` are those not yet settled, at first the whole row. Everything
    ahead of a segment is higher in u, everything behind it lower.
    """
    P = int(foreground.sum())
    row = _Row(_Prefix(x, foreground), _Prefix(x, ~foreground), P, lam)
    u = torch.empty_like(x)
    segments = torch.tensor([[0], [P], [0], [x.shape[0] - P]], device=x.device)
    while segments.shape[1]:
        a0, a1, b0, b1 = segments
        level = row.level(segments)
        a, b, split = _best_part(row, segments, level)
        for side, start, end in ((row.front, a0, a1), (row.back, b0, b1)):
            # Segments that are not split are constant at their level.
            owner, position = _spread(torch.where(split, 0, end - start), start)
            u[side.index[position]] = level[owner]
        upper, lower = torch.stack([a0, a, b0, b]), torch.stack([a, a1, b, b1])
        segments = torch.cat([upper[:, split], lower[:, split]], dim=1)
    return u


def _best_part(row: _Row, segments: Tensor, level: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The part [a0, a), [b0, b) of every segment with the least F(a, b) - F(a0, b0) - lam sum (x_i
    - t), and whether that is below 0, the cost of taking nothing: then the segment is split at it.

    Every b in [b0, b1] is tried with its best a. F has the slope 1/(P + b) in a, so the foreground
    items above t + 1/(lam (P + b)) lower the cost, and no other does.
    """
    a0, a1, b0, b1 = segments
    owner, b = _spread(b1 - b0 + 1, b0)  # owner: the segment that a trial belongs to
    start_a, start_b, t = a0[owner], b0[owner], level[owner]
    a = row.front.above(t + 1 / (row.lam * (row.P + b).clamp(min=1)), start_a, a1[owner])
    taken = a - start_a + b - start_b
    gain = row.front.between(start_a, a) + row.back.between(start_b, b) - t * taken
    cost = row.loss(a, b) - row.loss(start_a, start_b) - row.lam * gain
    best, at = _least(cost, owner, segments.shape[1])
    # Below 0 by more than the rounding of the sums, and neither nothing nor everything.
    size = _size(segments)
    better = best < -1e-15 * (1 + row.lam * size * level.abs())
    return a[at], b[at], better & (taken[at] > 0) & (taken[at] < size)


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
    # Written from the last to the first, so that the first stays.
    return best, owner.new_zeros(count).index_put((owner[hits].flip(0),), hits.flip(0))


# ---- the operator --------------------------------------------------------------------------------


def _prox_rows_pure(x: Tensor, foreground: Tensor, mask: Tensor, lam: float) -> Tensor:
    u = x.clone(memory_format=torch.contiguous_format)
    for i in range(x.shape[0]):
        counted = mask[i]
        if bool(counted.any()):
            # float64: the sums would lose the small differences that decide.
            row = _prox_row(x[i, counted].double(), foreground[i, counted], lam)
            u[i, counted] = row.to(x.dtype)
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
    traceable=False,
)
