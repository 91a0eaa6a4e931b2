"""ENet (Paszke et al., 2016), the fast network that the Lovász paper fine-tunes on Cityscapes
(section 4.4).

Bottlenecks do all the work: a 1x1 convolution to a quarter of the channels, a convolution that is
plain, dilated or split into a column and a row, a 1x1 convolution back, and the sum with the
shortcut. The decoder unpools where the encoder pooled.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# the middle convolutions of the bottlenecks of stages 2 and 3: their dilation, or split
DEEP: tuple[int | str, ...] = (1, 2, "split", 4, 1, 8, "split", 16)


def _normalised(convolution: nn.Module, channels: int, activation: nn.Module) -> nn.Sequential:
    return nn.Sequential(convolution, nn.BatchNorm2d(channels), activation)


def _middle(channels: int, kind: int | str = 1) -> nn.Module:
    if isinstance(kind, int):
        return nn.Conv2d(channels, channels, 3, padding=kind, dilation=kind, bias=False)
    sides = [((5, 1), (2, 0)), ((1, 5), (0, 2))]
    return nn.Sequential(*(nn.Conv2d(channels, channels, k, 1, p, bias=False) for k, p in sides))


class _Branch(nn.Sequential):
    """Beside the shortcut: `first` and `middle` at `inner` channels, then up to the outputs."""

    def __init__(
        self,
        inner: int,
        outputs: int,
        layers: tuple[nn.Module, nn.Module],
        dropout: float,
        act: type[nn.Module],
    ) -> None:
        back = nn.Conv2d(inner, outputs, 1, bias=False)
        parts = [_normalised(layer, inner, act()) for layer in layers]
        super().__init__(*parts, _normalised(back, outputs, nn.Dropout2d(dropout)))


class Bottleneck(nn.Module):
    """The plain bottleneck: input and output of the same shape."""

    def __init__(
        self,
        channels: int,
        kind: int | str = 1,
        dropout: float = 0.1,
        act: type[nn.Module] = nn.PReLU,
    ) -> None:
        super().__init__()
        inner = channels // 4
        layers = nn.Conv2d(channels, inner, 1, bias=False), _middle(inner, kind)
        self.branch, self.act = _Branch(inner, channels, layers, dropout, act), act()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(x + self.branch(x))


class Downsampling(nn.Module):
    """Half the size, more channels; also returns where its pooling took the values from."""

    def __init__(self, inputs: int, outputs: int, dropout: float) -> None:
        super().__init__()
        inner = outputs // 4
        layers = nn.Conv2d(inputs, inner, 2, stride=2, bias=False), _middle(inner)
        self.branch, self.act = _Branch(inner, outputs, layers, dropout, nn.PReLU), nn.PReLU()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        pooled, places = F.max_pool2d(x, 2, return_indices=True)
        new = self.branch(x)
        missing = new.shape[1] - pooled.shape[1]
        return self.act(new + F.pad(pooled, (0, 0, 0, 0, 0, missing))), places


class Upsampling(nn.Module):
    """Twice the size, fewer channels; unpools to the places of the matching `Downsampling`."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        inner, shortcut = inputs // 4, nn.Conv2d(inputs, outputs, 1, bias=False)
        self.shortcut = nn.Sequential(shortcut, nn.BatchNorm2d(outputs))
        first = nn.Conv2d(inputs, inner, 1, bias=False)
        layers = first, nn.ConvTranspose2d(inner, inner, 2, stride=2, bias=False)
        self.branch, self.act = _Branch(inner, outputs, layers, 0.1, nn.ReLU), nn.ReLU()

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
        self.stage23 = nn.Sequential(*(Bottleneck(128, kind) for kind in DEEP + DEEP))
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
