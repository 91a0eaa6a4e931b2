"""The network of the Lovász paper's table B.1: DeepLab's dilated layers on grey slices."""

import torch.nn.functional as F
from torch import Tensor, nn

# kernel, filters, dilation, stride of the 3x3 pooling behind it (0: no pooling)
BLOCKS = (
    (7, 64, 1, 2),
    (5, 128, 1, 2),
    (3, 256, 2, 1),
    (3, 512, 2, 1),
    (3, 512, 2, 1),
    (4, 1024, 4, 0),
)


class BrainNet(nn.Module):
    """Scores ``(N, outputs, H, W)``: six blocks at a quarter of the size, a 1x1 convolution, and
    bilinear interpolation back.

    Args:
        channels: of the image; 1 for MR slices.
        outputs: 8 structures and the background in the paper.
        width: filters of the first block; the paper's 64 scales all others with it.
    """

    def __init__(self, channels: int = 1, outputs: int = 9, width: int = 64) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for kernel, filters, dilation, stride in BLOCKS:
            filters = filters * width // 64
            padding = dilation * (kernel - 1) // 2
            layers.append(
                nn.Conv2d(channels, filters, kernel, padding=padding, dilation=dilation, bias=False)
            )
            layers += [nn.BatchNorm2d(filters), nn.ReLU(inplace=True)]
            layers += [nn.MaxPool2d(3, stride, padding=1)] if stride else []
            channels = filters
        self.layers = nn.Sequential(*layers, nn.Conv2d(channels, outputs, 1))

    def forward(self, images: Tensor) -> Tensor:
        return F.interpolate(self.layers(images), size=images.shape[-2:], mode="bilinear")
