"""What is trained: networks with an extra node for the size, and digits of two sizes."""

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import evalgrad as eg
from evalgrad_lab.data.dataset import Dataset, Part, Sizes, cut, permutation
from evalgrad_lab.data.embedded.digits import two_sizes
from evalgrad_lab.data.fetched.labelled import images
from evalgrad_lab.fit import scores_of
from evalgrad_lab.models.segnet import SegNet
from evalgrad_lab.models.unet import UNet
from reproductions.ladder import arrays

MNIST_TRAIN, MNIST_VALIDATION = 10_000, 2_500  # of each size
WIDTH = 12  # of the U-Net, and of the first stage of the SegNet


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


def sized_classifier(inputs: int, hidden: int) -> Sized:
    """Ten digits; `hidden` 0 is the paper's single layer, where digits and size share nothing."""
    trunk = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU()) if hidden else nn.Identity()
    return Sized(trunk, nn.Linear(hidden or inputs, 10), eg.SizeHead(hidden or inputs))


def sized_unet(channels: int, outputs: int) -> Sized:
    """Pixels; the trunk is a U-Net without its last layer, for sides that are multiples of 8."""
    body = UNet(channels, outputs, WIDTH)
    head, body.head = body.head, nn.Sequential()
    return Sized(body, head, eg.SizeHead(WIDTH))


def sized_segnet(channels: int, outputs: int) -> Sized:
    """The same of a SegNet of three stages, the network of experiment 2."""
    body = SegNet(channels, outputs, (WIDTH, 2 * WIDTH, 4 * WIDTH))
    head = body.head
    body.add_module("head", nn.Sequential())
    return Sized(body, head, eg.SizeHead(WIDTH))


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
