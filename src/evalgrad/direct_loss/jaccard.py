"""Direct loss minimisation for the Jaccard index (IoU) of binary labellings, one or one per class,
which the paper left to future work.

F(y) = (1/n) sum_i y_i s_i over the n items of a list, y_i = 0 or 1, so that y_w predicts the items
with a positive score; Delta = 1 - |y and target| / |y or target|. For every number b of false
positives the best false positives are those of the highest scores, and a foreground item pays
exactly if s_i > s eps n/(P + b): loss-augmented inference is two sorts and one scan.
"""

import math
from typing import Literal

import torch
from torch import Tensor

from evalgrad import _native
from evalgrad._binary_inputs import lists
from evalgrad._module import LossModule
from evalgrad._options import Axes, Direction, Reduction, axes, checked, one_of
from evalgrad._rows import any_item, attach, exact_dtype, row_factor, working
from evalgrad.direct_loss.inference import TIE
from evalgrad.direct_loss.operators import KEY_INDICES, SIGNS


@checked(dim=axes, empty=one_of("max", "skip"))
def direct_jaccard_loss(
    scores: Tensor,
    target: Tensor,
    *,
    epsilon: float = 0.1,
    direction: Direction = "positive",
    empty: Literal["max", "skip"] = "max",
    mask: Tensor | None = None,
    dim: Axes = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """1 - Jaccard index of the prediction `scores > 0` in each list, with the direct loss gradient.

    Args:
        scores: ``(*, n)``, positive where an item is predicted as foreground; for images pass the
            dimensions of the pixels as `dim`.
        target: the same shape, 1 or True on the foreground.
        epsilon: how far y_direct may be from the prediction; a score beyond eps n never changes its
            sign. Choose it on validation data.
        direction: ``"positive"`` moves away from a worse labelling, ``"negative"`` towards a better
            one.
        empty: what to do with a list without foreground: with ``"max"`` its value is 0 if nothing
            is predicted and 1 otherwise; ``"skip"`` leaves it out of the mean.
        mask: bool, the same shape, True = keep. A list that is entirely masked is left out of the
            mean.
        dim: the dimension or dimensions of the items; None is the last one. For multilabel maps
            ``(N, C, H, W)``, ``dim=(0, 2, 3)`` gives the IoU of every class over the batch and
            ``dim=(2, 3)`` that of every class in every image.
        reduction: over lists ``"mean"`` | ``"sum"`` | ``"none"``: one value per list.

    Example:
        >>> scores = torch.tensor([2.0, 0.1, -0.1, -3.0], requires_grad=True)
        >>> target = torch.tensor([1, 0, 1, 0])
        >>> loss = direct_jaccard_loss(scores, target, epsilon=0.5, direction="negative")
        >>> loss.backward()
        >>> round(loss.item(), 4), scores.grad
        (0.6667, tensor([ 0.0000,  0.5000, -0.5000,  0.0000]))
    """
    batch = lists("direct_jaccard_loss", scores, target, mask, dim=dim)
    counts = torch.ones_like(batch.positive) if batch.mask is None else batch.mask
    value, gradient = direct_jaccard(
        working(batch.rows), batch.positive, counts, float(epsilon), SIGNS[direction]
    )
    counted = counts if empty == "max" else counts & batch.positive
    factor = row_factor(batch.rows, any_item(counted), reduction, batch.invalid)
    return attach(batch.rows, value, gradient, reduction, factor=factor, shape=batch.shape)


class DirectJaccardLoss(LossModule):
    """`direct_jaccard_loss` as an `nn.Module`: ``loss(scores, target, mask)``.

    Args:
        epsilon: how far y_direct may be from the prediction; a score beyond eps n never changes its
            sign. Choose it on validation data.
        direction: ``"positive"`` moves away from a worse labelling, ``"negative"`` towards a better
            one.
        empty: what to do with a list without foreground: with ``"max"`` its value is 0 if nothing
            is predicted and 1 otherwise; ``"skip"`` leaves it out of the mean.
        dim: the dimension or dimensions of the items; None is the last one. For multilabel maps
            ``(N, C, H, W)``, ``dim=(0, 2, 3)`` gives the IoU of every class over the batch and
            ``dim=(2, 3)`` that of every class in every image.
        reduction: over lists ``"mean"`` | ``"sum"`` | ``"none"``: one value per list.

    Example:
        >>> loss = DirectJaccardLoss(epsilon=0.5)
        >>> scores, target = torch.randn(4, 50, requires_grad=True), torch.rand(4, 50) < 0.2
        >>> loss(scores, target).backward()
    """

    function = staticmethod(direct_jaccard_loss)

    def __init__(
        self,
        *,
        epsilon: float = 0.1,
        direction: Direction = "positive",
        empty: Literal["max", "skip"] = "max",
        dim: Axes = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(locals())


def _pure(
    scores: Tensor, target: Tensor, mask: Tensor, epsilon: float, sign: int
) -> tuple[Tensor, Tensor]:
    """Values (R,) and gradients (R, n)."""
    if scores.numel() == 0:
        return scores.new_zeros(scores.shape[0]), scores.new_zeros(scores.shape)
    isnan = mask & scores.isnan()
    predicted, foreground = mask & (scores > 0), mask & target
    direct = _augment(
        torch.where(mask & ~isnan, scores, 0.0).to(exact_dtype(scores)), target, mask, epsilon, sign
    )
    n = mask.sum(1, keepdim=True).clamp_min(1)
    gradient = sign * (direct.long() - predicted.long()) / (epsilon * n.to(exact_dtype(scores)))
    gradient = torch.where(mask & isnan.any(1, keepdim=True), math.nan, gradient)
    value = torch.where(isnan.any(1), math.nan, jaccard_loss(predicted, foreground))
    return value.to(scores.dtype), gradient.to(scores.dtype)


def jaccard_loss(predicted: Tensor, foreground: Tensor) -> Tensor:
    """1 - Jaccard index of two sets, ``(R, n)`` bool, in every row; 0 if both are empty."""
    union = (predicted | foreground).sum(1).clamp_min(1)
    return (predicted ^ foreground).sum(1).to(exact_dtype(predicted)) / union


def _augment(scores: Tensor, target: Tensor, mask: Tensor, epsilon: float, sign: int) -> Tensor:
    """The labelling that maximises F + sign eps Delta; of equal ones that with the fewest false
    positives.
    """
    foreground, background = mask & target, mask & ~target
    n, P = (x.sum(1, keepdim=True) for x in (mask, foreground))
    reach = epsilon * n.to(scores.dtype)
    # An item beyond eps n never flips (it would cost more than eps): closing the range makes
    # infinities act as their limit.
    scores = torch.minimum(torch.maximum(scores, -2 * reach), 2 * reach)
    b = torch.arange(scores.shape[1] + 1, device=scores.device)  # number of false positives
    theta = sign * reach / torch.clamp_min(P + b, 1)
    false_scores, false_order = torch.where(background, scores, -math.inf).sort(
        dim=1, descending=True, stable=True
    )
    gained = torch.nn.functional.pad(false_scores.cumsum(1), (1, 0)) + _surplus(
        scores, foreground, P, theta
    )
    # without foreground Delta = [b > 0]
    gained = gained + torch.where((P == 0) & (b > 0), sign * reach, 0.0)
    gained = torch.where(b <= n - P, gained, -math.inf)
    # the first True
    best = (gained >= gained.amax(1, keepdim=True) - TIE * reach).int().argmax(1, keepdim=True)
    false_positive = torch.zeros_like(mask).scatter_(1, false_order, b[:-1] < best)
    return torch.where(target, scores > theta.gather(1, best), false_positive) & mask


def _surplus(scores: Tensor, foreground: Tensor, P: Tensor, theta: Tensor) -> Tensor:
    """sum over foreground of max(s_i - theta, 0) for every threshold, (R, n + 1)."""
    # sort keeps the strides of scores, and searchsorted warns of rows that are not contiguous
    rising = torch.where(foreground, scores, math.inf).sort(dim=1).values.contiguous()
    below = torch.searchsorted(rising, theta.contiguous(), right=True)
    total = torch.nn.functional.pad(
        torch.where(rising.isinf(), 0.0, rising).flip(1).cumsum(1), (1, 0)
    ).flip(1)
    return total.gather(1, below) - (P - below) * theta


def _native_rows(
    scores: Tensor, target: Tensor, mask: Tensor, epsilon: float, sign: int
) -> tuple[Tensor, Tensor]:
    if scores.shape[1] >= KEY_INDICES:
        return _pure(scores, target, mask, epsilon, sign)
    value, gradient = _native.empty_results(scores)
    options = (epsilon, sign)
    _native.call("direct_jaccard", scores, target, mask, *scores.shape, *options, value, gradient)
    return value, gradient


direct_jaccard = _native.operator(
    "direct_jaccard(Tensor scores, Tensor target, Tensor mask, float epsilon, int sign) -> (Tensor,"
    " Tensor)",
    pure=_pure,
    native=_native_rows,
    dtypes=_native.FLOATS,
)
