"""The structured baselines of direct loss minimisation: hinge and perceptron, for average precision
and for 0-1 error.

With F as in `ranking` and `zero_one` and y the correct output, the hinge is max_yhat (F(yhat) +
Delta(yhat)) - F(y), a convex upper bound of Delta(y_w); the perceptron is F(y_w) - F(y), which
knows nothing of Delta. Together with the direct losses in both directions and cross-entropy they
are the nine algorithms of Song et al. (ICML 2016), section 4.1.
"""

from typing import Any

import torch
from torch import Tensor, nn

from evalgrad import _checks
from evalgrad._gradient import with_gradient
from evalgrad._masking import working_dtype
from evalgrad.direct_loss.arguments import (
    as_rows,
    check_lists,
    counts_of,
    describe_options,
    reduce_lists,
)
from evalgrad.direct_loss.operators import ap_structured
from evalgrad.direct_loss.zero_one import margins, mean_over_items


def average_precision_hinge_loss(
    scores: Tensor, target: Tensor, *, mask: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """Structured hinge loss of average precision: max (F + 1 - AP) - F(all positives first), at
    least 1 - AP.

    Args:
        scores: ``(*, n)``, what ranks the n items of each list.
        target: the same shape, 1 or True for positives. A list without a positive or without a
            negative is void.
        mask: bool, the same shape, True = counts.
        reduction: over lists ``"mean"`` | ``"sum"`` | ``"none"``: the leading axes.

    Example:
        >>> average_precision_hinge_loss(torch.tensor([1.0, 0.0, 2.0]), torch.tensor([1, 0, 0]))
        tensor(1.5000)
    """
    return _average_precision("average_precision_hinge_loss", scores, target, mask, True, reduction)


class AveragePrecisionHingeLoss(nn.Module):
    """`average_precision_hinge_loss` as a module; `mask` is an argument of the call."""

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__()
        _checks.check_option(
            "average_precision_hinge_loss", "reduction", reduction, _checks.REDUCTIONS
        )
        self.options: dict[str, Any] = {"reduction": reduction}

    def forward(self, scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        return average_precision_hinge_loss(scores, target, mask=mask, **self.options)

    def extra_repr(self) -> str:
        return describe_options(self.options)


def average_precision_perceptron_loss(
    scores: Tensor, target: Tensor, *, mask: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """Ranking perceptron: (2/|P||N|) times the sum of max(0, psi_j - phi_i) over all pairs, in the
    time of a sort.

    Arguments as `average_precision_hinge_loss`.

    Example:
        >>> scores, target = torch.tensor([1.0, 0.0, 2.0]), torch.tensor([1, 0, 0])
        >>> average_precision_perceptron_loss(scores, target)
        tensor(1.)
    """
    return _average_precision(
        "average_precision_perceptron_loss", scores, target, mask, False, reduction
    )


class AveragePrecisionPerceptronLoss(nn.Module):
    """`average_precision_perceptron_loss` as a module; `mask` is an argument of the call."""

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__()
        _checks.check_option(
            "average_precision_perceptron_loss", "reduction", reduction, _checks.REDUCTIONS
        )
        self.options: dict[str, Any] = {"reduction": reduction}

    def forward(self, scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        return average_precision_perceptron_loss(scores, target, mask=mask, **self.options)

    def extra_repr(self) -> str:
        return describe_options(self.options)


def zero_one_hinge_loss(
    scores: Tensor, target: Tensor, *, mask: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """Structured hinge loss of 0-1 error: the mean of max(0, 1 - 2 y s) over the items of each
    list, y = -1 or +1.

    Arguments as `direct_zero_one_loss`.

    Example:
        >>> zero_one_hinge_loss(torch.tensor([1.0, 0.25, 0.5]), torch.tensor([1, 1, 0]))
        tensor(0.8333)
    """
    return _zero_one("zero_one_hinge_loss", scores, target, mask, 1.0, reduction)


class ZeroOneHingeLoss(nn.Module):
    """`zero_one_hinge_loss` as a module; `mask` is an argument of the call."""

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__()
        _checks.check_option("zero_one_hinge_loss", "reduction", reduction, _checks.REDUCTIONS)
        self.options: dict[str, Any] = {"reduction": reduction}

    def forward(self, scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        return zero_one_hinge_loss(scores, target, mask=mask, **self.options)

    def extra_repr(self) -> str:
        return describe_options(self.options)


def zero_one_perceptron_loss(
    scores: Tensor, target: Tensor, *, mask: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """Perceptron loss: the mean of max(0, -2 y s) over the items of each list, y = -1 or +1.

    Arguments as `direct_zero_one_loss`.

    Example:
        >>> zero_one_perceptron_loss(torch.tensor([1.0, -0.25, 0.5]), torch.tensor([1, 1, 0]))
        tensor(0.5000)
    """
    return _zero_one("zero_one_perceptron_loss", scores, target, mask, 0.0, reduction)


class ZeroOnePerceptronLoss(nn.Module):
    """`zero_one_perceptron_loss` as a module; `mask` is an argument of the call."""

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__()
        _checks.check_option("zero_one_perceptron_loss", "reduction", reduction, _checks.REDUCTIONS)
        self.options: dict[str, Any] = {"reduction": reduction}

    def forward(self, scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        return zero_one_perceptron_loss(scores, target, mask=mask, **self.options)

    def extra_repr(self) -> str:
        return describe_options(self.options)


def _average_precision(
    function: str,
    scores: Tensor,
    target: Tensor,
    mask: Tensor | None,
    augmented: bool,
    reduction: str,
) -> Tensor:
    _checks.check_option(function, "reduction", reduction, _checks.REDUCTIONS)
    check_lists(function, scores, target, mask)
    x, labels, counts = (
        as_rows(scores),
        as_rows(target == 1),
        None if mask is None else as_rows(mask),
    )
    value, gradient = ap_structured(x.detach().to(working_dtype(x)), labels, counts, augmented)
    positive, negative = counts_of(labels, counts)
    return reduce_lists(
        with_gradient(x, value, gradient), positive.any(-1) & negative.any(-1), scores, reduction
    )


def _zero_one(
    function: str,
    scores: Tensor,
    target: Tensor,
    mask: Tensor | None,
    margin: float,
    reduction: str,
) -> Tensor:
    _checks.check_option(function, "reduction", reduction, _checks.REDUCTIONS)
    check_lists(function, scores, target, mask)
    reached, sign = margins(scores, target)
    losses = (margin - 2 * reached).clamp(min=0)
    return mean_over_items(
        scores, mask, losses, torch.where(losses > 0, -2 * sign, 0.0), reached, reduction
    )
