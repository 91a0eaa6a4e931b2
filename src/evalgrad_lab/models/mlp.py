"""The linear scorer and the multilayer perceptron."""

from collections.abc import Sequence

from torch import nn


def mlp(inputs: int, widths: Sequence[int] = (), outputs: int = 1) -> nn.Sequential:
    """Layers of the given widths with ReLU between them; no width at all is a linear scorer.

    Args:
        inputs: number of values of an item; items of any shape are flattened.
        widths: units of each hidden layer.
        outputs: number of classes. One output is a score: the network returns ``(N,)`` instead of
            ``(N, 1)``.

    Example:
        >>> import torch
        >>> mlp(4)(torch.zeros(3, 4)).shape, mlp(64, (32, 32), 10)(torch.zeros(3, 8, 8)).shape
        (torch.Size([3]), torch.Size([3, 10]))
    """
    layers: list[nn.Module] = [nn.Flatten()]
    for width in widths:
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    layers.append(nn.Linear(inputs, outputs))
    return nn.Sequential(*layers, *([nn.Flatten(0)] if outputs == 1 else []))
