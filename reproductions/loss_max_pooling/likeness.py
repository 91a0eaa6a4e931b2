"""Whether the loss can differ from cross-entropy at all: if fewer pixels than its support have
nearly all of the loss, each of them gets the largest weight, and it is cross-entropy times a
constant, which Adam ignores.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from reproductions.bases import read_base
from reproductions.training import Loss

IMAGES = 64  # of the training part


def likeness(*, start: dict[str, Any], p: float, support: float) -> float:
    """A piece: the cosine between the gradients of the pooled loss and of cross-entropy with
    respect to the scores of the base, the mean over batches.
    """
    base = read_base(start)
    data, part = base.data, base.split.train
    pooled, plain = data.loss("loss_max_pooling", p=p, support=support), data.loss("cross_entropy")
    found = []
    for at in range(0, min(IMAGES, len(part.target)), data.batch):
        images, target = part.inputs[at : at + data.batch], part.target[at : at + data.batch]
        with torch.no_grad():
            scores = base.network(images)
        found.append(cosine(gradient(pooled, scores, target), gradient(plain, scores, target)))
    return sum(found) / len(found)


def gradient(loss: Loss, scores: Tensor, target: Tensor) -> Tensor:
    """Of the loss with respect to the scores."""
    scores = scores.detach().double().requires_grad_()
    (found,) = torch.autograd.grad(loss(scores, target), scores)
    return found


def cosine(one: Tensor, other: Tensor) -> float:
    """Of the angle between two tensors."""
    return F.cosine_similarity(one.flatten(), other.flatten(), dim=0).item()
