"""The Lovász extension of a loss 1 - metric: a function of a vector of errors that equals the loss
at errors of 0 and 1. The metric is the Jaccard index or, in general, the Tversky index, where a
miss weighs m and a false alarm w against a hit.

With P foreground items and the items in decreasing order of error, an item with `a` foreground and
`b` background items ahead of it, and D = P - a + m a + w b, has the weight (m P + w b)/(D (D+m-1))
if it is foreground and w (P-a)/(D (D+w)) if it is background; with the Jaccard index, m = w = 1,
that is 1/(P+b) and (P-a)/((P+b)(P+b+1)). The value is the sum of error x weight, the weights are
its gradient. Without foreground the whole weight is on the largest error. The weights are computed
in this closed form: differencing the curve of the metric, as the paper's Algorithm 1 does, loses
most digits of the background weights in float32.

The extension is convex where m >= 1 (the loss is then submodular), as with the Jaccard index.
"""

import torch
from torch import Tensor

from evalgrad import _native
from evalgrad._binary_inputs import set_rows
from evalgrad._ranking import ahead, descending
from evalgrad._rows import attach, row_factor, working
from evalgrad.lovasz.metric import METRICS


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
    rows = extend(found.rows, found.positive, found.mask, *METRICS["jaccard"])
    return (rows * factor).reshape(found.shape)


def extend(
    x: Tensor, foreground: Tensor, mask: Tensor | None, misses: float, false_alarms: float
) -> Tensor:
    """The extension over the last axis of any shape, with its gradient attached."""
    shape = (x.shape[:-1].numel(), x.shape[-1])
    rows, front = x.reshape(shape), foreground.reshape(shape)
    counted = None if mask is None else mask.reshape(shape)
    value, gradient = extend_rows(working(rows), front, counted, None, False, misses, false_alarms)
    return attach(rows, value, gradient, "none", shape=x.shape[:-1])


def weights(
    errors: Tensor, foreground: Tensor, mask: Tensor | None, misses: float, false_alarms: float
) -> Tensor:
    """Weights of the extension over the last axis, of the dtype of `errors`; 0 for what the mask
    leaves out.
    """
    order = descending(errors, mask)
    front = (foreground if mask is None else foreground & mask).gather(-1, order)
    back = (~foreground if mask is None else ~foreground & mask).gather(-1, order)
    total = front.sum(-1, keepdim=True)
    a, b = ahead(front), ahead(back)
    of_front, of_back = _steps(total, a, b, misses, false_alarms)
    first = (back & (a + b == 0)).double()  # no foreground: all the weight on the largest error
    of_back = torch.where(total > 0, of_back, first)
    sorted_weights = torch.where(front, of_front, torch.where(back, of_back, 0.0))
    return torch.zeros_like(sorted_weights).scatter(-1, order, sorted_weights).to(errors.dtype)


def _steps(
    total: Tensor, a: Tensor, b: Tensor, misses: float, false_alarms: float
) -> tuple[Tensor, Tensor]:
    """Weight of a foreground and of a background item behind a and b of them; float64."""
    if misses == false_alarms == 1:  # the Jaccard index: less to compute
        union = (total + b).double()
        of_front = union.new_ones(()) / union.clamp(min=1)
        return of_front, (total - a) * of_front / (union + 1)
    P, a, b = total.double(), a.double(), b.double()
    m, w = misses, false_alarms
    size = P - a + m * a + w * b
    return (m * P + w * b) / (size * (size + m - 1)), w * (P - a) / (size * (size + w))


def _pure(
    x: Tensor,
    foreground: Tensor,
    mask: Tensor | None,
    factor: Tensor | None,
    hinge: bool,
    misses: float,
    false_alarms: float,
) -> tuple[Tensor, Tensor]:
    errors, slope = x, torch.ones_like(x)
    if hinge:
        sign = torch.where(foreground, -slope, slope)
        margin = 1 + sign * x
        errors, slope = margin.clamp(min=0), torch.where(margin > 0, sign, 0.0)
    gradient = weights(errors, foreground, mask, misses, false_alarms)
    if factor is not None:
        gradient = gradient * factor.unsqueeze(-1)
    # A weight of 0 takes part with 0 even where the error is infinite or, left out by the mask,
    # NaN.
    value = torch.where(gradient == 0, 0.0, errors * gradient)
    if mask is not None:
        value = value.where(mask, 0.0)
    return value.sum(-1, dtype=torch.float64).to(x.dtype), gradient * slope


def _native_rows(
    x: Tensor,
    foreground: Tensor,
    mask: Tensor | None,
    factor: Tensor | None,
    hinge: bool,
    misses: float,
    false_alarms: float,
) -> tuple[Tensor, Tensor]:
    rows, metric = (x, foreground, mask, factor), (misses, false_alarms)
    if x.shape[1] >= 2**31:  # a kernel key has 31 bits for the index
        return _pure(*rows, hinge, *metric)
    value, gradient = _native.empty_results(x)
    _native.call("lovasz_rows", *rows, *x.shape, hinge, 0, *metric, value, gradient)
    return value, gradient


extend_rows = _native.operator(
    "lovasz_rows(Tensor x, Tensor foreground, Tensor? mask, Tensor? factor, bool hinge, float"
    " misses, float false_alarms) -> (Tensor, Tensor)",
    pure=_pure,
    native=_native_rows,
    triton="lovasz",
)
