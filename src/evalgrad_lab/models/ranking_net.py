"""The 4-layer ReLU network of paper 003, section 4.1: the teacher that orders the data, and the
student that learns the order.
"""

import torch
from torch import nn

from evalgrad_lab.models.mlp import mlp


def ranking_net(inputs: int = 10, width: int = 20) -> nn.Sequential:
    """Four linear layers with ReLU between them, one score per item. The paper leaves the width
    open.
    """
    return mlp(inputs, (width, width, width))


def teacher(generator: torch.Generator, inputs: int = 10, width: int = 20) -> nn.Sequential:
    """The same network with all its parameters drawn from the standard normal distribution."""
    network = ranking_net(inputs, width)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return network
