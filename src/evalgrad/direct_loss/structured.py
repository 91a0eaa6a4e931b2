"""The structured baselines of direct loss minimisation: hinge and perceptron, for average precision
and for 0-1 error.

With F as in `ranking` and `zero_one` and y the correct output, the hinge is max_yhat (F(yhat) +
Delta(yhat)) - F(y), a convex upper bound of Delta(y_w); the perceptron is F(y_w) - F(y), which
does not depend on Delta. Together with the direct losses in both directions and cross-entropy they
are the nine algorithms of Song et al. (ICML 2016), section 4.1.
"""

import torch
from torch import Tensor

from evalgrad._binary_inputs import lists
from evalgrad._module import LossModule
from evalgrad._options import Reduction, checked
from evalgrad._rows import attach, row_factor, working
from evalgrad.direct_loss.operators import ap_structured
from evalgrad.direct_loss.ranking import live_lists
from evalgrad.direct_loss.zero_one import margins, mean_over_items


class _Structured(LossModule):
    """The modules of this file differ in their function alone."""

    def __init__(self, *, dim: int | None = None, reduction: Reduction = "mean") -> None:
        super().__init__(locals())


@checked()
def average_precision_hinge_loss(
    scores: Tensor,
    target: Tensor,
    *,
    mask: Tensor | None = None,
    dim: int | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Structured hinge loss of average precision: max (F + 1 - AP) - F(all positives first), at
    least 1 - AP.

    Args:
        scores: ``(*, n)``, the scores by which the n items of each list are ranked.
        target: the same shape, 1 or True for positives. A list without a positive or without a
            negative is skipped.
        mask: bool, the same shape, True = keep.
        dim: the dimension of the items; None is the last one.
        reduction: over lists ``"mean"`` | ``"sum"`` | ``"none"``: one value per list.

    Example:
        >>> average_precision_hinge_loss(torch.tensor([1.0, 0.0, 2.0]), torch.tensor([1, 0, 0]))
        tensor(1.5000)
    """
    return _average_precision(
        "average_precision_hinge_loss", scores, target, mask, dim, reduction, augmented=True
    )


class AveragePrecisionHingeLoss(_Structured):
    """`average_precision_hinge_loss` as an `nn.Module`: ``loss(scores, target, mask)``.

    Args:
        dim: the dimension of the items; None is the last one.
        reduction: over lists ``"mean"`` | ``"sum"`` | ``"none"``: one value per list.

    Example:
        >>> loss = AveragePrecisionHingeLoss()
        >>> scores, target = torch.randn(4, 50, requires_grad=True), torch.rand(4, 50) < 0.2
        >>> loss(scores, target).backward()
    """

    function = staticmethod(average_precision_hinge_loss)


@checked()
def average_precision_perceptron_loss(
    scores: Tensor,
    target: Tensor,
    *,
    mask: Tensor | None = None,
    dim: int | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Ranking perceptron: (2/|P||N|) times the sum of max(0, psi_j - phi_i) over all pairs, in the
    time of a sort.

    Args:
        scores: ``(*, n)``, the scores by which the n items of each list are ranked.
        target: the same shape, 1 or True for positives. A list without a positive or without a
            negative is skipped.
        mask: bool, the same shape, True = keep.
        dim: the dimension of the items; None is the last one.
        reduction: over lists ``"mean"`` | ``"sum"`` | ``"none"``: one value per list.

    Example:
        >>> scores, target = torch.tensor([1.0, 0.0, 2.0]), torch.tensor([1, 0, 0])
        >>> average_precision_perceptron_loss(scores, target)
        tensor(1.)
    """
    return _average_precision(
        "average_precision_perceptron_loss", scores, target, mask, dim, reduction, augmented=False
    )


class AveragePrecisionPerceptronLoss(_Structured):
    """`average_precision_perceptron_loss` as an `nn.Module`: ``loss(scores, target, mask)``.

    Args:
        dim: the dimension of the items; None is the last one.
        reduction: over lists ``"mean"`` | ``"sum"`` | ``"none"``: one value per list.

    Example:
        >>> loss = AveragePrecisionPerceptronLoss()
        >>> scores, target = torch.randn(4, 50, requires_grad=True), torch.rand(4, 50) < 0.2
        >>> loss(scores, target).backward()
    """

    function = staticmethod(average_precision_perceptron_loss)


@checked()
def zero_one_hinge_loss(
    scores: Tensor,
    target: Tensor,
    *,
    mask: Tensor | None = None,
    dim: int | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Structured hinge loss of 0-1 error: the mean of max(0, 1 - 2 y s) over the items of each
    list, y = -1 or +1.

    Args:
        scores: ``(*, n)``, above 0 where the item is predicted positive. A score of exactly 0
            counts as wrong.
        target: the same shape, 1 or True for positives and 0 for negatives.
        mask: bool, the same shape, True = keep. A list that is entirely masked is left out of the
            mean.
        dim: the dimension of the items; None is the last one.
        reduction: over lists ``"mean"`` | ``"sum"`` | ``"none"``: one value per list.

    Example:
        >>> zero_one_hinge_loss(torch.tensor([1.0, 0.25, 0.5]), torch.tensor([1, 1, 0]))
        tensor(0.8333)
    """
    return _zero_one("zero_one_hinge_loss", scores, target, mask, dim, reduction, margin=1.0)


class ZeroOneHingeLoss(_Structured):
    """`zero_one_hinge_loss` as an `nn.Module`: ``loss(scores, target, mask)``.

    Args:
        dim: the dimension of the items; None is the last one.
        reduction: over lists ``"mean"`` | ``"sum"`` | ``"none"``: one value per list.

    Example:
        >>> loss = ZeroOneHingeLoss()
        >>> scores, target = torch.randn(4, 50, requires_grad=True), torch.rand(4, 50) < 0.2
        >>> loss(scores, target).backward()
    """

    function = staticmethod(zero_one_hinge_loss)


@checked()
def zero_one_perceptron_loss(
    scores: Tensor,
    target: Tensor,
    *,
    mask: Tensor | None = None,
    dim: int | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Perceptron loss: the mean of max(0, -2 y s) over the items of each list, y = -1 or +1.

    Args:
        scores: ``(*, n)``, above 0 where the item is predicted positive. A score of exactly 0
            counts as wrong.
        target: the same shape, 1 or True for positives and 0 for negatives.
        mask: bool, the same shape, True = keep. A list that is entirely masked is left out of the
            mean.
        dim: the dimension of the items; None is the last one.
        reduction: over lists ``"mean"`` | ``"sum"`` | ``"none"``: one value per list.

    Example:
        >>> zero_one_perceptron_loss(torch.tensor([1.0, -0.25, 0.5]), torch.tensor([1, 1, 0]))
        tensor(0.5000)
    """
    return _zero_one("zero_one_perceptron_loss", scores, target, mask, dim, reduction, margin=0.0)


class ZeroOnePerceptronLoss(_Structured):
    """`zero_one_perceptron_loss` as an `nn.Module`: ``loss(scores, target, mask)``.

    Args:
        dim: the dimension of the items; None is the last one.
        reduction: over lists ``"mean"`` | ``"sum"`` | ``"none"``: one value per list.

    Example:
        >>> loss = ZeroOnePerceptronLoss()
        >>> scores, target = torch.randn(4, 50, requires_grad=True), torch.rand(4, 50) < 0.2
        >>> loss(scores, target).backward()
    """

    function = staticmethod(zero_one_perceptron_loss)


def _average_precision(
    function: str,
    scores: Tensor,
    target: Tensor,
    mask: Tensor | None,
    dim: int | None,
    reduction: Reduction,
    *,
    augmented: bool,
) -> Tensor:
    batch = lists(function, scores, target, mask, dim=dim)
    value, gradient = ap_structured(working(batch.rows), batch.positive, batch.mask, augmented)
    factor = row_factor(batch.rows, live_lists(batch), reduction, batch.invalid)
    return attach(batch.rows, value, gradient, reduction, factor=factor, shape=batch.shape)


def _zero_one(
    function: str,
    scores: Tensor,
    target: Tensor,
    mask: Tensor | None,
    dim: int | None,
    reduction: Reduction,
    *,
    margin: float,
) -> Tensor:
    batch = lists(function, scores, target, mask, dim=dim)
    reached, sign = margins(batch)
    losses = (margin - 2 * reached).clamp(min=0)
    slopes = torch.where(losses > 0, -2 * sign, 0.0)
    return mean_over_items(batch, losses, slopes, reached, reduction)
