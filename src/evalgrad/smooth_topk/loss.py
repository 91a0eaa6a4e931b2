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
from typing import Any

import torch
from torch import Tensor, nn

from evalgrad import _native
from evalgrad.smooth_topk import expansion, samples


def smooth_topk_loss(
    scores: Tensor,
    target: Tensor,
    *,
    k: int = 5,
    temperature: float = 1.0,
    margin: float = 1.0,
    ignore_index: int | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Smooth top-k loss of raw class scores.

    Args:
        scores: ``(N, C)`` or ``(N, C, *)`` raw scores, as `F.cross_entropy` takes them.
        target: ``(N,)`` or ``(N, *)`` class indices, of any integer dtype. Soft targets are
            refused.
        k: number of guesses, 1 to C - 1.
        temperature: tau > 0. Large values are easy to optimise and say little about top-k error;
            towards 0 the loss becomes `topk_hinge_loss`. The paper trains with 1.0 on CIFAR-100 and
            0.1 on ImageNet.
        margin: by how much the label should lead, on the scale of the scores over k. With 0, k = 1
            and temperature 1 the loss is cross-entropy.
        ignore_index: label of samples that are as if absent.
        weight: ``(C,)`` class weights; a class of weight 0 is as if absent from the samples.
        reduction: ``"mean"`` over the samples that count, weighted; ``"sum"``; ``"none"``: the
            shape of `target`, 0 for what does not count.

    Example:
        >>> scores = torch.randn(8, 100, requires_grad=True)
        >>> smooth_topk_loss(scores, torch.randint(100, (8,)), k=5, temperature=0.1).backward()
    """
    _check_options(k, temperature, margin, ignore_index, reduction)
    samples.check_tensors("smooth_topk_loss", scores, target, k, ignore_index, weight)
    rows, label = samples.rows_of(scores, target)
    factor = samples.row_factor(scores, label, ignore_index, weight, reduction)
    value, gradient = smooth_topk(
        rows.detach().to(factor.dtype), label, factor, k, float(temperature), float(margin)
    )
    return samples.attach(rows, value, gradient, target, reduction)


class SmoothTopKLoss(nn.Module):
    """`smooth_topk_loss` as a module, with the same options."""

    weight: Tensor | None

    def __init__(
        self,
        *,
        k: int = 5,
        temperature: float = 1.0,
        margin: float = 1.0,
        ignore_index: int | None = None,
        weight: Tensor | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        _check_options(k, temperature, margin, ignore_index, reduction)
        self.options: dict[str, Any] = {
            "k": k,
            "temperature": temperature,
            "margin": margin,
            "ignore_index": ignore_index,
            "reduction": reduction,
        }
        self.register_buffer("weight", weight)

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        return smooth_topk_loss(scores, target, weight=self.weight, **self.options)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())


def _check_options(
    k: int, temperature: float, margin: float, ignore_index: int | None, reduction: str
) -> None:
    function = "smooth_topk_loss"
    samples.check_temperature(function, temperature)
    samples.check_options(function, k, margin, ignore_index, reduction)


# ---- operator: rows (R, C), labels (R,), factors (R,) -> value (R,), gradient (R, C)
# ---------------------------------------------


def _pure(
    x: Tensor, label: Tensor, factor: Tensor, k: int, temperature: float, margin: float
) -> tuple[Tensor, Tensor]:
    y = label.clamp(0, x.shape[1] - 1).unsqueeze(-1)
    rest = expansion.expand(x.scatter(-1, y, -math.inf), k, 1 / (k * temperature))
    wide = rest.full.dtype
    lead = samples.lead_of(rest.top[:, k - 1 : k].to(wide), x.gather(-1, y).to(wide))
    # z tau of the docstring
    z = margin + lead / k + temperature * (rest.log_s[:, k:] - rest.log_s[:, k - 1 : k])
    scale = factor.to(wide).unsqueeze(-1)
    value = scale * (z.clamp_min(0) + temperature * torch.log1p(torch.exp(-z.abs() / temperature)))
    coefficient = scale * torch.sigmoid(z / temperature) / k  # dL/d(z tau) / k
    gradient = expansion.log_ratio_derivative(rest, coefficient, x).scatter(
        -1, y, -coefficient.to(x.dtype)
    )
    return samples.mark_rows(x, label, factor, value.squeeze(-1).to(x.dtype), gradient)


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
)
