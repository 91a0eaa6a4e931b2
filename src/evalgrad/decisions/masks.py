"""The mask of an image with the highest expected IoU or Dice, from the probabilities of its pixels.

Taking the pixels as independent, with right probabilities, the best mask with k pixels holds the k
likeliest (docs/maths.md, "Deciding for the metric"), so that only k is to be found. With Y_A and
Y_B the foreground inside and outside of the mask,

    E[IoU]  = sum_A p_i E[1 / (k + Y_B)],        E[Dice] = 2 sum_A p_i E[1 / (k + 1 + Y without i)].

The expectation of 1 / (c + Y) is the integral of t^(c-1) prod (1 - p_j + p_j t) over [0, 1]: a
polynomial, which Gauss's quadrature integrates exactly, with positive terms only. That costs n^2;
for larger images two moments of Y do: 1/m (1 + v/m^2), m and v the mean and the variance of c + Y.
An image without foreground counts 1 if nothing is predicted.
"""

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from evalgrad._errors import describe, fail
from evalgrad._inputs import floating, like
from evalgrad._labels import read_mask, readable
from evalgrad._options import flag

EIGHT_BITS = "Divide 8-bit values by 255: `probabilities / 255`."
EXACT_UP_TO = 1024  # pixels; beyond, moments are as good and the square would cost seconds


def jaccard_mask(
    probabilities: Tensor, *, mask: Tensor | None = None, exact: bool | None = None
) -> Tensor:
    """The mask with the highest expected IoU of each image.

    Args:
        probabilities: ``(N, *)`` calibrated probabilities of the foreground, in [0, 1]; the mask is
            only as good as they are. For several labels flatten the first two dimensions,
            ``probabilities.flatten(0, 1)``: each label has its own mask.
        mask: bool, the same shape, True = keep.
        exact: if True, exact for independent pixels, at a cost quadratic in their number; if False,
            approximated by two moments; None is exact for images of up to 1,024 pixels.

    Returns:
        Bool, the shape of `probabilities`.

    Example:
        >>> jaccard_mask(torch.tensor([[0.7, 0.45, 0.45, 0.1]]))  # 0.5 would leave two out
        tensor([[ True,  True,  True, False]])
    """
    return _best("jaccard_mask", probabilities, mask, exact, expected_jaccard, _jaccard_by_moments)


def dice_mask(
    probabilities: Tensor, *, mask: Tensor | None = None, exact: bool | None = None
) -> Tensor:
    """The mask with the highest expected Dice (F1) of each image.

    Args:
        probabilities: ``(N, *)`` calibrated probabilities of the foreground, in [0, 1]; the mask is
            only as good as they are. For several labels flatten the first two dimensions,
            ``probabilities.flatten(0, 1)``: each label has its own mask.
        mask: bool, the same shape, True = keep.
        exact: if True, exact for independent pixels, at a cost quadratic in their number; if False,
            approximated by two moments; None is exact for images of up to 1,024 pixels.

    Example:
        >>> dice_mask(torch.tensor([[0.7, 0.45, 0.45, 0.1]]))
        tensor([[ True,  True,  True, False]])
    """
    return _best("dice_mask", probabilities, mask, exact, expected_dice, _dice_by_moments)


def _best(
    function: str,
    probabilities: Tensor,
    mask: Tensor | None,
    exact: bool | None,
    by_quadrature: Callable[[Tensor], Tensor],
    by_moments: Callable[[Tensor], Tensor],
) -> Tensor:
    p = read_probabilities(function, probabilities)
    if p.ndim < 2:
        repair = "Pass `probabilities[None]` for one image."
        fail(
            ValueError, function, "probabilities", "(N, *), a batch of images", describe(p), repair
        )
    rows = p.reshape(p.shape[0], p.shape[1:].numel()).double()
    valid = None
    if mask is not None:
        valid = read_mask(function, like(function, "mask", mask, p).reshape(rows.shape))
        rows = torch.where(valid, rows, 0.0)
    check_shares(
        function, rows, "Pass `logits.sigmoid()`, or the foreground channel of the softmax."
    )
    ordered, order = rows.sort(-1, descending=True)
    if exact is None:
        exact = rows.shape[1] <= EXACT_UP_TO
    flag(function, "exact", exact)
    # row by row: the square of the pixels of all images at once would not fit
    values = [by_quadrature(row) for row in ordered] if exact else by_moments(ordered)
    size = torch.stack(list(values)).argmax(-1, keepdim=True) if len(rows) else rows.long()
    among = torch.arange(rows.shape[1], device=p.device) < size
    chosen = torch.zeros_like(among).scatter(-1, order, among)
    return (chosen if valid is None else chosen & valid).reshape(p.shape)


