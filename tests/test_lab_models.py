"""The lab's networks: shapes, and the number of parameters by formula."""

import pytest
import torch

from evalgrad.lab.models.mlp import mlp
from evalgrad.lab.models.unet import UNet


def parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


def convolution(inputs, outputs, size=3):
    """Weights of a convolution without bias and of its batch normalisation."""
    return size * size * inputs * outputs + 2 * outputs


def test_mlp_has_its_layers_and_a_linear_scorer_is_one():
    assert parameters(mlp(64, (20, 30), 10)) == 65 * 20 + 21 * 30 + 31 * 10
    scorer, items = mlp(5), torch.randn(7, 5)
    weight, bias = scorer[1].weight, scorer[1].bias
    torch.testing.assert_close(scorer(items), items @ weight[0] + bias)
    assert mlp(5)(torch.randn(1, 5)).shape == (1,)


@pytest.mark.parametrize("width", [4, 16])
def test_unet_has_the_parameters_of_its_blocks(width):
    w = width
    blocks = [(4, w), (w, 2 * w), (2 * w, 4 * w), (4 * w, 2 * w), (4 * w, w), (2 * w, w)]
    assert parameters(UNet(1, 11, width)) == sum(convolution(*block) for block in blocks) + (w + 1) * 44


@pytest.mark.parametrize("size", [(32, 32), (30, 41), (1, 3)])
def test_unet_keeps_the_size_of_any_image(size):
    assert UNet(3, 2, width=4)(torch.randn(2, 3, *size)).shape == (2, 2, *size)


def test_unet_sees_far_beyond_its_convolutions():
    model = UNet(1, 2, width=4).eval()
    image = torch.randn(1, 1, 32, 32, requires_grad=True)
    model(image)[0, 0, 16, 16].backward()
    reach = image.grad[0, 0].nonzero()
    assert (reach.amax(0) - reach.amin(0)).min() >= 20
