"""What the losses are compared with: the papers' algorithms written plainly in torch, as the authors' code does."""

import torch
from torch import Tensor


def lovasz_softmax_algorithm_1(logits: Tensor, target: Tensor) -> Tensor:
    """The Lovász-Softmax paper's Algorithm 1: a loop over the present classes with a sort each, and a differenced Jaccard curve."""
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
