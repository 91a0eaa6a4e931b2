"""Softmax over class maps.

Shapes: x ``(G, M, C, S)`` logits of G groups of M images with S pixels, label ``(G, M, S)``.
"""

import torch
from torch import Tensor

from evalgrad._inputs import WORKING, ClassMaps
from evalgrad._labels import readable


def finite_logits(maps: ClassMaps) -> Tensor:
    """The logits as they are computed with: 0 at ignored pixels, whose NaN would reach the
    gradient, and +inf as its limit.
    """
    x = below_infinity(maps.x.to(WORKING[maps.x.dtype]))
    return x if maps.complete else torch.where(maps.label.unsqueeze(2) >= 0, x, 0.0)


def below_infinity(x: Tensor) -> Tensor:
    """+inf as its limit, the largest number."""
    # A clamp would cost a third of the softmax: where values can be read, it waits for an inf.
    if readable(x) and x.numel() and x.detach().amax().item() < torch.inf:
        return x
    return x.clamp(max=torch.finfo(x.dtype).max)


def pixel_losses(maps: ClassMaps) -> Tensor:
    """Cross-entropy of each pixel, ``(G, M*S)``."""
    log_p = finite_logits(maps).log_softmax(2)
    return -log_p.gather(2, maps.label.clamp(min=0).unsqueeze(2)).squeeze(2).flatten(1)
