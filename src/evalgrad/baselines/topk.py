"""Top-k losses that smooth top-k is compared with: the top-k SVM and the top-k entropies. Ordinary
autograd.

With a_j = s_j - s_y the lead of class j over the label y, and c_[j] the j-th largest of
margin + a_j, c_y = 0 among them, the top-k SVMs are

    alpha:  max(0, (c_[1] + .. + c_[k]) / k),      beta:  (max(0, c_[1]) + .. + max(0, c_[k])) / k.

The top-k entropy is log(1 + exp(h)), where h is cross-entropy's log-sum over the classes other than
y, the largest <a, p> + entropy(p) over distributions p, but of those with p_j <= 1/k alone: no
single class counts for more than a k-th. The truncated one leaves the k - 1 largest a_j out. With
k = 1 both are cross-entropy. Lapin, Hein, Schiele: Top-k multiclass SVM, NeurIPS 2015; Loss
functions for top-k error: analysis and insights, CVPR 2016.
"""

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from evalgrad._inputs import WORKING, Weight, samples
from evalgrad._module import LossModule
from evalgrad._options import Reduction, check_guesses, checked, flag, one_of
from evalgrad._rows import reduce, row_factor

Variant = Literal["alpha", "beta"]


@checked(variant=one_of("alpha", "beta"))
def topk_svm_loss(
    scores: Tensor,
    target: Tensor,
    *,
    k: int = 5,
    variant: Variant = "alpha",
    margin: float = 1.0,
    ignore_index: int | None = None,
    weight: Weight = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Top-k SVM loss of raw class scores.

    Args:
        scores: ``(N, C)``, ``(N, C, *)`` or ``(C,)`` raw scores, as `F.cross_entropy` takes them.
        target: ``(N,)``, ``(N, *)`` or ``()`` class indices, of any integer dtype.
        k: number of guesses, 1 to C - 1.
        variant: ``"alpha"`` clamps the mean of the k largest violations at 0; ``"beta"`` clamps
            each of them at 0 and takes the mean.
        margin: by how much the label should lead the others.
        ignore_index: label of samples to ignore.
        weight: C class weights, a tensor or a sequence.
        reduction: ``"mean"``: the weighted mean over the samples that are not ignored; ``"sum"``;
            ``"none"``: the shape of `target`, 0 for ignored samples.

    Example:
        >>> topk_svm_loss(torch.tensor([[3.0, 1.0, 0.0]]), torch.tensor([1]), k=2)  # (3 + 0) / 2
        tensor(1.5000)
    """

    def core(x: Tensor, y: Tensor) -> Tensor:
        violation = (margin + x - x.gather(1, y)).scatter(1, y, 0.0)
        largest = violation.topk(k, dim=1).values
        return largest.mean(1).relu() if variant == "alpha" else largest.relu().mean(1)

    options = {"ignore_index": ignore_index, "weight": weight}
    return of_samples("topk_svm_loss", core, scores, target, k, reduction, **options)


@checked(truncated=flag)
def topk_entropy_loss(
    scores: Tensor,
    target: Tensor,
    *,
    k: int = 5,
    truncated: bool = False,
    ignore_index: int | None = None,
    weight: Weight = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Top-k entropy loss of raw class scores; with k = 1 it is cross-entropy.

    Args:
        scores: ``(N, C)``, ``(N, C, *)`` or ``(C,)`` raw scores, as `F.cross_entropy` takes them.
        target: ``(N,)``, ``(N, *)`` or ``()`` class indices, of any integer dtype.
        k: number of guesses, 1 to C - 1.
        truncated: if True, leave out the k - 1 strongest competitors instead of bounding their
            probabilities; the loss is then not convex.
        ignore_index: label of samples to ignore.
        weight: C class weights, a tensor or a sequence.
        reduction: ``"mean"``: the weighted mean over the samples that are not ignored; ``"sum"``;
            ``"none"``: the shape of `target`, 0 for ignored samples.

    Example:
        >>> scores, target = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1])
        >>> topk_entropy_loss(scores, target, k=1), F.cross_entropy(scores, target)
        (tensor(1.4076), tensor(1.4076))
        >>> topk_entropy_loss(scores, target, k=2, truncated=True)  # log(1 + exp(0 - 1))
        tensor(0.3133)
    """

    def core(x: Tensor, y: Tensor) -> Tensor:
        x = finite_scores(x)
        lead = (x - x.gather(1, y)).scatter(1, y, -math.inf)
        strongest = lead.detach().topk(k, dim=1)
        bounded = torch.full_like(y, k - 1) if truncated else _bounded(lead.detach(), *strongest)
        first = torch.arange(k, device=x.device) < bounded
        first = torch.zeros_like(lead, dtype=torch.bool).scatter(1, strongest.indices, first)
        free = lead.masked_fill(first, -math.inf).logsumexp(1)
        free = free + 0.0 * lead.detach().amax(1).nan_to_num(torch.nan, 0.0, 0.0)  # a NaN left out
        h = free if truncated else _with_bounded(lead, free, first, bounded.squeeze(1), k)
        return F.softplus(h, threshold=50)

    options = {"ignore_index": ignore_index, "weight": weight}
    return of_samples("topk_entropy_loss", core, scores, target, k, reduction, **options)


class TopKSVMLoss(LossModule):
    """`topk_svm_loss` as an `nn.Module`: ``loss(scores, target)``.

    Args:
        k: number of guesses, 1 to C - 1.
        variant: ``"alpha"`` clamps the mean of the k largest violations at 0; ``"beta"`` clamps
            each of them at 0 and takes the mean.
        margin: by how much the label should lead the others.
        ignore_index: label of samples to ignore.
        weight: C class weights, a tensor or a sequence.
        reduction: ``"mean"``: the weighted mean over the samples that are not ignored; ``"sum"``;
            ``"none"``: the shape of `target`, 0 for ignored samples.

    Example:
        >>> loss = TopKSVMLoss(k=3)
        >>> scores = torch.randn(8, 100, requires_grad=True)
        >>> loss(scores, torch.randint(100, (8,))).backward()
    """

    function = staticmethod(topk_svm_loss)

    def __init__(
        self,
        *,
        k: int = 5,
        variant: Variant = "alpha",
        margin: float = 1.0,
        ignore_index: int | None = None,
        weight: Weight = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(locals())


class TopKEntropyLoss(LossModule):
    """`topk_entropy_loss` as an `nn.Module`: ``loss(scores, target)``.

    Args:
        k: number of guesses, 1 to C - 1.
        truncated: if True, leave out the k - 1 strongest competitors instead of bounding their
            probabilities; the loss is then not convex.
        ignore_index: label of samples to ignore.
        weight: C class weights, a tensor or a sequence.
        reduction: ``"mean"``: the weighted mean over the samples that are not ignored; ``"sum"``;
            ``"none"``: the shape of `target`, 0 for ignored samples.

    Example:
        >>> loss = TopKEntropyLoss(k=3)
        >>> scores = torch.randn(8, 100, requires_grad=True)
        >>> loss(scores, torch.randint(100, (8,))).backward()
    """

    function = staticmethod(topk_entropy_loss)

    def __init__(
        self,
        *,
        k: int = 5,
        truncated: bool = False,
        ignore_index: int | None = None,
        weight: Weight = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(locals())


# ---- what the losses share -----------------------------------------------------------------------


def of_samples(
    function: str,
    core: Callable[[Tensor, Tensor], Tensor],
    scores: Tensor,
    target: Tensor,
    k: int,
    reduction: Reduction,
    **options: Any,
) -> Tensor:
    """The loss whose `core` takes rows of scores ``(R, C)`` and the labels' columns ``(R, 1)``."""
    batch = samples(function, scores, target, **options)
    x = batch.rows.to(WORKING[batch.rows.dtype])
    check_guesses(function, k, x.shape[1])
    factor = row_factor(x, batch.weight, reduction)
    # What is left out may hold anything; a label that was not declared makes its row NaN.
    x = torch.where((factor == 0).unsqueeze(1), 0.0, x)
    factor = factor.masked_fill((batch.label < 0) & (factor != 0), torch.nan)
    loss = reduce(core(x, batch.label.clamp(min=0).unsqueeze(1)), factor, reduction)
    return loss.reshape(batch.shape) if reduction == "none" else loss


def finite_scores(x: Tensor) -> Tensor:
    """Infinite scores as their limit: their differences and sums would have no slope."""
    widest = torch.finfo(x.dtype).max / 8
    return x.nan_to_num(torch.nan, widest, -widest)


# ---- the top-k entropy: p_j = min(1/k, exp(a_j - t)) ---------------------------------------------


def _bounded(lead: Tensor, values: Tensor, indices: Tensor) -> Tensor:
    """How many of the largest a_j have p_j = 1/k, ``(R, 1)``: 0 to k - 1.

    With u of them the others share r = 1 - u/k in proportion to exp(a_j); u is the first for which
    the largest of these stays below 1/k.
    """
    k = values.shape[1]
    last = lead.scatter(1, indices[:, : k - 1], -math.inf).logsumexp(1, keepdim=True)
    tails = torch.cat([last, values[:, : k - 1].flip(1)], 1).logcumsumexp(1).flip(1)
    left = torch.arange(k, 0, -1, device=lead.device).to(lead) / k
    fits = values + left.log() - tails <= -math.log(k)
    # The last always fits, whatever rounding says.
    return F.pad(fits[:, : k - 1], (0, 1), value=True).to(torch.uint8).argmax(1, keepdim=True)


def _with_bounded(lead: Tensor, free: Tensor, first: Tensor, count: Tensor, k: int) -> Tensor:
    """h = <a, p> + entropy(p), `free` being the log-sum of exp(a_j) where p_j is below 1/k."""
    count = count.to(lead)
    share = (k - count) / k
    fixed = torch.where(first, lead, 0.0).sum(1) / k + count * (math.log(k) / k)
    return fixed + share * (free - share.log())
