"""Lovász-Softmax, 4.1: circles of various radius, one noisy feature per pixel; the only thing to
learn is a bias.

The paper gives no radii. Ours are 3 to 20 on 50x50 pixels unless asked otherwise.
"""

import torch

from evalgrad_lab.data.dataset import Dataset, Part


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
