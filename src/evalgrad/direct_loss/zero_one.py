"""Direct loss minimisation for the error rate of binary decisions, item by item.

F(y) = (1/n) sum_i y_i s_i over the n items of a list, y_i = -1 or +1; Delta is the share of wrong
decisions. The items decouple: y_direct differs from y_w where a decision is right by less than
eps/2 ("positive") or wrong by less than that ("negative"). McAllester, Hazan, Keshet: Direct loss
minimization for structured prediction, NIPS 2010, and the 0-1 experiments of Song et al.
"""

import torch
from torch import Tensor

from evalgrad._binary_inputs import Binary, lists
from evalgrad._options import Direction, Reduction, checked
from evalgrad._rows import attach, row_factor, working
from evalgrad.direct_loss.operators import SIGNS
from evalgrad.direct_loss.ranking import DirectLossModule


@checked()
def direct_zero_one_loss(
    scores: Tensor,
    target: Tensor,
    *,
    epsilon: float = 0.1,
    direction: Direction = "positive",
    mask: Tensor | None = None,
    dim: int | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Fraction of wrong decisions `scores > 0` in each list, with the direct loss gradient.

    Args:
        scores: ``(*, n)``, above 0 where the item is predicted positive. A score of exactly 0
            counts as wrong.
        target: the same shape, 1 or True for positives and 0 for negatives.
        epsilon: the items within eps/2 of the threshold receive a gradient. Choose it on validation
            data.
        direction: ``"positive"`` pushes items that are just right further from the threshold,
            ``"negative"`` pulls items that are just wrong across it.
        mask: bool, the same shape, True = keep. A list that is entirely masked is left out of the
            mean.
        dim: the dimension of the items; None is the last one.
        reduction: over lists ``"mean"`` | ``"sum"`` | ``"none"``: one value per list.

    Example:
        >>> scores = torch.tensor([0.3, -2.0, 0.02, -0.04], requires_grad=True)
        >>> loss = direct_zero_one_loss(scores, torch.tensor([1, 1, 1, 0]), epsilon=0.1)
        >>> loss.backward()
        >>> loss.item(), scores.grad
        (0.25, tensor([ 0.,  0., -5.,  5.]))
    """
    batch = lists("direct_zero_one_loss", scores, target, mask, dim=dim)
    margin, sign = margins(batch)
    slope = torch.where(flipped(margin, epsilon, SIGNS[direction]), -2 / epsilon * sign, 0.0)
    return mean_over_items(batch, (margin <= 0).to(margin.dtype), slope, margin, reduction)


class DirectZeroOneLoss(DirectLossModule):
    """`direct_zero_one_loss` as an `nn.Module`: ``loss(scores, target, mask)``.

    Args:
        epsilon: the items within eps/2 of the threshold receive a gradient. Choose it on validation
            data.
        direction: ``"positive"`` pushes items that are just right further from the threshold,
            ``"negative"`` pulls items that are just wrong across it.
        dim: the dimension of the items; None is the last one.
        reduction: over lists ``"mean"`` | ``"sum"`` | ``"none"``: one value per list.

    Example:
        >>> loss = DirectZeroOneLoss(epsilon=0.5)
        >>> scores, target = torch.randn(4, 50, requires_grad=True), torch.rand(4, 50) < 0.2
        >>> loss(scores, target).backward()
    """

    function = staticmethod(direct_zero_one_loss)


def margins(batch: Binary) -> tuple[Tensor, Tensor]:
    """y s and y = -1 or +1 of every item, (R, n)."""
    x = working(batch.rows)
    sign = torch.where(batch.positive, 1.0, -1.0).to(x.dtype)
    return sign * x, sign


def flipped(margin: Tensor, epsilon: float, sign: int) -> Tensor:
    """Where y_direct decides otherwise than the model: near the threshold, on the right side of it
    in the positive direction, on the wrong one in the negative.
    """
    if sign > 0:
        return (margin > 0) & (margin < epsilon / 2)
    return (margin <= 0) & (margin > -epsilon / 2)


def mean_over_items(
    batch: Binary, losses: Tensor, slopes: Tensor, margin: Tensor, reduction: Reduction
) -> Tensor:
    """Mean of item losses (R, n) over each list; their slopes are the gradient, and NaN where the
    margin is.
    """
    counts = torch.ones_like(batch.positive) if batch.mask is None else batch.mask
    number = counts.sum(1, keepdim=True)
    losses, slopes = (
        torch.where(counts, torch.where(margin.isnan(), margin, item), 0.0) / number.clamp(min=1)
        for item in (losses, slopes)
    )
    factor = row_factor(batch.rows, number[:, 0] > 0, reduction, batch.invalid)
    value = losses.sum(1)
    return attach(batch.rows, value, slopes, reduction, factor=factor, shape=batch.shape)
