"""A small U-Net with a space-to-depth stem: it works mostly at half resolution."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def block(inputs: int, outputs: int, bias: bool = False) -> nn.Sequential:
    """A 3x3 convolution that keeps the size."""
    convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=bias)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


class UNet(nn.Module):
    """Scores ``(N, outputs, H, W)`` of images ``(N, channels, H, W)`` of any size.

    A space-to-depth stem halves the image, two poolings halve it twice more, and the way back joins
    what the way down has seen. Images whose sides are no multiples of 8 are padded, and the scores
    cut to size.

    Args:
        channels: of the image.
        outputs: number of classes; 1 for binary tasks.
        width: channels at half size, doubled at each pooling. 16 makes 57 thousand parameters with
            11 classes; they grow with its square.

    Example:
        >>> UNet(1, 11)(torch.zeros(2, 1, 30, 41)).shape
        torch.Size([2, 11, 30, 41])
    """

    def __init__(self, channels: int, outputs: int, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.PixelUnshuffle(2)
        self.down = nn.ModuleList([block(4 * channels, width), block(width, 2 * width)])
        self.bottom = nn.Sequential(block(2 * width, 4 * width), block(4 * width, 2 * width))
        self.up = nn.ModuleList([block(4 * width, width), block(2 * width, width)])
        self.head = nn.Sequential(nn.Conv2d(width, 4 * outputs, 1), nn.PixelShuffle(2))

    def forward(self, images: Tensor) -> Tensor:
        height, width = images.shape[-2:]
        x = self.stem(F.pad(images, (0, -width % 8, 0, -height % 8)))
        seen = []
        for block in self.down:
            seen.append(block(x))
            x = F.max_pool2d(seen[-1], 2)
        x = self.bottom(x)
        for block in self.up:
            x = F.interpolate(x, scale_factor=2.0, mode="nearest")
            x = block(torch.cat([x, seen.pop()], 1))
        return self.head(x)[..., :height, :width]
