"""Direct loss minimisation for the error rate of binary decisions, item by item.

F(y) = (1/n) sum_i y_i s_i over the n items of a list, y_i = -1 or +1; Delta is the share of wrong
decisions. The items decouple: y_direct differs from y_w where a decision is right by less than
eps/2 ("positive") or wrong by less than that ("negative"). McAllester, Hazan, Keshet: Direct loss
minimization for structured prediction, NIPS 2010, and the 0-1 experiments of Song et al.
"""

from typing import Any

import torch
from torch import Tensor, nn

from evalgrad._gradient import with_gradient
from evalgrad._masking import working_dtype
from evalgrad.direct_loss.arguments import (
    as_rows,
    check_lists,
    check_options,
    describe_options,
    reduce_lists,
)


def direct_zero_one_loss(
    scores: Tensor,
    target: Tensor,
    *,
    epsilon: float = 0.1,
    direction: str = "positive",
    mask: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Share of wrong decisions `scores > 0` in each list, with the direct loss gradient.

    Args:
        scores: ``(*, n)``, positive where the item is taken for a positive. A score of exactly 0
            counts as wrong.
        target: the same shape, 1 or True for positives and 0 for negatives.
        epsilon: the items within eps/2 of the threshold receive a gradient. Choose it on validation
            data.
        direction: ``"positive"`` pushes what is right by little further away from the threshold,
            ``"negative"`` pulls what is wrong by little over it.
        mask: bool, the same shape, True = counts. A list of which nothing counts is left out of the
            mean.
        reduction: over lists ``"mean"`` | ``"sum"`` | ``"none"``: the leading axes.

    Example:
        >>> scores = torch.tensor([0.3, -2.0, 0.02, -0.04], requires_grad=True)
        >>> loss = direct_zero_one_loss(scores, torch.tensor([1, 1, 1, 0]), epsilon=0.1)
        >>> loss.backward()
        >>> loss.item(), scores.grad
        (0.25, tensor([ 0.,  0., -5.,  5.]))
    """
    function = "direct_zero_one_loss"
    check_options(function, epsilon, direction, reduction)
    check_lists(function, scores, target, mask)
    margin, sign = margins(scores, target)
    near = (
        (margin > 0) & (margin < epsilon / 2)
        if direction == "positive"
        else (margin <= 0) & (margin > -epsilon / 2)
    )
    slope = torch.where(near, -2 / epsilon * sign, 0.0)
    return mean_over_items(scores, mask, (margin <= 0).to(margin.dtype), slope, margin, reduction)


class DirectZeroOneLoss(nn.Module):
    """`direct_zero_one_loss` as a module, with the same options; `mask` is an argument of
    the call.
    """

    def __init__(
        self, *, epsilon: float = 0.1, direction: str = "positive", reduction: str = "mean"
    ) -> None:
        super().__init__()
        check_options("direct_zero_one_loss", epsilon, direction, reduction)
        self.options: dict[str, Any] = {
            "epsilon": epsilon,
            "direction": direction,
            "reduction": reduction,
        }

    def forward(self, scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        return direct_zero_one_loss(scores, target, mask=mask, **self.options)

    def extra_repr(self) -> str:
        return describe_options(self.options)


def margins(scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """y s and y = -1 or +1 of every item, (R, n)."""
    x, labels = as_rows(scores).detach(), as_rows(target)
    sign = torch.where(labels == 1, 1.0, -1.0).to(working_dtype(x))
    return sign * x, sign


def mean_over_items(
    scores: Tensor,
    mask: Tensor | None,
    losses: Tensor,
    slopes: Tensor,
    margin: Tensor,
    reduction: str,
) -> Tensor:
    """Mean of item losses (R, n) over each list; their slopes are the gradient, and NaN where the
    margin is.
    """
    counts = torch.ones_like(losses, dtype=torch.bool) if mask is None else as_rows(mask)
    number = counts.sum(1, keepdim=True)
    losses, slopes = (
        torch.where(counts, torch.where(margin.isnan(), margin, item), 0.0) / number.clamp(min=1)
        for item in (losses, slopes)
    )
    attached = with_gradient(as_rows(scores), losses.sum(1), slopes)
    return reduce_lists(attached, number[:, 0] > 0, scores, reduction)
