"""CIFAR-10 as table 1 has its photographs: features of a network that ImageNet has trained."""

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from evalgrad_lab.data.dataset import Dataset, Part, Sizes, cut, permutation
from evalgrad_lab.data.fetched import EFFICIENTNET, place
from evalgrad_lab.data.fetched.labelled import cifar10
from evalgrad_lab.data.layouts.images import DEVIATION, MEAN
from evalgrad_lab.models.efficientnet_lite import efficientnet_lite0
from evalgrad_lab.models.weights import load_weights

COUNT, SIDE = 6300, 64  # photographs, and their side before the network


@cache
def encoder() -> nn.Module:
    """EfficientNet-Lite0 up to its last block: 320 features of an image, averaged over it."""
    network = efficientnet_lite0()
    load_weights(network, place(*EFFICIENTNET))
    return nn.Sequential(*list(network)[:4], nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()


@torch.no_grad()
def features_of(images: Tensor, side: int = SIDE) -> Tensor:
    """Of images in 0..1, enlarged to a side."""
    mean, deviation = (torch.tensor(values)[:, None, None] for values in (MEAN, DEVIATION))
    parts = ((part - mean) / deviation for part in images.split(100))
    larger = (F.interpolate(part, size=(side, side), mode="bilinear") for part in parts)
    return torch.cat([encoder()(part) for part in larger])


@cache
def _photographs() -> Part:
    """Features of mean 0 and deviation 1 over all photographs, and the classes: a minute."""
    images = cifar10()[1]
    found = features_of(images.inputs[:COUNT])
    scaled = (found - found.mean(0)) / found.std(0).clamp_min(1e-6)
    return Part(scaled, images.target[:COUNT])


def photographs(seed: int, *, kept: float) -> Dataset[Part]:
    """Thirds: features (n, 320) and membership (n, 10) of the classes. Of the members of each class
    a share `kept` stays; the others are -1 for this class, neither members nor others.
    """
    part = _photographs()
    order = permutation(len(part), seed)
    target = F.one_hot(part.target[order], 10)
    left_out = torch.rand(len(part), generator=torch.Generator().manual_seed(seed)) >= kept
    target[(target == 1) & left_out[:, None]] = -1
    third = len(part) // 3
    return cut(part.inputs[order], target, Sizes(third, third, third))
