"""Networks for pairs of small photographs: `cifar_pairs`, flat (n, 8 * 16 * 3)."""

from torch import Tensor, nn

from evalgrad_lab.models.densenet import densenet

CLASSES, HEIGHT, CHANNELS = 100, 8, 3


class Photographs(nn.Module):
    """Rows of flat pixels as images (n, 3, 8, 16)."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.view(-1, HEIGHT, 2 * HEIGHT, CHANNELS).movedim(-1, 1)


def small_cnn(width: int) -> nn.Sequential:
    """Three convolutions, twice pooled; 0.1 M parameters at a width of 16."""
    layers: list[nn.Module] = [Photographs()]
    for inputs, outputs in ((CHANNELS, width), (width, 2 * width), (2 * width, 4 * width)):
        convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers[:-1], nn.Flatten(), nn.Linear(32 * width, CLASSES))


def small_densenet(growth: int) -> nn.Sequential:
    """DenseNet-BC with two layers in each of its blocks; the paper's has six."""
    return nn.Sequential(
        Photographs(), densenet(outputs=CLASSES, depth=16, growth=growth, bottleneck=True)
    )
