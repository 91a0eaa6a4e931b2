"""The smooth top-k loss: a surrogate of top-k error for classification.

A sample is wrong in the sense of top-k error if its label y is not among the k best scores. The
hinge of that is not smooth, and its gradient is sparse; with temperature tau the maxima in it
become log-sums over all k-subsets of the classes, L = tau softplus(z), z = margin/tau + log sigma_k
- log sigma_{k-1} - s_y/(k tau), where sigma_j is the j-th elementary symmetric polynomial of
exp(s/(k tau)) over the classes other than y. Berrada, Zisserman, Kumar: Smooth loss functions for
deep top-k classification, ICLR 2018. The paper approximates the gradient of sigma; here it is
exact, see `expansion`.
"""

import math
import sys

import torch
import torch.nn.functional as F
from torch import Tensor

from evalgrad import _native
from evalgrad._inputs import Weight, samples
from evalgrad._module import LossModule
from evalgrad._options import Reduction, check_guesses, checked
from evalgrad._rows import attach, row_factor, working
from evalgrad.smooth_topk import expansion
from evalgrad.smooth_topk.samples import lead_of, row_scale, without_absent


@checked()
def smooth_topk_loss(
    scores: Tensor,
    target: Tensor,
    *,
    k: int = 5,
    temperature: float = 1.0,
    margin: float = 1.0,
    ignore_index: int | None = None,
    weight: Weight = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Smooth top-k loss of raw class scores.

    Args:
        scores: ``(N, C)``, ``(N, C, *)`` or ``(C,)`` raw scores, as `F.cross_entropy` takes them.
        target: ``(N,)``, ``(N, *)`` or ``()`` class indices, of any integer dtype. Soft targets
            raise an error.
        k: number of guesses, 1 to C - 1.
        temperature: tau > 0. Large values are easier to optimise but follow the top-k error less
            closely; towards 0 the loss becomes `topk_hinge_loss`. The paper trains with 1.0 on
            CIFAR-100 and 0.1 on ImageNet.
        margin: by how much the label should lead, on the scale of the scores over k. With 0, k = 1
            and temperature 1 the loss is cross-entropy.
        ignore_index: label of samples to ignore.
        weight: C class weights, a tensor or a sequence; samples whose class has weight 0 are
            ignored.
        reduction: ``"mean"``: the weighted mean over the samples that are not ignored; ``"sum"``;
            ``"none"``: the shape of `target`, 0 for ignored samples.

    Example:
        >>> scores = torch.randn(8, 100, requires_grad=True)
        >>> smooth_topk_loss(scores, torch.randint(100, (8,)), k=5, temperature=0.1).backward()
    """
    function = "smooth_topk_loss"
    batch = samples(function, scores, target, ignore_index=ignore_index, weight=weight)
    x = working(batch.rows)
    check_guesses(function, k, x.shape[1])
    factor = row_factor(x, batch.weight, reduction)
    options = (k, float(temperature), float(margin))
    value, gradient = smooth_topk(x, batch.label, factor, *options)
    return attach(batch.rows, value, gradient, reduction, shape=batch.shape)


class SmoothTopKLoss(LossModule):
    """`smooth_topk_loss` as an `nn.Module`: ``loss(scores, target)``.

    Args:
        k: number of guesses, 1 to C - 1.
        temperature: tau > 0. Large values are easier to optimise but follow the top-k error less
            closely; towards 0 the loss becomes `topk_hinge_loss`. The paper trains with 1.0 on
            CIFAR-100 and 0.1 on ImageNet.
        margin: by how much the label should lead, on the scale of the scores over k. With 0, k = 1
            and temperature 1 the loss is cross-entropy.
        ignore_index: label of samples to ignore.
        weight: C class weights, a tensor or a sequence; samples whose class has weight 0 are
            ignored.
        reduction: ``"mean"``: the weighted mean over the samples that are not ignored; ``"sum"``;
            ``"none"``: the shape of `target`, 0 for ignored samples.

    Example:
        >>> loss = SmoothTopKLoss(k=5, temperature=0.5)
        >>> scores = torch.randn(8, 100, requires_grad=True)
        >>> loss(scores, torch.randint(100, (8,))).backward()
    """

    function = staticmethod(smooth_topk_loss)

    def __init__(
        self,
        *,
        k: int = 5,
        temperature: float = 1.0,
        margin: float = 1.0,
        ignore_index: int | None = None,
        weight: Weight = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(locals())


# ---- operator: rows (R, C), labels (R,), factors (R,) -> value (R,), gradient (R, C) -------------


def _pure(
    x: Tensor, label: Tensor, factor: Tensor, k: int, temperature: float, margin: float
) -> tuple[Tensor, Tensor]:
    place, inverse = label.clamp(0, x.shape[1] - 1), 1 / temperature
    y = place.unsqueeze(-1)
    rest = expansion.expand(x.scatter(-1, y, -math.inf), k, inverse / k, marginals=2)
    lead = lead_of(rest.top[:, k - 1 : k], x.gather(-1, y).to(rest.log_s.dtype))
    z = torch.add(lead / k, rest.rises[:, -1:], alpha=temperature) + margin  # z tau above
    scale, beta = row_scale(label, place, factor), min(inverse, sys.float_info.max)
    value = scale * F.softplus(z, beta, threshold=50)
    slope = scale * torch.sigmoid(z * beta) / -k  # dL/d s_y
    gradient = expansion.log_ratio_derivative(rest, slope, x).scatter(-1, y, slope.to(x.dtype))
    return without_absent(factor, value.squeeze(-1).to(x.dtype), gradient)


def _native_rows(
    x: Tensor, label: Tensor, factor: Tensor, k: int, temperature: float, margin: float
) -> tuple[Tensor, Tensor]:
    value, gradient = _native.empty_results(x)
    options = (k, temperature, margin)
    _native.call("smooth_topk", x, label, factor, *x.shape, *options, value, gradient)
    return value, gradient


smooth_topk = _native.operator(
    "smooth_topk(Tensor x, Tensor label, Tensor factor, SymInt k, float temperature, float margin)"
    " -> (Tensor, Tensor)",
    pure=_pure,
    native=_native_rows,
    dtypes=(torch.float32, torch.float64),
    triton="smooth_topk",
)
