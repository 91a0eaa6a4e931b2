"""`--size-node`: which images are large, what is added to the loss, and what it cannot be with."""

import json
from pathlib import Path

import layout_folders as folders
import pytest
import torch
from torch import nn

import evalgrad as eg
from evalgrad_lab import EvaluateOptions, TrainOptions, evaluate, train
from evalgrad_lab.data.batches import Batch
from evalgrad_lab.data.dataset import Part
from evalgrad_lab.errors import UserError
from evalgrad_lab.fit import Phase
from evalgrad_lab.given import Given
from evalgrad_lab.models.segnet import SegNet
from evalgrad_lab.size_node import size_labels, with_size_node


def maps(*areas):
    """Label maps 10x10 with so many pixels of class 1, one of them void."""
    target = torch.zeros(len(areas), 100, dtype=torch.int64)
    for row, area in zip(target, areas, strict=True):
        row[:area], row[-1] = 1, 255
    return Part(torch.rand(len(areas), 3, 10, 10), target.view(-1, 10, 10))


def test_large_is_above_the_mean_foreground():
    assert size_labels(Given(maps(0, 10, 20, 90), 2, 255)).tolist() == [0, 0, 0, 1]
    with pytest.raises(UserError, match="needs training images of both sizes; all have the same"):
        size_labels(Given(maps(5, 5), 2, 255))


def test_of_many_classes_the_vote_decides():
    part = maps(3, 40, 99)
    expected = eg.majority_size_labels(part.target, classes=4, threshold=0.05, ignore_index=255)
    assert size_labels(Given(part, 4, 255)).tolist() == expected.tolist()


def test_the_f1_of_the_node_is_added_and_reaches_the_network():
    torch.manual_seed(0)
    network, part = SegNet(3, 1, [4, 8]), maps(0, 10, 20, 90)
    labels = size_labels(Given(part, 2, 255))
    seen = {}
    network.head.register_forward_pre_hook(lambda layer, inputs: seen.update(features=inputs[0]))
    phase = with_size_node(Phase(lambda output, batch: output.mean(), 3), network, labels, 0.5)
    batch = Batch(part.inputs, part.target, torch.arange(4))
    output = network(part.inputs)
    loss = phase.loss(output, batch)
    measure = eg.FBeta(labels=labels)(phase.loss.head(seen["features"]), labels, index=batch.index)
    torch.testing.assert_close(loss, output.mean() + 0.5 * measure)
    loss.backward()
    assert network.decoder[0][0][0].weight.grad.abs().sum() > 0
    assert network.head.bias.grad.item() == pytest.approx(1)  # of the main loss alone
    assert {id(p) for p in phase.loss.head.parameters()} <= {id(p) for p in phase.parameters}
    assert not any("encoder" in name for name in phase.loss.state_dict())


def test_networks_that_end_otherwise_are_told():
    network = nn.Sequential(nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2))
    with pytest.raises(UserError, match="that end in a convolution or a linear layer; got BatchN"):
        with_size_node(Phase(lambda output, batch: output.mean(), 1), network, torch.arange(2), 1.0)


def options(root, **changes):
    folders.write_coco_stuff(root / "data")
    small = {"data_options": {"resize": [16, 32]}, "model": "unet", "model_options": {"width": 4}}
    where = {"data": Path(f"coco_sky:{root / 'data'}"), "out": root / "out", "accelerator": "cpu"}
    given = {"task": "segmentation", "metric": "miou", "loss": "cross_entropy", "epochs": 1}
    return TrainOptions(**(small | where | given | {"size_node": 0.1, "batch_size": 2} | changes))


def test_the_network_is_saved_without_it_and_looked_at_as_in_training(tmp_path):
    result = train(options(tmp_path, tiles=2, scales=[1, 0.5], test=0.3))
    description = json.loads((tmp_path / "out" / "model.json").read_text())
    assert description["views"] == {"tiles": 2, "scales": [1, 0.5]}
    found = evaluate(EvaluateOptions(run=tmp_path / "out", device="cpu"))
    assert found.value == pytest.approx(result.test)
    assert train(options(tmp_path, tiles=2, scales=[1, 0.5], test=0.3)) == result  # it is finished


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"accumulate": 2}, "--size-node takes neither --accumulate nor --compile nor several"),
        ({"crops": 8}, "--crops is for the classification of images; the model is for segm"),
        ({"task": "classification", "metric": "top1"}, "--size-node is for segmentation; --task"),
    ],
)
def test_messages(tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        train(options(tmp_path, **changes))
