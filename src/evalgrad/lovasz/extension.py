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
from evalgrad._ranking import descending
from evalgrad._rows import attach, row_factor, working
from evalgrad.lovasz.metric import METRICS


def jaccard_lovasz_extension(
    errors: Tensor, foreground: Tensor, *, mask: Tensor | None = None
) -> Tensor:
    """Lovász extension of the Jaccard loss over the last dimension of `errors`.

    Args:
        errors: ``(*, n)``, the error of each item, usually >= 0.
        foreground: bool, the same shape, True for items of the true set.
        mask: bool, the same shape, True = keep; the other items are ignored.

    Returns:
        ``(*)``, one value per group of n items; 0 for a group that is entirely masked.

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


def parts(size: int, number: int) -> list[slice]:
    """An axis in so many parts, or as many as it has: one after the other, they need less memory
    than all at once.
    """
    step = max(1, -(-size // number))
    return [slice(start, min(start + step, size)) for start in range(0, size, step)]


# Keys of a sort: floats >= 0 have the order of their bits.
INTEGERS = {torch.float32: torch.int32, torch.float64: torch.int64}


def signed_weights(front: Tensor, misses: float, false_alarms: float, dtype: torch.dtype) -> Tensor:
    """Weights of items in decreasing order of error, along the last axis, negative on the
    foreground, which `front` names.

    Items that are left out may stand at the end, as background: there their weight is 0.
    """
    counts = torch.int32 if front.shape[-1] < 2**31 else torch.int64
    a = front.cumsum(-1, dtype=counts)  # with the item itself
    P, place = a[..., -1:], torch.arange(front.shape[-1], dtype=counts, device=a.device)
    rest = P - a
    if misses == false_alarms == 1:  # the Jaccard index: less to compute, P + b in integers
        size = rest + place
        weights = (rest.to(dtype) / size).masked_fill_(front, -1.0).div_(size.add_(1))
    else:
        weights = _of_tversky(
            (rest + front).to(dtype), P.to(dtype), place, front, misses, false_alarms
        )
    top = weights[..., :1]
    top.copy_(torch.where(P == 0, 1.0, top))  # no foreground: all on the largest error
    return weights


def _of_tversky(
    rest: Tensor, P: Tensor, place: Tensor, front: Tensor, m: float, w: float
) -> Tensor:
    """The same from P - a, P and a + b; `rest` is written over."""
    a = P - rest
    b = place - a
    D = torch.add(rest, a, alpha=m).add_(b, alpha=w)
    of_front = b.mul_(w).add_(m * P).div_(torch.rsub(D, 1 - m))
    return torch.where(front, of_front, rest.mul_(w).div_(D + w)).div_(D)


def _weights(
    errors: Tensor, foreground: Tensor, mask: Tensor | None, misses: float, false_alarms: float
) -> Tensor:
    """Weights of any errors; 0 for what the mask leaves out."""
    order = descending(errors, mask)
    front = foreground if mask is None else foreground & mask
    found = signed_weights(front.gather(-1, order), misses, false_alarms, errors.dtype)
    weights = torch.empty_like(found).scatter_(-1, order, found.abs_())
    return weights if mask is None else weights.masked_fill_(~mask, 0.0)


def _pure(
    x: Tensor,
    foreground: Tensor,
    mask: Tensor | None,
    factor: Tensor | None,
    hinge: bool,
    misses: float,
    false_alarms: float,
) -> tuple[Tensor, Tensor]:
    factor = x.new_ones(x.shape[0]) if factor is None else factor
    if not hinge:
        gradient = _weights(x, foreground, mask, misses, false_alarms) * factor.unsqueeze(-1)
        products = (gradient * x).masked_fill_(gradient == 0, 0.0)
        return products.sum(-1, dtype=torch.float64).to(x.dtype), gradient
    value, gradient = _native.empty_results(x)
    for part in parts(x.shape[0], 4):
        own = x[part], foreground[part], None if mask is None else mask[part]
        value[part] = _hinge(*own, factor[part], misses, false_alarms, gradient[part])
    return value, gradient


def weighted_sum(losses: Tensor, gradient: Tensor) -> Tensor:
    """Sum of loss x weight, which is |gradient|; where it is 0, an infinite loss has no part."""
    products = (gradient * losses).masked_fill_(gradient == 0, 0.0)
    return torch.linalg.vector_norm(products, 1, -1, dtype=torch.float64).to(losses.dtype)


def hinge_losses(x: Tensor, foreground: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Foreground and hinge losses; what is left out is background without a loss."""
    front = foreground if mask is None else foreground & mask
    margins = torch.where(front, -x, x).add_(1)
    return front, (margins if mask is None else margins.masked_fill_(~mask, 0.0)).clamp_(min=0)


def _hinge(
    x: Tensor,
    foreground: Tensor,
    mask: Tensor | None,
    factor: Tensor,
    misses: float,
    false_alarms: float,
    gradient: Tensor,
) -> Tensor:
    """Values of some rows; their gradient is written into `gradient`."""
    front, losses = hinge_losses(x, foreground, mask)
    # A key has the bits of a loss above, from the lowest integer on, and foreground as the last.
    lowest = torch.iinfo(INTEGERS[x.dtype]).min
    bits = losses.view(INTEGERS[x.dtype]).bitwise_left_shift(1)
    key, order = bits.bitwise_or_(front).bitwise_xor_(lowest).sort(dim=-1, descending=True)
    slopes = signed_weights((key & 1).bool(), misses, false_alarms, x.dtype).mul_(
        factor.unsqueeze(-1)
    )
    gradient.scatter_(-1, order, slopes.masked_fill_(key < lowest + 2, 0.0))
    return weighted_sum(losses, gradient)


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
