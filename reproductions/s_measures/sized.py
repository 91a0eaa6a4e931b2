"""What is trained: networks with an extra node for the size, and images of different sizes."""

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import evalgrad as eg
from evalgrad_lab.data.dataset import Dataset, Part, Sizes, cut, permutation
from evalgrad_lab.data.embedded.digits import (
    CANVAS,
    INK,
    digit_scenes,
    pools,
    resized,
    scaled,
    two_sizes,
)
from evalgrad_lab.data.fetched.labelled import images
from evalgrad_lab.fit import scores_of
from evalgrad_lab.models.segnet import SegNet
from reproductions.ladder import arrays

MNIST_TRAIN, MNIST_VALIDATION = 10_000, 2_500  # of each size
SIDES = range(8, CANVAS + 1)  # of digits of all sizes
WIDTH = 12  # of the first stage of the SegNet
NOISE = 0.6  # of the scenes whose foreground is sought: without it a threshold would find it


class Sized(nn.Module):
    """Scores of the main task and one score of the size, from the features of a shared trunk."""

    def __init__(self, trunk: nn.Module, head: nn.Module, size: nn.Module) -> None:
        super().__init__()
        self.trunk, self.head, self.size = trunk, head, size

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        features = self.trunk(inputs)
        return self.head(features), self.size(features)

    def scores_of(self, inputs: Tensor) -> Tensor:
        return scores_of(nn.Sequential(self.trunk, self.head), inputs)

    def sizes_of(self, inputs: Tensor) -> Tensor:
        return scores_of(nn.Sequential(self.trunk, self.size), inputs)


def sized_classifier(inputs: int, hidden: int, groups: int = 2) -> Sized:
    """Ten digits; `hidden` 0 is the paper's single layer, where digits and size share nothing."""
    trunk = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU()) if hidden else nn.Identity()
    return Sized(trunk, nn.Linear(hidden or inputs, 10), eg.SizeHead(hidden or inputs, groups))


def with_size(body: nn.Module, features: int) -> Sized:
    """A network of pixels and a node on its last features: the trunk is the network without its
    `head`.
    """
    head = body.get_submodule("head")
    body.add_module("head", nn.Sequential())
    return Sized(body, head, eg.SizeHead(features))


def sized_segnet(channels: int, outputs: int) -> Sized:
    """A SegNet of three stages, the network of experiment 2."""
    return with_size(SegNet(channels, outputs, (WIDTH, 2 * WIDTH, 4 * WIDTH)), WIDTH)


def digits_of_all_sizes(seed: int, groups: int) -> Dataset[Part]:
    """Pixels (n, 256) of digits in the middle of the canvas, every glyph twice, each time at a
    random size; targets (n, 2): the digit, and the group of its foreground. The groups share the
    training images equally, but for ties.
    """
    generator = torch.Generator().manual_seed(seed)
    parts = [_at_random_sizes(pool, generator) for pool in pools(seed)]
    sizes = [(part.inputs > INK).flatten(1).sum(1).double() for part in parts]
    bounds = sizes[0].quantile(torch.arange(1, groups).double() / groups)
    found = []
    for part, size in zip(parts, sizes, strict=True):
        group = (size[:, None] > bounds).sum(1)
        found.append(Part(scaled(part.inputs), torch.stack([part.target, group], 1)))
    return Dataset(*found)


def _at_random_sizes(pool: Part, generator: torch.Generator) -> Part:
    glyphs, digit = pool.inputs.repeat(2, 1, 1), pool.target.repeat(2)
    sides = torch.randint(SIDES[0], SIDES[-1] + 1, (len(glyphs),), generator=generator)
    images = torch.zeros(len(glyphs), CANVAS, CANVAS)
    for side in SIDES:
        first = (CANVAS - side) // 2
        middle = slice(first, first + side)
        images[sides == side, middle, middle] = resized(glyphs[sides == side], side)
    return Part(images, digit)


def noisy_foreground(seed: int, sizes: Sizes) -> Dataset[Part]:
    """Images (n, 1, 32, 32) of digit scenes under noise, and where one of their digits is."""
    generator = torch.Generator().manual_seed(seed)

    def noisy(part: Part) -> Part:
        noise = torch.randn(part.inputs.shape, generator=generator)
        return Part(part.inputs + NOISE * noise, (part.target > 0).long())

    scenes = digit_scenes(seed, sizes)
    return Dataset(noisy(scenes.train), noisy(scenes.validation), noisy(scenes.test))


@cache
def _tiles() -> tuple[Tensor, Tensor]:
    found = arrays.earth(lakes=False)
    images, land = (torch.from_numpy(found[name]) for name in ("inputs", "target"))
    return 3 * (images.movedim(-1, 1) - 0.3), land


def earth_tiles(seed: int, sizes: Sizes) -> Dataset[Part]:
    """Squares (n, 3, 32, 32) of the Earth with 5 to 95 % of land, and where it is."""
    images, land = _tiles()
    order = permutation(len(land), seed)
    return cut(images[order], land[order], sizes)


def s_mnist(seed: int) -> Dataset[Part]:
    """`two_sizes` of MNIST, at half size in the middle of the canvas and at its full size."""
    train, test = images("mnist")
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(train), generator=generator)[: MNIST_TRAIN + MNIST_VALIDATION]
    chosen = (order[:MNIST_TRAIN], order[MNIST_TRAIN:])
    pools = [Part(train.inputs[some], train.target[some]) for some in chosen]
    drawn = [*pools, test]
    halves = (F.pad(F.avg_pool2d(pool.inputs, 2), [7] * 4) for pool in drawn)
    return two_sizes([(h, p.inputs, p.target) for h, p in zip(halves, drawn, strict=True)])
