"""The algorithms of the smooth top-k paper in plain torch, for its tables 3, 4 and 5; not part of
the library. Where the print leaves a choice they do what the authors' published code does.

Errors of the print are repaired: Algorithm 1 halves with ceil(p/2), Algorithm 2 starts at j = 2,
Algorithm 3 keeps sigma_{k-1}, equation (60) has the exponent j + 1. x = scores/(k temperature), e =
exp(x).
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

import evalgrad as eg

AGREE = 1e-5  # relative difference below which the recursion is not trusted
APART = 1e3  # factor between the k-th and the next exponential from which the loss is the hinge


def _log_product(left: Tensor, right: Tensor, degrees: int) -> Tensor:
    """Product of polynomials by log-coefficients on the last axis, the first ``degrees`` of it."""
    size, shifted = min(left.shape[-1] + right.shape[-1] - 1, degrees), []
    for a in range(min(left.shape[-1], size)):
        terms = left[..., a : a + 1] + right[..., : size - a]
        shifted.append(F.pad(terms, (a, size - a - terms.shape[-1]), value=-math.inf))
    return _log_sum(torch.stack(shifted), 0)


def _log_sum(terms: Tensor, dim: int) -> Tensor:
    """logsumexp that holds -inf as a constant where all terms are: its backward would be NaN."""
    empty = (terms == -math.inf).all(dim, keepdim=True)
    total = torch.where(empty, 0.0, terms).logsumexp(dim)
    return torch.where(empty.squeeze(dim), -math.inf, total)


def divide_and_conquer(x: Tensor, k: int) -> Tensor:
    """Algorithm 1 in log-space: (R, n) -> log sigma_0 .. sigma_k, by sigma_n prod (X + 1/e_i)."""
    nodes = torch.stack([-x, torch.zeros_like(x)], dim=-1)  # (R, p, degrees)
    while nodes.shape[1] > 1:
        even = nodes.shape[1] // 2 * 2
        merged = _log_product(nodes[:, 0:even:2], nodes[:, 1:even:2], k + 1)
        left_over = F.pad(nodes[:, even:], (0, merged.shape[-1] - nodes.shape[-1]), value=-math.inf)
        nodes = torch.cat([merged, left_over], dim=1)
    log_sigma = nodes[:, 0] + x.sum(-1, keepdim=True)
    return F.pad(log_sigma, (0, k + 1 - log_sigma.shape[-1]), value=-math.inf)


def summation(x: Tensor, k: int) -> Tensor:
    """Algorithm 3 in log-space: one class after the other, (R, n) -> log sigma_0 .. sigma_k."""
    log_sigma = F.pad(torch.zeros_like(x[:, :1]), (0, k), value=-math.inf)
    for item in x.split(1, dim=-1):
        with_item = F.pad(item + log_sigma[:, :-1], (1, 0), value=-math.inf)
        log_sigma = _log_sum(torch.stack([log_sigma, with_item]), 0)
    return log_sigma


def linear_summation(x: Tensor, k: int) -> Tensor:
    """Algorithm 3 on exp(x) itself, the unstable column of table 5."""
    e, sigma = x.exp(), F.pad(torch.ones_like(x[:, :1]), (0, k))
    for item in e.split(1, dim=-1):
        sigma = sigma + F.pad(item * sigma[:, :-1], (1, 0))
    return sigma.log()


def marginals(x: Tensor, log_sigma: Tensor, k: int) -> Tensor:
    """d log sigma_k / d x_i = e_i delta_k / sigma_k, as the authors' code has it: the recursion of
    Algorithm 2 unrolled, sigma_{k-1} - e_i sigma_{k-2} + e_i^2 sigma_{k-3} - ..., its positive and
    its negative terms summed apart. Where the two sums agree in log-space to `AGREE`, the
    approximation (60) replaces it; ``log_sigma`` holds the degrees that it needs.
    """
    total = log_sigma[:, k : k + 1]
    powers = [log_sigma[:, i : i + 1] + (k - i) * x - total for i in range(k - 1, -1, -1)]
    series = [
        log_sigma[:, k + j : k + j + 1] - j * x - total for j in range(log_sigma.shape[-1] - k)
    ]
    plus, less = _alternating(powers)
    size = (less + total - x).abs()  # of the logarithm of the sum itself, which is what is rounded
    stable = (plus - less) / (size + AGREE) >= AGREE
    return torch.where(stable, _difference(plus, less), _difference(*_alternating(series)))


def _alternating(terms: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The logarithms of the sums of the even and of the odd terms, given by theirs."""
    none = torch.full_like(terms[0], -math.inf)
    even, odd = ([none, *terms[start::2]] for start in (0, 1))
    return _log_sum(torch.stack(even), 0), _log_sum(torch.stack(odd), 0)


def _difference(plus: Tensor, less: Tensor) -> Tensor:
    """exp(plus) - exp(less), not below 0."""
    return torch.exp(plus) * -torch.expm1((less - plus).clamp(max=0).nan_to_num(nan=0.0))


def smooth_topk_paper(
    scores: Tensor,
    target: Tensor,
    k: int,
    temperature: float,
    margin: float,
    forward: Callable[[Tensor, int], Tensor] = divide_and_conquer,
    custom_backward: bool = True,
    switch: bool = True,
) -> tuple[Tensor, Tensor]:
    """Value and gradient as in the paper; without ``custom_backward`` by autograd. With ``switch``
    it takes the hinge, as the authors' code does, where the k-th and the next score are far apart
    for the temperature.
    """
    rows, classes = scores.shape
    others = torch.arange(classes, device=scores.device) != target.unsqueeze(-1)
    rest = scores[others].view(rows, classes - 1).div(k * temperature)
    rest.requires_grad_(not custom_backward)
    own = scores.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    order = max(1, round(0.2 * k)) if custom_backward else 0
    with torch.set_grad_enabled(not custom_backward):
        log_sigma = forward(rest, min(k + order, classes - 1))
        ratio = log_sigma[:, k] - log_sigma[:, k - 1]
    z = margin / temperature + ratio.detach() - own / (k * temperature)
    slope = torch.sigmoid(z) / k
    if custom_backward:
        derivative = marginals(rest, log_sigma, k) - marginals(rest, log_sigma[:, :-1], k - 1)
    else:
        (derivative,) = torch.autograd.grad(ratio.sum(), rest)
    gradient = torch.empty_like(scores)
    gradient[others] = (slope.unsqueeze(-1) * derivative).flatten()
    gradient.scatter_(-1, target.unsqueeze(-1), -slope.unsqueeze(-1))
    value = temperature * F.softplus(z, threshold=80)
    if not switch:
        return value, gradient
    top = scores.topk(k + 1).values
    hard = top[:, k - 1] - top[:, k] >= k * temperature * math.log(APART)
    hinge, slopes = _hinge(scores, target, k, margin)
    return torch.where(hard, hinge, value), torch.where(hard.unsqueeze(-1), slopes, gradient)


def _hinge(scores: Tensor, target: Tensor, k: int, margin: float) -> tuple[Tensor, Tensor]:
    leaf = scores.detach().requires_grad_()
    value = eg.topk_hinge_loss(leaf, target, k=k, margin=margin, reduction="none")
    return value.detach(), torch.autograd.grad(value.sum(), leaf)[0]
