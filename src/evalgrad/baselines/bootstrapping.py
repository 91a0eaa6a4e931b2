"""Bootstrapped cross-entropy: only the hardest pixels count (online bootstrapping, OHEM). Ordinary
autograd.
"""

import math

import torch
from torch import Tensor

from evalgrad._errors import fail
from evalgrad._inputs import Weight, class_maps
from evalgrad._module import LossModule
from evalgrad._options import Reduction, checked, number
from evalgrad._rows import reduce, row_factor
from evalgrad._softmax import pixel_losses


def _kept(function: str, argument: str, value: object) -> None:
    repair = (
        "Pass a number of pixels as an integer, or a fraction of the valid pixels as a float in"
        " (0, 1]."
    )
    number(above=0, repair=repair)(function, argument, value)
    if isinstance(value, float) and value > 1:
        fail(ValueError, function, argument, "an integer or at most 1.0", repr(value), repair)


PROBABILITY = number(
    above=0,
    below=1,
    none=True,
    repair="It is a probability: pixels whose true class has less are kept; 0.7 is usual, None"
    " keeps exactly k.",
)


@checked(k=_kept, threshold=PROBABILITY)
def bootstrapped_cross_entropy(
    logits: Tensor,
    target: Tensor,
    *,
    k: int | float = 0.25,
    threshold: float | None = None,
    per_image: bool = True,
    ignore_index: int | None = None,
    weight: Weight = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Cross-entropy of the hardest valid pixels (online bootstrapping, OHEM).

    Wu, Shen, van den Hengel: Bridging Category-level and Instance-level Semantic Image
    Segmentation, 2016.

    Args:
        logits: ``(N, C, *)`` raw scores.
        target: ``(N, *)`` or ``(N, 1, *)`` class indices.
        k: how many pixels of a group are kept: an integer, or a float in (0, 1] for a fraction of
            the valid pixels, rounded down but at least one. The hardest are those with the highest
            cross-entropy, before class weights.
        threshold: keep every pixel whose true class has a probability below this, but at least `k`
            pixels.
        per_image: if True, every image is a group; if False, the batch is one group.
        ignore_index: label of pixels to ignore.
        weight: C class weights, a tensor or a sequence; the loss of a group is the weighted mean
            over the pixels kept.
        reduction: over groups ``"mean"`` | ``"sum"`` | ``"none"``: ``(groups,)``.

    Example:
        >>> logits = torch.tensor([[[0.0, 100.0, 0.0, 100.0], [0.0, 0.0, 100.0, 0.0]]])
        >>> target = torch.tensor([[0, 0, 0, 255]])
        >>> bootstrapped_cross_entropy(logits, target, k=2, ignore_index=255)
        tensor(50.3466)
    """
    maps = class_maps(
        "bootstrapped_cross_entropy",
        logits,
        target,
        per_image=per_image,
        ignore_index=ignore_index,
        weight=weight,
    )
    losses = pixel_losses(maps)
    label = maps.label.flatten(1)
    factor = (
        torch.ones_like(losses)
        if maps.weight is None
        else maps.weight.to(losses)[label.clamp(min=0)]
    )
    kept = torch.where(_hardest(losses.detach(), label >= 0, k, threshold), factor, 0.0)
    total = kept.sum(-1)
    pooled = torch.where(kept > 0, losses * kept, 0.0).sum(-1) / torch.where(total > 0, total, 1.0)
    return reduce(pooled, row_factor(pooled, total > 0, reduction, maps.invalid), reduction)


class BootstrappedCrossEntropy(LossModule):
    """`bootstrapped_cross_entropy` as an `nn.Module`: ``loss(logits, target)``.

    Args:
        k: how many pixels of a group are kept: an integer, or a float in (0, 1] for a fraction of
            the valid pixels, rounded down but at least one. The hardest are those with the highest
            cross-entropy, before class weights.
        threshold: keep every pixel whose true class has a probability below this, but at least `k`
            pixels.
        per_image: if True, every image is a group; if False, the batch is one group.
        ignore_index: label of pixels to ignore.
        weight: C class weights, a tensor or a sequence; the loss of a group is the weighted mean
            over the pixels kept.
        reduction: over groups ``"mean"`` | ``"sum"`` | ``"none"``: ``(groups,)``.

    Example:
        >>> loss = BootstrappedCrossEntropy(k=0.5)
        >>> logits = torch.randn(2, 21, 8, 8, requires_grad=True)
        >>> loss(logits, torch.randint(21, (2, 8, 8))).backward()
    """

    function = staticmethod(bootstrapped_cross_entropy)

    def __init__(
        self,
        *,
        k: int | float = 0.25,
        threshold: float | None = None,
        per_image: bool = True,
        ignore_index: int | None = None,
        weight: Weight = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(locals())


def _hardest(losses: Tensor, valid: Tensor, k: int | float, threshold: float | None) -> Tensor:
    """Which pixels are kept: the k highest losses of each row, or all above -log(threshold) if
    those are more.
    """
    n = losses.shape[1]
    available = valid.sum(-1, keepdim=True)
    wanted = (
        (k * available.double()).floor().clamp(min=1)
        if isinstance(k, float)
        else available.new_full((), k)
    )
    wanted = torch.minimum(wanted.to(available), available)
    # No more than this are wanted of any row. Under compile n may be a symbol, which does not
    # multiply by a float.
    most = (
        n
        if torch.compiler.is_compiling()
        else min(n, max(int(k * n), 1))
        if isinstance(k, float)
        else min(n, k)
    )
    top = losses.masked_fill(~valid, -1.0).topk(most, dim=-1).indices
    among = torch.arange(most, device=losses.device) < wanted
    kept = torch.zeros_like(valid).scatter(-1, top, among)
    if threshold is None:
        return kept
    hard = valid & ~(losses <= -math.log(threshold))  # NaN is hard
    return torch.where(hard.sum(-1, keepdim=True) >= wanted, hard, kept)
