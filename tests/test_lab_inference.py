"""Tiles, scales, flips and crops, on networks whose answer is known."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

import evalgrad as eg
from evalgrad_lab import views


def network(images):
    """A 3x3 convolution: three classes, and what is beyond the border counts as 0."""
    torch.manual_seed(1)
    return F.conv2d(images, torch.randn(3, images.shape[1], 3, 3), padding=1)


@pytest.mark.parametrize(("width", "tiles"), [(20, 5), (17, 3), (4, 4)])
def test_tiles_that_overlap_enough_change_nothing(width, tiles):
    images = torch.randn(2, 1, 6, width)
    torch.testing.assert_close(
        views.tiled(network, images, tiles=tiles, overlap=2), network(images)
    )
    assert not torch.allclose(views.tiled(network, images, tiles=tiles), network(images))


def test_each_tile_decides_its_half_of_the_overlap():
    images, seen = torch.arange(12.0).expand(1, 1, 1, 12), []

    def tile(crop):
        seen.append(crop[0, 0, 0].tolist())
        return torch.full_like(crop, float(len(seen)))

    decided = views.tiled(tile, images, tiles=3, overlap=4)
    assert seen == [[0, 1, 2, 3, 4, 5], [2, 3, 4, 5, 6, 7, 8, 9], [6, 7, 8, 9, 10, 11]]
    assert decided.flatten().tolist() == [1] * 4 + [2] * 4 + [3] * 4


def test_multi_scale_is_the_mean_of_the_probabilities_at_each_scale():
    images = torch.randn(2, 1, 8, 12)
    half = F.interpolate(images, size=(4, 6), mode="bilinear", antialias=True)
    at_half = F.interpolate(network(half).softmax(1), size=(8, 12), mode="bilinear")
    expected = (network(images).softmax(1) + at_half) / 2
    torch.testing.assert_close(views.multi_scale(network, images, scales=(1.0, 0.5)), expected)


def test_flips_make_the_prediction_blind_to_mirroring():
    images = torch.randn(2, 1, 8, 12)
    found = views.multi_scale(network, images, flips=True)
    torch.testing.assert_close(
        views.multi_scale(network, images.flip(-1), flips=True), found.flip(-1)
    )
    torch.testing.assert_close(found.sum(1), torch.ones(2, 8, 12))


def test_one_output_is_a_sigmoid():
    scores = torch.randn(2, 1, 3)
    torch.testing.assert_close(views.probabilities(scores), 1 / (1 + torch.exp(-scores)))


def test_ten_crops_are_corners_centre_and_mirrors():
    image = torch.arange(25.0).view(1, 1, 5, 5)
    firsts = views.ten_crops(image, 3)[0, :, 0, 0, 0].tolist()
    assert firsts == [0, 2, 10, 12, 6, 2, 4, 12, 14, 8]


def test_marginals_over_crops_predict_what_topk_predict_does():
    images = torch.randn(4, 1, 6, 6)

    def classify(batch):
        return 3 * network(batch).mean((2, 3))

    marginals = views.crop_marginals(classify, images, size=4, k=2)
    scores = torch.stack([classify(view) for view in views.ten_crops(images, 4).unbind(1)], 1)
    torch.testing.assert_close(marginals, eg.topk_probabilities(scores, k=2).mean(1))
    assert torch.equal(marginals.topk(2).indices, eg.topk_predict(scores, k=2, crop_dim=1))


def test_crops_are_averaged_by_the_k_of_the_metric_that_is_asked_for():
    def network(crops):
        return crops.mean((2, 3)) * torch.tensor([1.0, 2, 3])

    images = torch.randn(2, 3, 8, 8)
    for metric, k in (("top1", 1), ("top2", 2)):
        description = SimpleNamespace(task="classification", columns=[], metric=metric)
        view = views.make_view({"crops": 4}, description, network)
        expected = views.crop_marginals(network, images, size=4, k=k)
        torch.testing.assert_close(view(images), expected)
        torch.testing.assert_close(expected.sum(1), torch.full((2,), float(k)))
