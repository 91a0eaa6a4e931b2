"""The Lovász hinge: a surrogate of 1 - IoU for binary and multilabel segmentation.

The errors are the hinge losses max(1 - F y, 0), y = +1 on the foreground and -1 elsewhere; the loss
is the Lovász extension of the Jaccard loss at them: convex in the logits F, piecewise linear, and
at least 1 - IoU of the prediction F > 0. With another metric than the Jaccard index it is at least
1 - that metric, and convex where a miss weighs no less than a hit. Berman, Rannen Triki, Blaschko:
The Lovász-Softmax loss, CVPR 2018, section 2.1.
"""

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from evalgrad._binary_inputs import Binary, binary_maps
from evalgrad._errors import fail
from evalgrad._module import LossModule
from evalgrad._options import Reduction, checked, flag, one_of
from evalgrad._rows import any_item, attach, row_factor, working
from evalgrad.lovasz.extension import extend_rows
from evalgrad.lovasz.hinge_bins import hinge_in_bins
from evalgrad.lovasz.metric import METRICS, Metric, metric_choice
from evalgrad.lovasz.prox import LAM, proximal_point

Empty = Literal["max", "skip"]
Gradient = Literal["subgradient", "prox"]


def _groups(function: str, argument: str, value: object) -> None:
    if value is not None:
        flag(function, argument, value)


