"""Hugging Face model folders, with small models made from a configuration."""

import shutil

import pytest
import torch
import torch.nn.functional as F
from training_data import write_colours, write_segmentation

from evalgrad_lab import TrainOptions, saved, train
from evalgrad_lab.errors import UserError
from evalgrad_lab.models import build, choose
from evalgrad_lab.models.weights import load_weights

transformers = pytest.importorskip("transformers")


def segformer(**more):
    sizes = {"hidden_sizes": [8, 8, 16, 16], "decoder_hidden_size": 16, "depths": [1, 1, 1, 1]}
    heads = {"num_attention_heads": [1, 1, 2, 2], "num_channels": 1, "num_labels": 3}
    return transformers.SegformerConfig(**sizes, **heads, **more)


def vit(labels):
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    more = {"intermediate_size": 32, "image_size": 12, "patch_size": 4, "num_labels": labels}
    return transformers.ViTConfig(**sizes, **more)


def network_of(folder, inputs, outputs, task):
    chosen = choose(str(folder), task)
    network = build(chosen.name, inputs, outputs, chosen.options)
    return network, load_weights(network, chosen.weights)


def test_a_segmenter_says_what_the_model_says_at_the_size_of_the_image(tmp_path):
    model = transformers.SegformerForSemanticSegmentation(segformer()).eval()
    model.save_pretrained(tmp_path)
    network, loaded = network_of(tmp_path, 1, 3, "segmentation")
    assert (loaded.fresh, loaded.unused) == ([], [])
    images = torch.randn(2, 1, 32, 64)
    small = model(images).logits
    assert small.shape == (2, 3, 8, 16)
    expected = F.interpolate(small, size=(32, 64), mode="bilinear")
    torch.testing.assert_close(network.eval()(images), expected)


def test_another_number_of_classes_gets_a_new_head(tmp_path):
    transformers.ViTForImageClassification(vit(5)).save_pretrained(tmp_path)
    network, loaded = network_of(tmp_path, 3, 2, "classification")
    assert loaded.fresh == ["model.classifier.weight", "model.classifier.bias"]
    assert network(torch.randn(4, 3, 12, 12)).shape == (4, 2)


def test_an_encoder_that_classified_segments_with_a_new_decoder(tmp_path):
    model = transformers.SegformerForImageClassification(segformer())
    model.save_pretrained(tmp_path)
    network, loaded = network_of(tmp_path, 1, 2, "segmentation")
    assert all(name.startswith("model.decode_head.") for name in loaded.fresh)
    assert loaded.unused == ["classifier.bias", "classifier.weight"]
    ours, theirs = network.model.segformer.state_dict(), model.segformer.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_folder_is_trained_and_not_needed_afterwards(tmp_path):
    data = write_segmentation(tmp_path / "data", count=10, size=32)
    transformers.SegformerForSemanticSegmentation(segformer()).save_pretrained(tmp_path / "model")
    options = {"task": "segmentation", "metric": "miou", "data": data, "out": tmp_path / "run"}
    options |= {"model": str(tmp_path / "model"), "epochs": 2, "batch_size": 4}
    train(TrainOptions(**options, accelerator="cpu"))
    shutil.rmtree(tmp_path / "model")
    description, network = saved.read(tmp_path / "run")
    assert description.model == "hugging_face"
    assert network(torch.zeros(1, 1, 32, 32)).shape == (1, 3, 32, 32)


def test_a_classifier_is_trained(tmp_path):
    data = write_colours(tmp_path / "data")
    transformers.ViTForImageClassification(vit(7)).save_pretrained(tmp_path / "model")
    options = {"task": "classification", "metric": "accuracy", "data": data}
    options |= {"model": str(tmp_path / "model"), "epochs": 2, "batch_size": 4, "seed": 1}
    result = train(TrainOptions(**options, out=tmp_path / "run", accelerator="cpu"))
    assert result.steps == 6  # three batches of the twelve images left to train on, twice


def test_what_does_not_fit_is_told(tmp_path):
    transformers.SegformerForSemanticSegmentation(segformer()).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="it takes 1 channels; the images have 3"):
        network_of(tmp_path, 3, 2, "segmentation")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="has no model_type"):
        choose(str(tmp_path), "segmentation")
