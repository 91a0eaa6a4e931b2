"""The Lovász hinge: a surrogate of 1 - IoU for binary and multilabel segmentation.

The errors are the hinge losses max(1 - F y, 0), y = +1 on the foreground and -1 elsewhere; the loss
is the Lovász extension of the Jaccard loss at them: convex in the logits F, piecewise linear, and
at least 1 - IoU of the prediction F > 0. Berman, Rannen Triki, Blaschko: The Lovász-Softmax loss,
CVPR 2018, section 2.1.
"""

from typing import Any

import torch
from torch import Tensor, nn

from evalgrad import _checks
from evalgrad._gradient import with_gradient
from evalgrad._masking import any_item, reduction_factor, working_dtype
from evalgrad.lovasz.binary_labels import foreground_and_mask
from evalgrad.lovasz.extension import by_rows, extend_rows
from evalgrad.lovasz.hinge_bins import hinge_in_bins
from evalgrad.lovasz.prox import proximal_point


def lovasz_hinge_loss(
    logits: Tensor,
    target: Tensor,
    *,
    per_image: bool = True,
    per_class: bool = False,
    ignore_index: int | None = None,
    empty: str = "max",
    bins: int | None = None,
    gradient: str = "subgradient",
    lam: float = 1.0,
    reduction: str = "mean",
) -> Tensor:
    """Lovász hinge of raw binary scores.

    Args:
        logits: ``(N, *)`` raw scores, foreground where positive; with `per_class` ``(N, C, *)``,
            one binary task per class.
        target: the same shape, 1 or True on the foreground and 0 elsewhere.
        per_image: True: every image is a group, as the mean IoU of images is. False: the batch is
            one group.
        per_class: give every class of axis 1 its own groups (multilabel segmentation).
        ignore_index: label of pixels that are as if absent.
        empty: groups without foreground: ``"max"`` counts them with their largest error, which
            keeps false positives down on empty images; ``"skip"`` leaves them out of the mean. The
            choice can decide a comparison: state it.
        bins: None is exact; K counts losses in K equal bins between 0 and the largest of the group
            instead, which needs no sort: the value is then within 1/K of that largest loss of the
            exact one. 4096 is a good number.
        gradient: ``"subgradient"`` of the loss, or ``"prox"``: lam (x - u) with u the proximal
            point of the margins x, see `lovasz_prox`; the value is the same.
        lam: factor of the quadratic term under ``"prox"``; a decaying step size is an increasing
            lam.
        reduction: over groups ``"mean"`` | ``"sum"`` | ``"none"``: ``(groups,)``, or ``(groups,
            C)`` with `per_class`.

    Example:
        >>> logits = torch.randn(2, 8, 8, requires_grad=True)
        >>> lovasz_hinge_loss(logits, torch.rand(2, 8, 8) > 0.5).backward()
    """
    _check_options(per_image, per_class, ignore_index, empty, bins, gradient, lam, reduction)
    _check_tensors(logits, target, per_class)
    front, valid = foreground_and_mask("lovasz_hinge_loss", target, ignore_index)
    x, foreground = (_group(t, per_image, per_class) for t in (logits, front))
    mask = None if valid is None else _group(valid, per_image, per_class)
    factor = _factor(foreground, mask, empty, reduction)
    operator = extend_rows if bins is None else hinge_in_bins
    value, slopes = by_rows(operator, x, foreground, mask, factor, True if bins is None else bins)
    if gradient == "prox":
        slopes = _prox_slopes(x, foreground, mask, factor, lam)
    return with_gradient(x, value if reduction == "none" else value.sum(), slopes).to(logits.dtype)


class LovaszHingeLoss(nn.Module):
    """`lovasz_hinge_loss` as a module, with the same options."""

    def __init__(
        self,
        *,
        per_image: bool = True,
        per_class: bool = False,
        ignore_index: int | None = None,
        empty: str = "max",
        bins: int | None = None,
        gradient: str = "subgradient",
        lam: float = 1.0,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        _check_options(per_image, per_class, ignore_index, empty, bins, gradient, lam, reduction)
        self.options: dict[str, Any] = {
            "per_image": per_image,
            "per_class": per_class,
            "ignore_index": ignore_index,
            "empty": empty,
            "bins": bins,
            "gradient": gradient,
            "lam": lam,
            "reduction": reduction,
        }

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return lovasz_hinge_loss(logits, target, **self.options)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())


def _check_options(
    per_image: bool,
    per_class: bool,
    ignore_index: int | None,
    empty: str,
    bins: int | None,
    gradient: str,
    lam: float,
    reduction: str,
) -> None:
    function = "lovasz_hinge_loss"
    _checks.check_flag(function, "per_image", per_image)
    _checks.check_flag(function, "per_class", per_class)
    _checks.check_ignore_index(function, ignore_index)
    _checks.check_option(function, "empty", empty, ("max", "skip"))
    _checks.check_option(function, "gradient", gradient, ("subgradient", "prox"))
    if bins is not None:
        _checks.check_integer(
            function,
            "bins",
            bins,
            low=1,
            high=2**20,
            repair="4096 is a good number; None is exact.",
        )
        if gradient == "prox":
            _checks.fail(
                ValueError,
                function,
                "bins",
                'None with gradient="prox"',
                repr(bins),
                "The proximal point is found exactly.",
            )
    _checks.check_number(
        function, "lam", lam, above=0, repair="lam multiplies the quadratic term; 1.0 is a start."
    )
    _checks.check_option(function, "reduction", reduction, _checks.REDUCTIONS)


def _check_tensors(logits: Tensor, target: Tensor, per_class: bool) -> None:
    function = "lovasz_hinge_loss"
    _checks.check_floating(function, "logits", logits, at_least=2 if per_class else 1)
    _checks.check_target(function, target, logits, logits.shape)


def _group(x: Tensor, per_image: bool, per_class: bool) -> Tensor:
    """Canonical form: ``(groups, items)``, or ``(groups, C, items)`` with `per_class`."""
    lead = x.shape[:2] if per_class else x.shape[:1]
    x = x.reshape(*lead, x.shape[len(lead) :].numel())
    if per_image:
        return x
    return x.movedim(0, -2).flatten(-2).unsqueeze(0)


def _factor(foreground: Tensor, mask: Tensor | None, empty: str, reduction: str) -> Tensor:
    """What each group is multiplied with before the sum; 0 for those that do not take part."""
    if empty == "skip":
        return reduction_factor(
            any_item(foreground if mask is None else foreground & mask), reduction
        )
    if mask is not None:
        return reduction_factor(any_item(mask), reduction)
    # all of them, unless there are no pixels at all: then the loss is 0 anyway
    groups = foreground.shape[:-1]
    share = 1 / max(groups.numel(), 1) if reduction == "mean" else 1.0
    return torch.full(groups, share, dtype=torch.float64, device=foreground.device)


def _prox_slopes(
    x: Tensor, foreground: Tensor, mask: Tensor | None, factor: Tensor, lam: float
) -> Tensor:
    sign = torch.where(foreground, -1.0, 1.0).to(working_dtype(x))
    margin = 1 + sign * x.detach()
    u = proximal_point(margin, foreground, mask, lam=lam, hinge=True)
    step = sign * lam * (margin - u) * factor.unsqueeze(-1).to(u.dtype)
    return step if mask is None else torch.where(mask, step, 0.0)