@checked(
    per_image=_groups,
    empty=one_of("max", "skip"),
    gradient=one_of("subgradient", "prox"),
    lam=LAM,
    metric=metric_choice,
)
def lovasz_hinge_loss(
    logits: Tensor,
    target: Tensor,
    *,
    per_image: bool | None = None,
    per_class: bool = False,
    ignore_index: int | None = None,
    empty: Empty = "max",
    bins: int | None = None,
    metric: Metric = "jaccard",
    gradient: Gradient = "subgradient",
    lam: float = 1.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """Lovász hinge of raw binary scores.

    Limits of exactness: the float32 kernel on CPU compares the margins of 4,096 pixels or more in
    units of 2^-24 of their spread (at most 1e-6) and treats closer ones as tied. From 65,536 pixels
    on it may count them in fine bins instead of sorting them; the value then stays that of a sort
    to the last digits, and the number of bins is chosen so that the gradient is expected within
    3e-5 of the exact one, as a norm. float64, other devices and builds without the kernels sort.
    docs/lovasz.md has the tests.

    Args:
        logits: ``(N, *)`` raw scores, foreground where positive; with `per_class` ``(N, C, *)``,
            one binary task per class.
        target: the same shape, with or without a dimension 1 of size 1; 1 or True on the foreground
            and 0 elsewhere, of any dtype.
        per_image: if True, every image is a group, as in the mean IoU over images; if False, the
            batch is one group. None means True, except that images of one pixel, such as logits
            ``(N,)``, raise an error: for tables of items pass True or False.
        per_class: treat every class in dim 1 as a binary task with its own groups (multilabel
            segmentation).
        ignore_index: label of pixels to ignore.
        empty: what to do with groups without foreground: with ``"max"`` their loss is the largest
            error, which penalises false positives on empty images; ``"skip"`` leaves them out of
            the mean. The choice can decide a comparison: report it.
        bins: None for the exact loss; K groups the losses into K equal bins between 0 and the
            largest of the group instead of sorting them: the value is then within 1/K of that
            largest loss of the exact one. 4096 is a good choice.
        metric: ``"jaccard"`` | ``"dice"`` | ``Tversky(misses=, false_alarms=)``: the metric to
            optimise. The loss is twice 1 - metric if every logit is -1 or 1, since the hinge loss
            of a wrong pixel is then 2.
        gradient: ``"subgradient"`` of the loss, or ``"prox"``: lam (x - u) with u the proximal
            point of the margins x, see `lovasz_prox`; the value is the same. Only for the Jaccard
            index.
        lam: factor of the quadratic term with ``"prox"``; increase it for a decaying step size.
        reduction: over groups ``"mean"`` | ``"sum"`` | ``"none"``: ``(groups,)``, or ``(groups,
            C)`` with `per_class`.

    Example:
        >>> logits = torch.randn(2, 8, 8, requires_grad=True)
        >>> lovasz_hinge_loss(logits, torch.rand(2, 8, 8) > 0.5).backward()
    """
    _check_prox(bins, metric, gradient)
    maps = binary_maps(
        "lovasz_hinge_loss",
        logits,
        target,
        per_image=per_image,
        per_class=per_class,
        ignore_index=ignore_index,
    )
    x = working(maps.rows)
    factor = row_factor(x, _counted(maps, empty), reduction, maps.invalid)
    weights = METRICS.get(metric, metric)
    if bins is None:
        value, slopes = extend_rows(x, maps.positive, maps.mask, factor, True, *weights)
    else:
        value, slopes = hinge_in_bins(x, maps.positive, maps.mask, factor, bins, *weights)
    if gradient == "prox":
        slopes = _prox_slopes(x, maps, factor, lam)
    return attach(maps.rows, value, slopes, reduction, invalid=maps.invalid, shape=maps.shape)


class LovaszHingeLoss(LossModule):
    """`lovasz_hinge_loss` as an `nn.Module`: ``loss(logits, target)``.

    Args:
        per_image: if True, every image is a group, as in the mean IoU over images; if False, the
            batch is one group. None means True, except that images of one pixel, such as logits
            ``(N,)``, raise an error: for tables of items pass True or False.
        per_class: treat every class in dim 1 as a binary task with its own groups (multilabel
            segmentation).
        ignore_index: label of pixels to ignore.
        empty: what to do with groups without foreground: with ``"max"`` their loss is the largest
            error, which penalises false positives on empty images; ``"skip"`` leaves them out of
            the mean. The choice can decide a comparison: report it.
        bins: None for the exact loss; K groups the losses into K equal bins between 0 and the
            largest of the group instead of sorting them: the value is then within 1/K of that
            largest loss of the exact one. 4096 is a good choice.
        metric: ``"jaccard"`` | ``"dice"`` | ``Tversky(misses=, false_alarms=)``: the metric to
            optimise. The loss is twice 1 - metric if every logit is -1 or 1, since the hinge loss
            of a wrong pixel is then 2.
        gradient: ``"subgradient"`` of the loss, or ``"prox"``: lam (x - u) with u the proximal
            point of the margins x, see `lovasz_prox`; the value is the same. Only for the Jaccard
            index.
        lam: factor of the quadratic term with ``"prox"``; increase it for a decaying step size.
        reduction: over groups ``"mean"`` | ``"sum"`` | ``"none"``: ``(groups,)``, or ``(groups,
            C)`` with `per_class`.

    Example:
        >>> loss = LovaszHingeLoss(metric="dice")
        >>> logits = torch.randn(2, 8, 8, requires_grad=True)
        >>> loss(logits, torch.rand(2, 8, 8) > 0.5).backward()
    """

    function = staticmethod(lovasz_hinge_loss)

    def __init__(
        self,
        *,
        per_image: bool | None = None,
        per_class: bool = False,
        ignore_index: int | None = None,
        empty: Empty = "max",
        bins: int | None = None,
        metric: Metric = "jaccard",
        gradient: Gradient = "subgradient",
        lam: float = 1.0,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(locals())

    def _check_together(self, options: Mapping[str, Any]) -> None:
        _check_prox(options["bins"], options["metric"], options["gradient"])


def _check_prox(bins: int | None, metric: Metric, gradient: Gradient) -> None:
    if gradient != "prox":
        return
    if bins is not None:
        must, repair = 'None with gradient="prox"', "The proximal point is computed exactly."
        fail(ValueError, "lovasz_hinge_loss", "bins", must, repr(bins), repair)
    if metric != "jaccard":
        must = '"jaccard" with gradient="prox"'
        repair = (
            'The proximal point is known only for the Jaccard loss; use gradient="subgradient".'
        )
        fail(ValueError, "lovasz_hinge_loss", "metric", must, repr(metric), repair)


def _counted(maps: Binary, empty: Empty) -> Tensor | None:
    """Which groups take part: those with foreground, or those of which anything counts."""
    if empty == "skip":
        return any_item(maps.counted()[0])
    return None if maps.mask is None else any_item(maps.mask)


def _prox_slopes(x: Tensor, maps: Binary, factor: Tensor, lam: float) -> Tensor:
    sign = torch.where(maps.positive, -1.0, 1.0).to(x.dtype)
    margin = 1 + sign * x
    u = proximal_point(margin, maps.positive, maps.mask, lam=lam, hinge=True)
    step = sign * lam * (margin - u) * factor.unsqueeze(-1)
    return step if maps.mask is None else torch.where(maps.mask, step, 0.0)
