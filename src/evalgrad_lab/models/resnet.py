"""ResNet-18 for photographs (smooth top-k, section 5.2), and the dilated ResNet-101 of DeepLab-v2
(loss max-pooling and Lovász-Softmax).

Layers are laid out as in He et al., 2016, and named as in torchvision; the dilated one keeps an
eighth of the image's size in its last two stages.
"""

from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def _convolution(
    inputs: int, outputs: int, kernel: int, stride: int = 1, dilation: int = 1
) -> nn.Conv2d:
    padding = dilation * (kernel // 2)
    return nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation, bias=False)


class Residual(nn.Module):
    """Two 3x3 convolutions, or a 3x3 one between two 1x1 ones, added to the input."""

    def __init__(
        self,
        inputs: int,
        width: int,
        stride: int,
        dilation: int,
        bottleneck: bool,
        caffe: bool = False,
    ) -> None:
        super().__init__()
        outputs = 4 * width if bottleneck else width
        layers = [(inputs, width, 3, stride, dilation), (width, outputs, 3, 1, dilation)]
        if bottleneck:
            first, second = (stride, 1) if caffe else (1, stride)
            layers = [(inputs, width, 1, first, 1), (width, width, 3, second, dilation)]
            layers.append((width, outputs, 1, 1, 1))
        parts: dict[str, nn.Module] = {}
        for number, layer in enumerate(layers, 1):
            parts |= {f"relu{number - 1}": nn.ReLU()} if number > 1 else {}
            parts[f"conv{number}"] = _convolution(*layer)
            parts[f"bn{number}"] = nn.BatchNorm2d(layer[1])
        for name, part in parts.items():
            self.add_module(name, part)
        self.branch = tuple(parts)
        same = inputs == outputs and stride == 1
        shortcut = (_convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))
        self.downsample = nn.Identity() if same else nn.Sequential(*shortcut)

    def forward(self, x: Tensor) -> Tensor:
        seen = x
        for name in self.branch:
            seen = self.get_submodule(name)(seen)
        return F.relu(self.downsample(x) + seen)


def _trunk(
    blocks: tuple[int, ...],
    bottleneck: bool,
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    caffe: bool = False,
) -> nn.Sequential:
    layers: dict[str, nn.Module] = {"conv1": _convolution(3, 64, 7, 2), "bn1": nn.BatchNorm2d(64)}
    layers |= {"relu": nn.ReLU(), "maxpool": nn.MaxPool2d(3, 2, padding=1, ceil_mode=caffe)}
    inputs = 64
    for stage, (count, stride, dilation) in enumerate(zip(blocks, strides, dilations, strict=True)):
        width, stages = 64 * 2**stage, []
        for block in range(count):
            first = stride if block == 0 else 1
            stages.append(Residual(inputs, width, first, dilation, bottleneck, caffe))
            inputs = 4 * width if bottleneck else width
        layers[f"layer{stage + 1}"] = nn.Sequential(*stages)
    return nn.Sequential(OrderedDict(layers))


def resnet18(outputs: int = 1000) -> nn.Sequential:
    """Class scores ``(N, outputs)`` of images, 224x224 in the paper."""
    network = _trunk((2, 2, 2, 2), False, (1, 2, 2, 2), (1, 1, 1, 1))
    tail = {"avgpool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten()}
    for name, part in {**tail, "fc": nn.Linear(512, outputs)}.items():
        network.add_module(name, part)
    return network


class DeepLab(nn.Module):
    """DeepLab-v2 at a single scale: a dilated ResNet-101 and the sum of four dilated 3x3
    convolutions, enlarged to the image.

    Args:
        outputs: number of classes.
        blocks: residual blocks of each stage; (3, 4, 23, 3) is ResNet-101.
        caffe: as in Caffe, for weights that were trained there: the stride of a stage in its first
            1x1 convolution, a pooling that rounds its size up, scores enlarged from corner to
            corner. Else as in torchvision.
    """

    def __init__(
        self,
        outputs: int = 21,
        blocks: tuple[int, ...] = (3, 4, 23, 3),
        caffe: bool = False,
    ) -> None:
        super().__init__()
        self.trunk = _trunk(blocks, True, (1, 2, 1, 1), (1, 1, 2, 4), caffe)
        self.align_corners = caffe
        self.heads = nn.ModuleList(
            nn.Conv2d(2048, outputs, 3, padding=rate, dilation=rate) for rate in (6, 12, 18, 24)
        )

    def forward(self, images: Tensor) -> Tensor:
        features = self.trunk(images)
        scores = torch.stack([head(features) for head in self.heads]).sum(0)
        size, align = images.shape[-2:], self.align_corners
        return F.interpolate(scores, size=size, mode="bilinear", align_corners=align)
