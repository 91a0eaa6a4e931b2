"""EfficientNet-Lite0 for inference with published weights: it gives real scores of 1000 classes."""

from collections.abc import Mapping

from torch import Tensor, nn

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


def efficientnet_lite0(weights: Mapping[str, Tensor] | None = None) -> nn.Sequential:
    """The network; `weights` in the order of its layers, under whatever names they were saved."""
    layers: list[nn.Module] = [_convolution(3, 32, 3, stride=2), nn.ReLU6()]
    inputs = 32
    for repeats, kernel, stride, expansion, outputs in STAGES:
        for repeat in range(repeats):
            layers.append(Block(inputs, outputs, kernel, stride if repeat == 0 else 1, expansion))
            inputs = outputs
    layers += [
        _convolution(inputs, 1280, 1),
        nn.ReLU6(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(1280, 1000),
    ]
    model = nn.Sequential(*layers)
    if weights is not None:
        model.load_state_dict(dict(zip(model.state_dict(), weights.values(), strict=True)))
    return model


def _convolution(
    inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    """A convolution with the size-keeping padding of the network's origin: at stride 2 the extra
    row is below and to the right.
    """
    before = (kernel - stride) // 2
    padding = nn.ZeroPad2d((before, kernel - stride - before) * 2) if kernel > 1 else nn.Identity()
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, groups=groups, bias=False)
    return nn.Sequential(padding, convolution, nn.BatchNorm2d(outputs, eps=1e-3))


class Block(nn.Module):
    """Expand the channels, filter each by itself, project; with a shortcut where the shape
    stays.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        middle = inputs * expansion
        expand = [_convolution(inputs, middle, 1), nn.ReLU6()] if expansion > 1 else []
        depthwise = _convolution(middle, middle, kernel, stride=stride, groups=middle)
        self.layers = nn.Sequential(
            *expand, depthwise, nn.ReLU6(), _convolution(middle, outputs, 1)
        )
        self.shortcut = inputs == outputs and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.shortcut else self.layers(x)
