"""EfficientNet-Lite0: with published weights for scores of 1000 classes, and as the encoder of a
U-Net. Its parameters have the names that timm gives them; `weights` knows other names for them.
"""

from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from evalgrad_lab.models.unet import block

# repeats, kernel, stride of the first, expansion, channels
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
SEEN = {0: 16, 1: 24, 2: 40, 4: 112, 6: 320}  # the last stage of each size, and its channels


def efficientnet_lite0(outputs: int = 1000) -> nn.Sequential:
    """Class scores of images ``(N, 3, H, W)``."""
    tail = [_convolution(320, 1280, 1), _norm(1280), nn.ReLU6()]
    names = ("conv_head", "bn2", "act2", "global_pool", "flatten", "classifier")
    last = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, outputs)]
    return nn.Sequential(_features() | OrderedDict(zip(names, [*tail, *last], strict=True)))


def _features() -> "OrderedDict[str, nn.Module]":
    """From the image to 320 channels at a thirty-second of its size."""
    stages, inputs = [], 32
    for repeats, kernel, stride, expansion, outputs in STAGES:
        blocks = []
        for repeat in range(repeats):
            blocks.append(Block(inputs, outputs, kernel, stride if repeat == 0 else 1, expansion))
            inputs = outputs
        stages.append(nn.Sequential(*blocks))
    stem = {"conv_stem": _convolution(3, 32, 3, stride=2), "bn1": _norm(32), "act1": nn.ReLU6()}
    return OrderedDict(**stem, blocks=nn.Sequential(*stages))


class _convolution(nn.Conv2d):
    """With the network's own padding: at stride 2 the extra row is below and to the right."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1
    ) -> None:
        super().__init__(inputs, outputs, kernel, stride, groups=groups, bias=False)
        before = (kernel - stride) // 2
        self.border = (before, kernel - stride - before) * 2 if kernel > 1 else (0, 0, 0, 0)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.pad(x, self.border) if any(self.border) else x)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3)


class Block(nn.Sequential):
    """Expand the channels, filter each, project; with a shortcut where the shape stays."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        middle = inputs * expansion
        depthwise = _convolution(middle, middle, kernel, stride=stride, groups=middle)
        parts: dict[str, nn.Module] = {"conv_dw": depthwise, "bn1": _norm(middle)}
        parts |= {"act1": nn.ReLU6(), "conv_pw": _convolution(middle, outputs, 1)}
        parts |= {"bn2": _norm(outputs)}
        if expansion > 1:
            parts = {"conv_pw": _convolution(inputs, middle, 1), "bn1": _norm(middle)}
            parts |= {"act1": nn.ReLU6(), "conv_dw": depthwise, "bn2": _norm(middle)}
            parts |= {"act2": nn.ReLU6(), "conv_pwl": _convolution(middle, outputs, 1)}
            parts |= {"bn3": _norm(outputs)}
        super().__init__(OrderedDict(parts))
        self.shortcut = inputs == outputs and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        said: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
        return x + said if self.shortcut else said


class EfficientNetUNet(nn.Module):
    """Scores ``(N, outputs, H, W)`` of images ``(N, channels, H, W)`` of any size: the encoder is
    EfficientNet-Lite0, and the way back joins what it has seen at each size.

    Args:
        channels: 3, or 1 that is given to the encoder three times.
        outputs: number of classes; 1 for binary tasks.
        width: channels of the way back at half size, doubled at each smaller size.

    Example:
        >>> EfficientNetUNet(1, 2, width=4)(torch.zeros(2, 1, 30, 41)).shape
        torch.Size([2, 2, 30, 41])
    """

    def __init__(self, channels: int, outputs: int, width: int = 16) -> None:
        super().__init__()
        if channels not in (1, 3):
            raise ValueError(f"it takes 1 or 3 channels; the images have {channels}.")
        self.encoder = nn.Sequential(_features())
        sizes = list(SEEN.values())
        widths = [width * 2**i for i in range(len(sizes) - 1)] + [sizes[-1]]
        self.decoder = nn.ModuleList(
            block(seen + below, own)
            for seen, own, below in zip(sizes[:-1], widths[:-1], widths[1:], strict=True)
        )
        self.head = nn.Conv2d(width, outputs, 1)

    def forward(self, images: Tensor) -> Tensor:
        height, width = images.shape[-2:]
        x = F.pad(images, (0, -width % 32, 0, -height % 32)).expand(-1, 3, -1, -1)
        stem, stages, seen = self.encoder[:-1], self.encoder[-1], []
        x = stem(x)
        for number, stage in enumerate(stages.children()):
            x = stage(x)
            if number in SEEN:
                seen.append(x)
        x = seen.pop()
        for up in reversed(self.decoder):
            x = F.interpolate(x, scale_factor=2.0, mode="nearest")
            x = up(torch.cat([seen.pop(), x], 1))
        scores = self.head(F.interpolate(x, scale_factor=2.0, mode="nearest"))
        return scores[..., :height, :width]
