"""DenseNet (smooth top-k, section 5): every layer sees all layers of its block before it."""

import torch
from torch import Tensor, nn


class _Layer(nn.Module):
    """`growth` new channels beside those that came in."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        convolution = nn.Conv2d(channels, growth, 3, padding=1, bias=False)
        self.new = nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU(), convolution)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.new(x)], 1)


def densenet(
    channels: int = 3, outputs: int = 100, depth: int = 40, growth: int = 12
) -> nn.Sequential:
    """Class scores ``(N, outputs)`` of small images: three dense blocks with a 1x1 convolution and
    a pooling between them.

    Without bottlenecks or compression, as DenseNet-40-12 and 40-40 of Huang et al., CVPR 2017.

    Args:
        channels: of the image.
        outputs: number of classes.
        depth: 3 n + 4 for n layers in each block.
        growth: channels that each layer adds.
    """
    if (depth - 4) % 3:
        raise ValueError(
            f"densenet: `depth` must be 3 n + 4; got {depth}. 40 has 12 layers in each block."
        )
    width = 16
    layers: list[nn.Module] = [nn.Conv2d(channels, width, 3, padding=1, bias=False)]
    for block in range(3):
        for _ in range((depth - 4) // 3):
            layers.append(_Layer(width, growth))
            width += growth
        layers += [nn.BatchNorm2d(width), nn.ReLU()]
        layers += [nn.Conv2d(width, width, 1, bias=False), nn.AvgPool2d(2)] if block < 2 else []
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, outputs))
