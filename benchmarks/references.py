"""What the losses are compared with: the papers' algorithms written plainly in torch, as the
authors' code does.
"""

import importlib
import importlib.util
import math
import sys
import types
import unittest.mock
from typing import Any

import torch
from torch import Tensor


def losses_of_smp() -> Any:
    """The losses of segmentation_models_pytorch alone: the networks beside them need timm."""
    name = "segmentation_models_pytorch"
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise ImportError(f"{name} is not installed")
    package: Any = types.ModuleType(name)
    package.__path__ = spec.submodule_search_locations
    with unittest.mock.patch.dict(sys.modules, {name: package}):
        return importlib.import_module(f"{name}.losses")


def lovasz_softmax_algorithm_1(logits: Tensor, target: Tensor) -> Tensor:
    """The Lovász-Softmax paper's Algorithm 1: a loop over the present classes with a sort each, and
    a differenced Jaccard curve.
    """
    p = logits.softmax(1).movedim(1, -1).flatten(0, -2)
    label = target.flatten()
    losses = []
    for c in label.unique():
        foreground = (label == c).to(p)
        errors, order = (foreground - p[:, c]).abs().sort(descending=True)
        losses.append((errors * _jaccard_steps(foreground[order])).sum())
    return torch.stack(losses).mean()


def lovasz_hinge_algorithm_1(logits: Tensor, target: Tensor) -> Tensor:
    """The same for the hinge, image by image."""
    losses = []
    for image, label in zip(logits.flatten(1), target.flatten(1), strict=True):
        foreground = label.to(image)
        errors, order = (1 - image * (2 * foreground - 1)).sort(descending=True)
        losses.append((errors.relu() * _jaccard_steps(foreground[order])).sum())
    return torch.stack(losses).mean()


def _jaccard_steps(foreground: Tensor) -> Tensor:
    total = foreground.sum()
    jaccard = 1 - (total - foreground.cumsum(0)) / (total + (1 - foreground).cumsum(0))
    return torch.cat([jaccard[:1], jaccard.diff()])


def loss_max_pooling_algorithm_1(losses: Tensor, p: float, support: float) -> Tensor:
    """The loss max-pooling paper's Algorithm 1 for one row, 1 < p < inf: a sort, cumulative sums,
    detached weights.

    With the repairs without which it would not compute the same: normalised by the ceil(m)-th
    largest loss, sums in float64.
    """
    n = losses.numel()
    m, q = max(support * n, 1.0), p / (p - 1)
    tau = n ** (-1 / q) * m ** (-1 / p)
    with torch.no_grad():
        ordered, order = losses.sort(descending=True)
        powers = (ordered / ordered[math.ceil(m) - 1]).double().pow(q)
        tails = powers.flip(0).cumsum(0).flip(0)
        c = m - torch.arange(n, dtype=torch.float64)
        saturated = int(((c * powers > tails) & (c > 0)).sum())
        s = tails[saturated] / (m - saturated)
        w = (tau * (powers / s).clamp(max=1).pow(1 / p)).to(losses.dtype)
        weights = torch.empty_like(w).scatter_(0, order, w)
    return (weights * losses).sum()