def read_probabilities(function: str, probabilities: object, at_least: int = 1) -> Tensor:
    """A floating-point tensor; the advice for 8-bit images of probabilities is their own."""
    if isinstance(probabilities, Tensor) and probabilities.dtype == torch.uint8:
        must, got = "a floating-point tensor", describe(probabilities)
        fail(TypeError, function, "probabilities", must, got, EIGHT_BITS)
    return floating(function, "probabilities", probabilities, at_least=at_least).detach()


def check_shares(function: str, rows: Tensor, repair: str) -> None:
    """Probabilities in [0, 1], where they can be read."""
    wrong = ~((rows >= 0) & (rows <= 1))
    if readable(rows) and bool(wrong.any()):
        if bool(((rows == rows.round()) & (rows >= 0) & (rows <= 255)).all()):
            repair = EIGHT_BITS
        value = f"{rows[wrong][0].item():g}"
        fail(ValueError, function, "probabilities", "in [0, 1]", value, repair)


# ---- expected metric of the k likeliest, k = 0 .. n, from p in descending order ------------------


def expected_jaccard(p: Tensor) -> Tensor:
    """Exact, ``(n,) -> (n + 1,)``."""
    n = len(p)
    t, weight = (x.to(p.device) for x in _quadrature(n // 2 + 1))
    # prod over the items behind the k-th of 1 - p + p t, for k = 1 .. n and every t
    behind = (1 - p[1:, None] * (1 - t)).flip(0).cumprod(0).flip(0)
    behind = torch.cat([behind, torch.ones_like(t)[None]])
    k = torch.arange(1, n + 1, dtype=p.dtype, device=p.device)
    inverse = (weight * t ** (k[:, None] - 1) * behind).sum(-1)
    return torch.cat([(1 - p).prod()[None], p.cumsum(0) * inverse])


def expected_dice(p: Tensor) -> Tensor:
    """Exact, ``(n,) -> (n + 1,)``."""
    n = len(p)
    t, weight = (x.to(p.device) for x in _quadrature(n + 1))
    factor = 1 - p[:, None] * (1 - t)  # (n, Q)
    # sum over the k likeliest of p_i times the product over all but i
    hits = factor.prod(0) * (p[:, None] / factor).cumsum(0)
    k = torch.arange(1, n + 1, dtype=p.dtype, device=p.device)
    inverse = (weight * t ** k[:, None] * hits).sum(-1)
    return torch.cat([(1 - p).prod()[None], 2 * inverse])


def _jaccard_by_moments(p: Tensor) -> Tensor:
    k, hits, _ = _sums(p)
    mean = k + p.sum(-1, keepdim=True) - hits
    spread = p * (1 - p)
    variance = spread.sum(-1, keepdim=True) - spread.cumsum(-1)
    return _with_none(p, hits / mean * (1 + variance / mean**2))


def _dice_by_moments(p: Tensor) -> Tensor:
    k, hits, squares = _sums(p)
    mean = k + 1 + p.sum(-1, keepdim=True)
    variance = (p * (1 - p)).sum(-1, keepdim=True)
    # 1 / (mean - p_i) = (1 + p_i / mean) / mean, but for (p_i / mean)^2
    return _with_none(p, 2 * (hits + squares / mean) / mean * (1 + variance / mean**2))


def _sums(p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    k = torch.arange(1, p.shape[-1] + 1, dtype=p.dtype, device=p.device)
    return k, p.cumsum(-1), (p * p).cumsum(-1)


def _with_none(p: Tensor, values: Tensor) -> Tensor:
    """The value of k = 0 before the others: that nothing is there."""
    return torch.cat([torch.log1p(-p).sum(-1, keepdim=True).exp(), values], -1)


@functools.lru_cache(maxsize=8)
def _quadrature(count: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights of Gauss and Legendre on [0, 1]: exact up to degree 2 count - 1.

    Newton's method on the Legendre polynomial, by its recursion; it converges from these starts.
    """
    i = torch.arange(1, count + 1, dtype=torch.float64)
    x = torch.cos(math.pi * (i - 0.25) / (count + 0.5))
    for _ in range(8):
        before, value = torch.ones_like(x), x
        for degree in range(2, count + 1):
            before, value = value, ((2 * degree - 1) * x * value - (degree - 1) * before) / degree
        slope = count * (x * value - before) / (x * x - 1)
        x = x - value / slope
    return (1 + x) / 2, 1 / ((1 - x * x) * slope * slope)
