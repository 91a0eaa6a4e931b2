"""Prediction as the papers do it: in tiles, at several scales, mirrored, and over crops.

Every function takes the network as a callable on batches ``(N, channels, H, W)``, so that they
nest: tiles of several scales are ``tiled(lambda crops: multi_scale(network, crops), images)``.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

import evalgrad as eg

Network = Callable[[Tensor], Tensor]


def probabilities(scores: Tensor) -> Tensor:
    """Softmax over the classes ``(N, C, *)``; with one output the sigmoid."""
    return torch.sigmoid(scores) if scores.shape[1] == 1 else scores.softmax(1)


def tiled(network: Network, images: Tensor, *, tiles: int = 5, overlap: int = 0) -> Tensor:
    """What `network` says of upright tiles of full height, side by side (paper 000, section 5.2).

    Args:
        network: maps images to scores of the same height and width.
        images: ``(N, channels, H, W)``.
        tiles: their number. Without overlap this is the paper's efficient tiling.
        overlap: pixels that neighbours share, for context; of these the left tile decides the left
            half and the right tile the right half. The paper takes 200.
    """
    width = images.shape[-1]
    cuts = [round(i * width / tiles) for i in range(tiles + 1)]
    decided = []
    for left, right in pairwise(cuts):
        start, stop = max(left - (overlap - overlap // 2), 0), min(right + overlap // 2, width)
        decided.append(network(images[..., start:stop])[..., left - start : right - start])
    return torch.cat(decided, -1)


def multi_scale(
    network: Network,
    images: Tensor,
    *,
    scales: Sequence[float] = (1.0, 0.75, 0.5),
    flips: bool = False,
) -> Tensor:
    """Mean of the probabilities of `network` at several scales of the image (paper 001, section
    4.3).

    Args:
        network: maps images to scores of the same height and width.
        images: ``(N, channels, H, W)``.
        scales: factors of the size; what is found is brought back to the size of the image.
        flips: look at the mirror image too, at every scale.
    """
    size = images.shape[-2:]
    views = []
    for scale in scales:
        shape = [max(round(scale * side), 1) for side in size]
        scaled = (
            images
            if shape == list(size)
            else F.interpolate(images, size=shape, mode="bilinear", antialias=scale < 1)
        )
        for mirrored in (False, True)[: 1 + flips]:
            found = probabilities(network(scaled.flip(-1) if mirrored else scaled))
            found = found.flip(-1) if mirrored else found
            views.append(
                found if shape == list(size) else F.interpolate(found, size=size, mode="bilinear")
            )
    return torch.stack(views).mean(0)


def ten_crops(images: Tensor, size: int) -> Tensor:
    """The four corners and the centre of every image, and their mirror images: ``(N, 10, channels,
    size, size)``.
    """
    height, width = images.shape[-2:]
    down, right = height - size, width - size
    corners = [(0, 0), (0, right), (down, 0), (down, right), (down // 2, right // 2)]
    crops = torch.stack(
        [images[..., top : top + size, left : left + size] for top, left in corners], 1
    )
    return torch.cat([crops, crops.flip(-1)], 1)


def crop_marginals(
    network: Network, images: Tensor, *, size: int, k: int = 5, temperature: float = 1.0
) -> Tensor:
    """Probability ``(N, C)`` of each class to be among the k predicted, averaged over ten crops
    (paper 004, section 5.2).

    The k largest are the prediction, as `topk_predict` makes it.
    """
    crops = ten_crops(images, size)
    scores = network(crops.flatten(0, 1)).unflatten(0, crops.shape[:2])
    return eg.topk_probabilities(scores, k=k, temperature=temperature).mean(1)
