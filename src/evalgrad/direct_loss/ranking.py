"""Direct loss minimisation for rankings: the network is trained on 1 - AP or 1 - NDCG of its own
ranking.

A ranking y of positives (scores phi) and negatives (scores psi) has the score F(y) = (1/|P||N|)
sum_ij y_ij (phi_i - psi_j), which the model's own ranking y_w maximises. The gradient of the
expected task loss is the limit of (s/eps) (dF(y_direct) - dF(y_w)) with y_direct the maximiser of F
+ s eps Delta (General Loss Gradient Theorem). Both are computed exactly: y_direct by divide and
conquer for s = +1, by a chain of running maxima for s = -1 and for a cutoff. Song, Schwing, Zemel,
Urtasun: Training deep neural networks via direct loss minimization, ICML 2016.
"""

from typing import Any

from torch import Tensor, nn

from evalgrad import _checks
from evalgrad._gradient import with_gradient
from evalgrad._masking import working_dtype
from evalgrad.direct_loss.arguments import (
    SIGNS,
    as_rows,
    check_lists,
    check_options,
    counts_of,
    describe_options,
    reduce_lists,
)
from evalgrad.direct_loss.operators import direct_ranking


def direct_average_precision_loss(
    scores: Tensor,
    target: Tensor,
    *,
    epsilon: float = 0.1,
    direction: str = "positive",
    mask: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """1 - average precision of the scores as they are, with the direct loss gradient.

    Args:
        scores: ``(*, n)``, what ranks the n items of each list; the leading axes are queries or
            classes.
        target: the same shape, 1 or True for positives and 0 for negatives. Every list has its own
            number of positives; a list without a positive or without a negative is void: value 0,
            gradient 0, left out of the mean.
        epsilon: how far y_direct may go from the model's ranking. It acts on F, which scales with
            the scores and with 1/(|P||N|): small values are unbiased but silent in most lists and
            noisy in the others, large ones regularise. Choose it on validation data;
            `suggest_epsilon` gives a first value.
        direction: ``"positive"`` moves away from a worse ranking, ``"negative"`` towards a better
            one. "positive" is cheaper, and better in the paper's experiments with noisy data.
        mask: bool, the same shape, True = counts. Items left out are as if absent: use it for
            padding.
        reduction: over lists ``"mean"`` | ``"sum"`` | ``"none"``: the leading axes.

    A negative tied with a positive ranks above it, in value and gradient.

    Example:
        >>> import torch
        >>> scores = torch.tensor([0.3, 0.1, 0.2], requires_grad=True)
        >>> loss = direct_average_precision_loss(scores, torch.tensor([1, 1, 0]), epsilon=0.5)
        >>> loss.backward()
        >>> # the ranking + - + has precisions 1 and 2/3; y_direct = - + +
        >>> round(loss.item(), 4), scores.grad
        (0.1667, tensor([-2.,  0.,  2.]))
    """
    function = "direct_average_precision_loss"
    check_options(function, epsilon, direction, reduction)
    check_lists(function, scores, target, mask)
    return _direct(scores, target == 1, mask, epsilon, direction, False, 0, reduction)


class DirectAveragePrecisionLoss(nn.Module):
    """`direct_average_precision_loss` as a module, with the same options; `mask` is an argument of
    the call.
    """

    def __init__(
        self, *, epsilon: float = 0.1, direction: str = "positive", reduction: str = "mean"
    ) -> None:
        super().__init__()
        check_options("direct_average_precision_loss", epsilon, direction, reduction)
        self.options: dict[str, Any] = {
            "epsilon": epsilon,
            "direction": direction,
            "reduction": reduction,
        }

    def forward(self, scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        return direct_average_precision_loss(scores, target, mask=mask, **self.options)

    def extra_repr(self) -> str:
        return describe_options(self.options)


def direct_ndcg_loss(
    scores: Tensor,
    target: Tensor,
    *,
    k: int | None = None,
    epsilon: float = 0.1,
    direction: str = "positive",
    mask: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """1 - NDCG of the scores as they are, for binary relevance, with the direct loss gradient.

    Args:
        scores: ``(*, n)``, as `direct_average_precision_loss`.
        target: the same shape, 1 or True for relevant items. Graded relevance raises: no exact
            inference is known for it.
        k: count the first k places only (NDCG@k); None counts all.
        epsilon: as `direct_average_precision_loss`.
        direction: as `direct_average_precision_loss`.
        mask: as `direct_average_precision_loss`.
        reduction: as `direct_average_precision_loss`.

    Example:
        >>> import torch
        >>> scores = torch.randn(4, 50, requires_grad=True)
        >>> direct_ndcg_loss(scores, torch.rand(4, 50) > 0.8, k=10).backward()
    """
    function = "direct_ndcg_loss"
    _check_ndcg_options(k, epsilon, direction, reduction)
    check_lists(function, scores, target, mask)
    return _direct(
        scores, target == 1, mask, epsilon, direction, True, 0 if k is None else k, reduction
    )


class DirectNDCGLoss(nn.Module):
    """`direct_ndcg_loss` as a module, with the same options; `mask` is an argument of the call."""

    def __init__(
        self,
        *,
        k: int | None = None,
        epsilon: float = 0.1,
        direction: str = "positive",
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        _check_ndcg_options(k, epsilon, direction, reduction)
        self.options: dict[str, Any] = {
            "k": k,
            "epsilon": epsilon,
            "direction": direction,
            "reduction": reduction,
        }

    def forward(self, scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        return direct_ndcg_loss(scores, target, mask=mask, **self.options)

    def extra_repr(self) -> str:
        return describe_options(self.options)


def _check_ndcg_options(k: int | None, epsilon: float, direction: str, reduction: str) -> None:
    check_options("direct_ndcg_loss", epsilon, direction, reduction)
    if k is not None:
        _checks.check_integer(
            "direct_ndcg_loss",
            "k",
            k,
            low=1,
            repair="Pass the number of places that count; None counts all.",
        )


def _direct(
    scores: Tensor,
    target: Tensor,
    mask: Tensor | None,
    epsilon: float,
    direction: str,
    ndcg: bool,
    k: int,
    reduction: str,
) -> Tensor:
    x, labels, counts = as_rows(scores), as_rows(target), None if mask is None else as_rows(mask)
    work = x.detach().to(working_dtype(x))
    value, _, gradient = direct_ranking(
        work, labels, counts, float(epsilon), SIGNS[direction], ndcg, k
    )
    positive, negative = counts_of(labels, counts)
    live = positive.any(-1) & negative.any(-1)
    return reduce_lists(with_gradient(x, value, gradient), live, scores, reduction)
