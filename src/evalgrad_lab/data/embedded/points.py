"""Gaussian points and pixels: the synthetic data of the papers, and designed mixtures on which a
linear scorer cannot be good by every metric, so that the objectives disagree.
"""

import torch
from torch import Tensor

from evalgrad_lab.data.dataset import Dataset, Part, Sizes, cut

FEATURES = 10
# the training and test set of direct loss, 4.1 and 5.3, and points of our own to choose epsilon on
PAPER = Sizes(10_000, 4_000, 10_000)


def circles(
    seed: int, *, images: int = 10, size: int = 50, radii: tuple[int, int] = (3, 20)
) -> Dataset[Part]:
    """Features (images, size, size), N(1/2, 1) inside a circle and N(-1/2, 1) outside, and the
    circles.

    The experiment asks which loss has its minimum where the Jaccard loss has its own, on the same
    pixels: all parts are the same.
    """
    generator = torch.Generator().manual_seed(seed)
    radius = torch.linspace(*radii, images)[:, None, None]
    room = (size - 1) / 2 - radius  # circles lie within the image
    shift = (2 * torch.rand(2, images, 1, 1, generator=generator) - 1) * room
    grid = torch.arange(size) - (size - 1) / 2
    inside = (grid[:, None] - shift[0]) ** 2 + (grid - shift[1]) ** 2 <= radius**2
    features = inside.float() - 0.5 + torch.randn(inside.shape, generator=generator)
    part = Part(features, inside.long())
    return Dataset(part, part, part)


def teacher_ranking(
    seed: int, sizes: Sizes = PAPER, *, width: int = 20, positives: float = 0.2
) -> Dataset[Part]:
    """Inputs (n, 10) and 1 for the share `positives` that a random four-layer ReLU network scores
    highest.

    The parameters of the network are N(0, 1), as in the paper; it gives no width.
    """
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(sum(sizes), FEATURES, generator=generator)
    scores = inputs
    for fan_in, fan_out in ((FEATURES, width), (width, width), (width, width), (width, 1)):
        weight = torch.randn(fan_in, fan_out, generator=generator)
        scores = scores @ weight + torch.randn(fan_out, generator=generator)
        if fan_out > 1:
            scores = scores.relu()
    best = scores[:, 0].argsort(descending=True, stable=True)[: round(positives * len(inputs))]
    return cut(inputs, torch.zeros(len(inputs), dtype=torch.int64).index_fill(0, best, 1), sizes)


def linear_ranking(seed: int, sizes: Sizes = PAPER, *, flipped: float = 0.0) -> Dataset[Part]:
    """Inputs (n, 10) and 1 where their sum is above 0; a share `flipped` is turned round."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(sum(sizes), FEATURES, generator=generator)
    target = inputs.sum(1) > 0
    turned = torch.randperm(len(inputs), generator=generator)[: round(flipped * len(inputs))]
    target[turned] = ~target[turned]
    return cut(inputs, target.long(), sizes)


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
    """Points around `centres`, each chosen with its share; `positive` says which count as 1."""
    generator = torch.Generator().manual_seed(seed)
    mode = torch.multinomial(shares, sum(sizes), replacement=True, generator=generator)
    inputs = centres[mode] + torch.randn(len(mode), centres.shape[1], generator=generator)
    return cut(inputs, positive[mode], sizes)
