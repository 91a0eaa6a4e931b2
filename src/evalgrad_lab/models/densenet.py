"""DenseNet (smooth top-k, section 5): every layer sees all layers of its block before it."""

import torch
from torch import Tensor, nn


class _Layer(nn.Module):
    """`growth` new channels beside those that came in, by way of a 1x1 convolution to four times as
    many if there is a `bottleneck`.
    """

    def __init__(self, channels: int, growth: int, bottleneck: bool) -> None:
        super().__init__()
        steps = [(channels, growth, 3)]
        if bottleneck:
            steps = [(channels, 4 * growth, 1), (4 * growth, growth, 3)]
        layers: list[nn.Module] = []
        for inputs, outputs, kernel in steps:
            convolution = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False)
            layers += [nn.BatchNorm2d(inputs), nn.ReLU(), convolution]
        self.new = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.new(x)], 1)


def densenet(
    channels: int = 3,
    outputs: int = 100,
    depth: int = 40,
    growth: int = 12,
    bottleneck: bool = False,
) -> nn.Sequential:
    """Class scores ``(N, outputs)`` of small images: three dense blocks with a 1x1 convolution and
    a pooling between them.

    DenseNet-40-12 and 40-40 of Huang et al., CVPR 2017, or with `bottleneck` their DenseNet-BC.

    Args:
        channels: of the image.
        outputs: number of classes.
        depth: 3 n + 4 for n layers in each block; 6 n + 4 with bottlenecks.
        growth: channels that each layer adds.
        bottleneck: a 1x1 convolution before every 3x3 one, and half of the channels between blocks.
    """
    step = 6 if bottleneck else 3
    if (depth - 4) % step:
        raise ValueError(
            f"densenet: `depth` must be {step} n + 4; got {depth}. 40 has {36 // step} layers in"
            " each block."
        )
    width = 2 * growth if bottleneck else 16
    layers: list[nn.Module] = [nn.Conv2d(channels, width, 3, padding=1, bias=False)]
    for block in range(3):
        for _ in range((depth - 4) // step):
            layers.append(_Layer(width, growth, bottleneck))
            width += growth
        layers += [nn.BatchNorm2d(width), nn.ReLU()]
        if block < 2:
            kept = width // 2 if bottleneck else width
            layers += [nn.Conv2d(width, kept, 1, bias=False), nn.AvgPool2d(2)]
            width = kept
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, outputs))
