"""ENet (Paszke et al., 2016), the fast network that the Lovász paper fine-tunes on Cityscapes
(section 4.4).

Bottlenecks do all the work: a 1x1 convolution to a quarter of the channels, a convolution that is
plain, dilated or split into a column and a row, a 1x1 convolution back, and the sum with the
shortcut. The decoder unpools where the encoder pooled.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# the middle convolution of the bottlenecks of stages 2 and 3: (kind, dilation or kernel)
DEEP = (
    ("plain", 1),
    ("plain", 2),
    ("split", 5),
    ("plain", 4),
    ("plain", 1),
    ("plain", 8),
    ("split", 5),
    ("plain", 16),
)


def _normalised(convolution: nn.Module, channels: int, activation: nn.Module) -> nn.Sequential:
    return nn.Sequential(convolution, nn.BatchNorm2d(channels), activation)


def _middle(channels: int, kind: str, size: int) -> nn.Module:
    if kind == "split":
        column = nn.Conv2d(channels, channels, (size, 1), padding=(size // 2, 0), bias=False)
        return nn.Sequential(
            column, nn.Conv2d(channels, channels, (1, size), padding=(0, size // 2), bias=False)
        )
    return nn.Conv2d(channels, channels, 3, padding=size, dilation=size, bias=False)


def _branch(
    inputs: int,
    outputs: int,
    first: nn.Module,
    middle: nn.Module,
    dropout: float,
    act: type[nn.Module],
) -> nn.Sequential:
    inner = max(inputs, outputs) // 4
    parts = [_normalised(first, inner, act()), _normalised(middle, inner, act())]
    back = _normalised(nn.Conv2d(inner, outputs, 1, bias=False), outputs, nn.Dropout2d(dropout))
    return nn.Sequential(*parts, back)


class Bottleneck(nn.Module):
    """The plain bottleneck: input and output of the same shape."""

    def __init__(
        self,
        channels: int,
        kind: str = "plain",
        size: int = 1,
        dropout: float = 0.1,
        act: type[nn.Module] = nn.PReLU,
    ) -> None:
        super().__init__()
        inner = channels // 4
        first = nn.Conv2d(channels, inner, 1, bias=False)
        self.branch = _branch(channels, channels, first, _middle(inner, kind, size), dropout, act)
        self.act = act()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(x + self.branch(x))


class Downsampling(nn.Module):
    """Half the size, more channels; also returns where its pooling took the values from."""

    def __init__(self, inputs: int, outputs: int, dropout: float) -> None:
        super().__init__()
        inner = outputs // 4
        first = nn.Conv2d(inputs, inner, 2, stride=2, bias=False)
        self.branch = _branch(inputs, outputs, first, _middle(inner, "plain", 1), dropout, nn.PReLU)
        self.act = nn.PReLU()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        pooled, places = F.max_pool2d(x, 2, return_indices=True)
        new = self.branch(x)
        return (
            self.act(new + F.pad(pooled, (0, 0, 0, 0, 0, new.shape[1] - pooled.shape[1]))),
            places,
        )


class Upsampling(nn.Module):
    """Twice the size, fewer channels; its shortcut unpools to the places of the matching
    `Downsampling`.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        inner = inputs // 4
        self.shortcut = nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        )
        first, middle = (
            nn.Conv2d(inputs, inner, 1, bias=False),
            nn.ConvTranspose2d(inner, inner, 2, stride=2, bias=False),
        )
        self.branch = _branch(inputs, outputs, first, middle, 0.1, nn.ReLU)
        self.act = nn.ReLU()

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        return self.act(F.max_unpool2d(self.shortcut(x), places, (2, 2)) + self.branch(x))


class ENet(nn.Module):
    """Scores ``(N, outputs, H, W)`` of images of any size; 0.37 million parameters with 19 classes.

    Args:
        channels: of the image.
        outputs: number of classes.
    """

    def __init__(self, channels: int = 3, outputs: int = 19) -> None:
        super().__init__()
        self.start = nn.Conv2d(channels, 16 - channels, 3, stride=2, padding=1, bias=False)
        self.start_act = nn.Sequential(nn.BatchNorm2d(16), nn.PReLU())
        self.down1 = Downsampling(16, 64, dropout=0.01)
        self.stage1 = nn.Sequential(*(Bottleneck(64, dropout=0.01) for _ in range(4)))
        self.down2 = Downsampling(64, 128, dropout=0.1)
        self.stage23 = nn.Sequential(*(Bottleneck(128, kind, size) for kind, size in DEEP + DEEP))
        self.up4 = Upsampling(128, 64)
        self.stage4 = nn.Sequential(*(Bottleneck(64, act=nn.ReLU) for _ in range(2)))
        self.up5 = Upsampling(64, 16)
        self.stage5 = Bottleneck(16, act=nn.ReLU)
        self.head = nn.ConvTranspose2d(16, outputs, 2, stride=2)

    def forward(self, images: Tensor) -> Tensor:
        height, width = images.shape[-2:]
        x = F.pad(images, (0, -width % 8, 0, -height % 8))
        x = self.start_act(torch.cat([self.start(x), F.max_pool2d(x, 2)], 1))
        x, places1 = self.down1(x)
        x, places2 = self.down2(self.stage1(x))
        x = self.stage4(self.up4(self.stage23(x), places2))
        return self.head(self.stage5(self.up5(x, places1)))[..., :height, :width]
