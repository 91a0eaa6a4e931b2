"""The top-k hinge: the limit of the smooth top-k loss at temperature 0, max(margin + (s_[k] -
s_y)/k, 0).

s_[k] is the k-th largest score of the classes other than the label y: positive as soon as the label
does not lead it by k margins. Its gradient touches two classes of each sample, which is why the
paper smooths it. Berrada, Zisserman, Kumar: Smooth loss functions for deep top-k classification,
ICLR 2018, equation (8).
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from evalgrad import _native
from evalgrad.smooth_topk import samples
from evalgrad.smooth_topk.expansion import wide_dtype


def topk_hinge_loss(
    scores: Tensor,
    target: Tensor,
    *,
    k: int = 5,
    margin: float = 1.0,
    ignore_index: int | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Top-k hinge loss of raw class scores.

    Args:
        scores: ``(N, C)`` or ``(N, C, *)`` raw scores, as `F.cross_entropy` takes them.
        target: ``(N,)`` or ``(N, *)`` class indices, of any integer dtype.
        k: number of guesses, 1 to C - 1.
        margin: by how much the label should lead, on the scale of the scores over k.
        ignore_index: label of samples that are as if absent.
        weight: ``(C,)`` class weights; a class of weight 0 is as if absent from the samples.
        reduction: ``"mean"`` over the samples that count, weighted; ``"sum"``; ``"none"``: the
            shape of `target`, 0 for what does not count.

    Classes that are tied for the k-th place share the gradient, as they do in the limit of
    `smooth_topk_loss`.

    Example:
        >>> topk_hinge_loss(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([2]), k=2)
        tensor(1.5000)
    """
    function = "topk_hinge_loss"
    samples.check_options(function, k, margin, ignore_index, reduction)
    samples.check_tensors(function, scores, target, k, ignore_index, weight)
    rows, label = samples.rows_of(scores, target)
    factor = samples.row_factor(scores, label, ignore_index, weight, reduction)
    value, gradient = topk_hinge(rows.detach().to(factor.dtype), label, factor, k, float(margin))
    return samples.attach(rows, value, gradient, target, reduction)


class TopKHingeLoss(nn.Module):
    """`topk_hinge_loss` as a module, with the same options."""

    weight: Tensor | None

    def __init__(
        self,
        *,
        k: int = 5,
        margin: float = 1.0,
        ignore_index: int | None = None,
        weight: Tensor | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        samples.check_options("topk_hinge_loss", k, margin, ignore_index, reduction)
        self.options: dict[str, Any] = {
            "k": k,
            "margin": margin,
            "ignore_index": ignore_index,
            "reduction": reduction,
        }
        self.register_buffer("weight", weight)

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        return topk_hinge_loss(scores, target, weight=self.weight, **self.options)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())


# ---- operator: rows (R, C), labels (R,), factors (R,) -> value (R,), gradient (R, C)
# ---------------------------------------------


def _pure(x: Tensor, label: Tensor, factor: Tensor, k: int, margin: float) -> tuple[Tensor, Tensor]:
    y, wide = label.clamp(0, x.shape[1] - 1).unsqueeze(-1), wide_dtype(x)
    rest = x.scatter(-1, y, -math.inf)
    kth = rest.topk(k, dim=-1).values[:, k - 1 :]
    z = margin + samples.lead_of(kth.to(wide), x.gather(-1, y).to(wide)) / k
    scale = factor.to(wide).unsqueeze(-1)
    value = scale * z.clamp_min(0)
    slope = scale / k * torch.where(z.isnan(), z, (z > 0).to(wide))
    tied = rest == kth
    share = slope / tied.sum(-1, keepdim=True)
    gradient = torch.where(tied, share, 0.0).scatter(-1, y, -slope)
    return samples.mark_rows(x, label, factor, value.squeeze(-1).to(x.dtype), gradient.to(x.dtype))


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
