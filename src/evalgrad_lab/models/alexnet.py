"""AlexNet (Krizhevsky et al., NeurIPS 2012), the network of the direct-loss paper."""

from torch import nn


def alexnet(outputs: int = 1, hidden: int = 4096) -> nn.Sequential:
    """Scores of images (N, 3, 227, 227) or of another size: ``(N, outputs)``, or ``(N,)`` for a
    single output.

    In one column, with the two groups of the original where it was split over two devices.

    Args:
        outputs: the top dimension.
        hidden: width of the two layers below it.
    """
    layers: list[nn.Module] = []
    for convolution in (nn.Conv2d(3, 96, 11, stride=4), nn.Conv2d(96, 256, 5, padding=2, groups=2)):
        # ceil_mode changes nothing at 227 pixels and keeps a pixel of images that are much smaller
        layers += [convolution, nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True)]
        layers.append(nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75))
    for inputs, width, groups in ((256, 384, 1), (384, 384, 2), (384, 256, 2)):
        layers += [nn.Conv2d(inputs, width, 3, padding=1, groups=groups), nn.ReLU()]
    layers += [nn.MaxPool2d(3, 2, ceil_mode=True), nn.AdaptiveAvgPool2d(6), nn.Flatten()]
    for inputs in (256 * 6 * 6, hidden):
        layers += [nn.Linear(inputs, hidden), nn.ReLU(), nn.Dropout()]
    layers.append(nn.Linear(hidden, outputs))
    return nn.Sequential(*layers, *([nn.Flatten(0)] if outputs == 1 else []))
