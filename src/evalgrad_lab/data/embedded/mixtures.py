"""Designed data: Gaussian mixtures in which a linear scorer must give something up, so that
objectives disagree.
"""

import torch
from torch import Tensor

from evalgrad_lab.data.dataset import Dataset, Part, Sizes, cut

FEATURES = 10


def hopeless_positives(
    seed: int, sizes: Sizes, *, positives: float = 0.1, hopeless: float = 0.3
) -> Dataset[Part]:
    """One item in ten is positive; the share `hopeless` of the positives lies far on the wrong side
    of the negatives.

    Negatives are N(0, I) in ten dimensions, most positives N(2, 1) along the first axis, the
    hopeless ones N(-4, 1).
    """
    shares = torch.tensor([1 - positives, positives * (1 - hopeless), positives * hopeless])
    centres = torch.zeros(3, FEATURES)
    centres[1, 0], centres[2, 0] = 2.0, -4.0
    return _mixture(seed, sizes, shares, centres, positive=torch.tensor([0, 1, 1]))


def two_modes(seed: int, sizes: Sizes) -> Dataset[Part]:
    """Positives in two places. One is pure; beside the other lie negatives, further out than it.

    A scorer along the first axis finds the pure half of the positives alone; one along both axes
    finds all of them, and with them the decoys, which it ranks first. Which is better depends on
    the metric.
    """
    shares = torch.tensor([0.60, 0.15, 0.16, 0.09])
    centres = torch.zeros(4, FEATURES)
    centres[1, 0], centres[2, 1], centres[3, 1] = 3.5, 3.0, 5.5
    return _mixture(seed, sizes, shares, centres, positive=torch.tensor([0, 1, 1, 0]))


def _mixture(
    seed: int, sizes: Sizes, shares: Tensor, centres: Tensor, positive: Tensor
) -> Dataset[Part]:
    """Points around `centres`, each chosen with its share; the label says whether the centre is a
    positive one.
    """
    generator = torch.Generator().manual_seed(seed)
    mode = torch.multinomial(shares, sum(sizes), replacement=True, generator=generator)
    inputs = centres[mode] + torch.randn(len(mode), centres.shape[1], generator=generator)
    return cut(inputs, positive[mode], sizes)
