"""The Lovász extension of the Jaccard loss: a convex function of a vector of errors that equals 1 -
IoU at errors of 0 and 1.

With P foreground items and the items in decreasing order of error, an item with `a` foreground and
`b` background items ahead of it has weight 1/(P+b) if it is foreground and (P-a)/((P+b)(P+b+1)) if
it is background; the value is the sum of error x weight, the weights are its gradient. Without
foreground the whole weight is on the largest error. The weights are computed in this closed form:
differencing the Jaccard curve, as the paper's Algorithm 1 does, loses most digits of the background
weights in float32.
"""

import torch
from torch import Tensor

from evalgrad import _native
from evalgrad._binary_inputs import set_rows
from evalgrad._ranking import ahead, descending
from evalgrad._rows import attach, row_factor, working


def jaccard_lovasz_extension(
    errors: Tensor, foreground: Tensor, *, mask: Tensor | None = None
) -> Tensor:
    """Lovász extension of the Jaccard loss over the last axis of `errors`.

    Args:
        errors: ``(*, n)``, how wrong each item is, usually >= 0.
        foreground: bool, the same shape, which items belong to the true set.
        mask: bool, the same shape, True = counts; items left out are as if absent.

    Returns:
        ``(*)``, one value per group of n items; 0 for a group of which nothing counts.

    Example:
        >>> foreground = torch.tensor([True, True, False])
        >>> jaccard_lovasz_extension(torch.tensor([1.0, 0.0, 1.0]), foreground)
        tensor(0.6667)
    """
    found = set_rows("jaccard_lovasz_extension", errors, foreground, mask)
    factor = row_factor(found.rows, None, "none", found.invalid)
    rows = extend(found.rows, found.positive, found.mask)
    return (rows * factor).reshape(found.shape)


def extend(x: Tensor, foreground: Tensor, mask: Tensor | None) -> Tensor:
    """The extension over the last axis of any shape, with its gradient attached."""
    shape = (x.shape[:-1].numel(), x.shape[-1])
    rows, front = x.reshape(shape), foreground.reshape(shape)
    counted = None if mask is None else mask.reshape(shape)
    value, gradient = extend_rows(working(rows), front, counted, None, False)
    return attach(rows, value, gradient, "none", shape=x.shape[:-1])


def weights(errors: Tensor, foreground: Tensor, mask: Tensor | None) -> Tensor:
    """Weights of the extension over the last axis, of the dtype of `errors`; 0 for what the mask
    leaves out.
    """
    order = descending(errors, mask)
    front = (foreground if mask is None else foreground & mask).gather(-1, order)
    back = (~foreground if mask is None else ~foreground & mask).gather(-1, order)
    total = front.sum(-1, keepdim=True)
    a, b = ahead(front), ahead(back)
    union = (total + b).double()
    one = union.new_ones(())
    of_front = one / union.clamp(min=1)
    of_back = (total - a) * of_front / (union + 1)
    first = (back & (a + b == 0)).double()  # no foreground: all the weight on the largest error
    of_back = torch.where(total > 0, of_back, first)
    sorted_weights = torch.where(front, of_front, torch.where(back, of_back, 0.0))
    return torch.zeros_like(sorted_weights).scatter(-1, order, sorted_weights).to(errors.dtype)


def _pure(
    x: Tensor, foreground: Tensor, mask: Tensor | None, factor: Tensor | None, hinge: bool
) -> tuple[Tensor, Tensor]:
    errors, slope = x, torch.ones_like(x)
    if hinge:
        sign = torch.where(foreground, -slope, slope)
        margin = 1 + sign * x
        errors, slope = margin.clamp(min=0), torch.where(margin > 0, sign, 0.0)
    gradient = weights(errors, foreground, mask)
    if factor is not None:
        gradient = gradient * factor.unsqueeze(-1)
    # A weight of 0 takes part with 0 even where the error is infinite or, left out by the mask,
    # NaN.
    value = torch.where(gradient == 0, 0.0, errors * gradient)
    if mask is not None:
        value = value.where(mask, 0.0)
    return value.sum(-1, dtype=torch.float64).to(x.dtype), gradient * slope


def _native_rows(
    x: Tensor, foreground: Tensor, mask: Tensor | None, factor: Tensor | None, hinge: bool
) -> tuple[Tensor, Tensor]:
    if x.shape[1] >= 2**31:  # a kernel key has 31 bits for the index
        return _pure(x, foreground, mask, factor, hinge)
    value, gradient = _native.empty_results(x)
    _native.call("lovasz_rows", x, foreground, mask, factor, *x.shape, hinge, 0, value, gradient)
    return value, gradient


extend_rows = _native.operator(
    "lovasz_rows(Tensor x, Tensor foreground, Tensor? mask, Tensor? factor, bool hinge) -> (Tensor,"
    " Tensor)",
    pure=_pure,
    native=_native_rows,
    triton="lovasz",
)
