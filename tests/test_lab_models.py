"""The lab's networks: shapes, and the number of parameters by formula."""

import pytest
import torch

from evalgrad_lab.models.brain_net import BLOCKS, BrainNet
from evalgrad_lab.models.densenet import densenet
from evalgrad_lab.models.enet import ENet
from evalgrad_lab.models.mlp import mlp
from evalgrad_lab.models.segnet import SegNet
from evalgrad_lab.models.unet import UNet


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
    assert (
        parameters(UNet(1, 11, width))
        == sum(convolution(*block) for block in blocks) + (w + 1) * 44
    )
    assert round(parameters(UNet(1, 11)) / 1000) == 57


SEGMENTERS = {
    "unet": UNet(3, 2, width=4),
    "segnet": SegNet(3, 2, widths=(4, 8)),
    "enet": ENet(3, 2),
    "brain": BrainNet(3, 2, width=4),
}


@pytest.mark.parametrize("size", [(32, 32), (30, 41), (1, 3)])
@pytest.mark.parametrize("name", SEGMENTERS)
def test_segmenters_keep_the_size_of_any_image_and_train_all_their_parameters(name, size):
    model = SEGMENTERS[name]
    model.zero_grad()
    scores = model(torch.randn(2, 3, *size))
    assert scores.shape == (2, 2, *size)
    (scores * torch.randn_like(scores)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_unet_sees_far_beyond_its_convolutions():
    model = UNet(1, 2, width=4).eval()
    image = torch.randn(1, 1, 32, 32, requires_grad=True)
    model(image)[0, 0, 16, 16].backward()
    reach = image.grad[0, 0].nonzero()
    assert (reach.amax(0) - reach.amin(0)).min() >= 20


def test_enet_has_the_0_37_million_parameters_of_its_paper():
    assert round(parameters(ENet(3, 19)) / 1e6, 2) == 0.37


def test_brain_net_has_the_filters_of_table_b1():
    counted, channels = 0, 1
    for kernel, filters, _, _ in BLOCKS:
        counted += convolution(channels, filters, kernel)
        channels = filters
    assert parameters(BrainNet()) == counted + 9 * (1024 + 1)


def test_densenet_40_12_has_a_million_parameters():
    width, counted = 16, 3 * 16 * 9
    for block in range(3):
        for _ in range(12):
            counted += 2 * width + 9 * width * 12
            width += 12
        counted += 2 * width + (width * width if block < 2 else 0)
    assert parameters(densenet(3, 10)) == counted + 10 * (width + 1)
    assert round(counted / 1e6, 1) == 1.0
    assert densenet(1, 7, depth=10, growth=4)(torch.randn(2, 1, 32, 32)).shape == (2, 7)


def test_densenet_tells_which_depths_exist():
    with pytest.raises(ValueError, match=r"`depth` must be 3 n \+ 4; got 41"):
        densenet(depth=41)


def test_segnet_puts_a_value_back_where_it_was():
    model = SegNet(1, 1, widths=(1,))
    for stage in (model.encoder, model.decoder):
        stage[0] = torch.nn.Identity()
    model.head = torch.nn.Identity()
    image = torch.zeros(1, 1, 4, 4)
    image[0, 0, 1, 2] = 5.0
    torch.testing.assert_close(model(image), image)
