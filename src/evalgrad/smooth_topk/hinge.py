"""The top-k hinge: the limit of the smooth top-k loss at temperature 0, max(margin + (s_[k] -
s_y)/k, 0).

s_[k] is the k-th largest score of the classes other than the label y: positive as soon as the label
does not lead it by k margins. Its gradient touches two classes of each sample, which is why the
paper smooths it. Berrada, Zisserman, Kumar: Smooth loss functions for deep top-k classification,
ICLR 2018, equation (8).
"""

import math

import torch
from torch import Tensor

from evalgrad import _native
from evalgrad._inputs import Weight, samples
from evalgrad._module import LossModule
from evalgrad._options import Reduction, check_guesses, checked
from evalgrad._rows import attach, exact_dtype, row_factor, working
from evalgrad.smooth_topk.samples import lead_of, row_scale, without_absent


@checked()
def topk_hinge_loss(
    scores: Tensor,
    target: Tensor,
    *,
    k: int = 5,
    margin: float = 1.0,
    ignore_index: int | None = None,
    weight: Weight = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Top-k hinge loss of raw class scores.

    Args:
        scores: ``(N, C)``, ``(N, C, *)`` or ``(C,)`` raw scores, as `F.cross_entropy` takes them.
        target: ``(N,)``, ``(N, *)`` or ``()`` class indices, of any integer dtype.
        k: number of guesses, 1 to C - 1.
        margin: by how much the label should lead, on the scale of the scores over k.
        ignore_index: label of samples to ignore.
        weight: C class weights, a tensor or a sequence; samples whose class has weight 0 are
            ignored.
        reduction: ``"mean"``: the weighted mean over the samples that are not ignored; ``"sum"``;
            ``"none"``: the shape of `target`, 0 for ignored samples.

    Classes that are tied for the k-th place share the gradient, as they do in the limit of
    `smooth_topk_loss`.

    Example:
        >>> topk_hinge_loss(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([2]), k=2)
        tensor(1.5000)
    """
    function = "topk_hinge_loss"
    batch = samples(function, scores, target, ignore_index=ignore_index, weight=weight)
    x = working(batch.rows)
    check_guesses(function, k, x.shape[1])
    factor = row_factor(x, batch.weight, reduction)
    value, gradient = topk_hinge(x, batch.label, factor, k, float(margin))
    return attach(batch.rows, value, gradient, reduction, shape=batch.shape)


class TopKHingeLoss(LossModule):
    """`topk_hinge_loss` as an `nn.Module`: ``loss(scores, target)``.

    Args:
        k: number of guesses, 1 to C - 1.
        margin: by how much the label should lead, on the scale of the scores over k.
        ignore_index: label of samples to ignore.
        weight: C class weights, a tensor or a sequence; samples whose class has weight 0 are
            ignored.
        reduction: ``"mean"``: the weighted mean over the samples that are not ignored; ``"sum"``;
            ``"none"``: the shape of `target`, 0 for ignored samples.

    Example:
        >>> loss = TopKHingeLoss(k=5)
        >>> scores = torch.randn(8, 100, requires_grad=True)
        >>> loss(scores, torch.randint(100, (8,))).backward()
    """

    function = staticmethod(topk_hinge_loss)

    def __init__(
        self,
        *,
        k: int = 5,
        margin: float = 1.0,
        ignore_index: int | None = None,
        weight: Weight = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(locals())


# ---- operator: rows (R, C), labels (R,), factors (R,) -> value (R,), gradient (R, C) -------------


def _pure(x: Tensor, label: Tensor, factor: Tensor, k: int, margin: float) -> tuple[Tensor, Tensor]:
    place, wide = label.clamp(0, x.shape[1] - 1), exact_dtype(x)
    y = place.unsqueeze(-1)
    rest = x.scatter(-1, y, -math.inf)
    top = rest.topk(k, dim=-1).values
    kth = torch.where(top[:, :1].isnan(), top[:, :1], top[:, k - 1 :])  # a NaN counts as largest
    z = margin + lead_of(kth, x.gather(-1, y).to(wide)) / k
    scale = row_scale(label, place, factor)
    value = scale * z.clamp_min(0)
    slope = scale * torch.where(z.isnan(), z, (z > 0).to(wide)) / k
    tied = rest == kth
    share = (slope / tied.sum(-1, keepdim=True)).to(x.dtype)
    slope = slope.to(x.dtype)
    gradient = torch.where(tied, share, slope * 0).scatter(-1, y, -slope)
    return without_absent(factor, value.squeeze(-1).to(x.dtype), gradient)


def _native_rows(
    x: Tensor, label: Tensor, factor: Tensor, k: int, margin: float
) -> tuple[Tensor, Tensor]:
    value, gradient = _native.empty_results(x)
    _native.call("topk_hinge", x, label, factor, *x.shape, k, margin, value, gradient)
    return value, gradient


topk_hinge = _native.operator(
    "topk_hinge(Tensor x, Tensor label, Tensor factor, SymInt k, float margin) -> (Tensor, Tensor)",
    pure=_pure,
    native=_native_rows,
    dtypes=(torch.float32, torch.float64),
)
