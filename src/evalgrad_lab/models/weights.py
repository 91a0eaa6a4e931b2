"""Loads pretrained weights into a network: reads files without pickle, renames the parameters, and
keeps the new head if the old one does not fit. Batch normalisation may be frozen as it was loaded.

The parameters of a network have different names in different files: wrappers add prefixes
(`module.`, `model.`), the file's network may be a part of another (`encoder.`), EfficientNet has
three naming schemes and DeepLab-v2 two. All renamings are tried; the one with the most matching
parameters is used.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from evalgrad_lab.errors import UserError
from evalgrad_lab.models.efficientnet_lite import STAGES
from evalgrad_lab.models.hugging_face import HuggingFace

Weights = dict[str, Tensor]
PREFIXES = (
    *("module.", "_orig_mod.", "network.", "model.", "backbone.", "encoder.", "0.", "1."),
    *("Scale.", "scale.", "base."),  # of the ports of DeepLab-v2
)
NESTED = ("state_dict", "model_state_dict", "model", "network")
# Parameters whose names have one of these parts are made for a number of classes, or come after
# the part of a network that is reused: they may be missing, superfluous or of another shape.
HEAD = re.compile(
    r"(^|\.)(fc|_fc|classifier|heads?|head_dist|last_linear|aux_classifier|auxiliary_head"
    r"|decode_head|segmentation_head|decoder|conv_head|_conv_head)(\.|$)|^(encoder\.)?bn2\."
)


@dataclass(frozen=True)
class Loaded:
    """What came from a file: names of the network. `fresh` are left as they were, `unused` are the
    file's own names that the network has no place for.
    """

    taken: list[str]
    fresh: list[str]
    unused: list[str]

    def __str__(self) -> str:
        said = f"{len(self.taken)} tensors taken"
        said += f"; new: {', '.join(self.fresh)}" if self.fresh else ""
        return said + (f"; not used: {', '.join(self.unused)}" if self.unused else "")


def read_weights(path: Path) -> Weights:
    """The tensors of a `.safetensors` file, of a file of torch, or of all in a folder."""
    if path.is_dir():
        files = sorted(path.glob("*.safetensors")) or sorted(path.glob("*.bin"))
        if not files:
            raise UserError(f"{path} holds no weights: neither *.safetensors nor *.bin.")
        return {name: tensor for file in files for name, tensor in read_weights(file).items()}
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        found = torch.load(path, map_location="cpu", weights_only=True)  # a pickle may run any code
    except (OSError, SafetensorError) as error:
        raise UserError(f"--weights: {path} cannot be read ({error}).") from error
    except Exception as error:  # torch.load raises whatever a foreign file makes it raise
        raise UserError(
            f"--weights: {path} is not a file of plain tensors ({type(error).__name__}). Save the"
            " state_dict of the network with torch.save, or as .safetensors."
        ) from error
    for name in NESTED:
        found = found[name] if isinstance(found.get(name), dict) else found
    return {name: tensor for name, tensor in found.items() if isinstance(tensor, Tensor)}


def load_weights(network: nn.Module, path: Path) -> Loaded:
    """Give the network the weights of a file. Raises if anything but a head does not fit."""
    expected = network.state_dict()
    if isinstance(network, HuggingFace) and path.is_dir():
        found = network.load_folder(path)
        fresh = {f"model.{name}": "not there, or of another shape" for name in found["missing"]}
        return _checked(path, list(expected), fresh, {name: name for name in found["unused"]})
    weights, fresh = read_weights(path), {}
    shapes = {name: tuple(tensor.shape) for name, tensor in expected.items()}
    named = max(_renamed(weights, network), key=lambda names: _fitting(names, weights, shapes))
    for name, shape in shapes.items():
        there = tuple(weights[named[name]].shape) if name in named else "missing"
        if there != shape:
            fresh[name] = f"{there} there and {shape} here"
    unused = {new: old for new, old in named.items() if new not in expected}
    loaded = _checked(path, list(expected), fresh, unused)
    taken = {name: weights[named[name]] for name in expected if name not in fresh}
    network.load_state_dict(taken, strict=False)
    return loaded


def _fitting(
    names: dict[str, str], weights: Weights, shapes: dict[str, tuple[int, ...]]
) -> tuple[int, int]:
    """How many parameters fit, and how many have a place: a head of another shape has one."""
    fit = sum(shapes.get(new) == tuple(weights[old].shape) for new, old in names.items())
    return fit, sum(new in shapes for new in names)


def _checked(
    path: Path, expected: list[str], fresh: dict[str, str], unused: dict[str, str]
) -> Loaded:
    """`fresh` are parameters of the network with why they are not taken, `unused` those without a
    place, with the file's name; only heads may be among them.
    """
    wrong = {name: f": {name} is {why}" for name, why in fresh.items()}
    wrong |= {name: f", which has no parameter for {old}" for name, old in unused.items()}
    for name, why in wrong.items():
        if not HEAD.search(name) and not _is_counter(name):
            raise UserError(f"--weights: {path} does not fit --model{why}. Only a head may differ.")
    taken = [name for name in expected if name not in fresh]
    new = [name for name in expected if name in fresh and not _is_counter(name)]
    return Loaded(taken, new, sorted(unused.values()))


def _is_counter(name: str) -> bool:
    return name.endswith("num_batches_tracked")


def _renamed(weights: Weights, network: nn.Module) -> Iterator[dict[str, str]]:
    """New names to those of the file, by families and with prefixes off and on."""
    parts = [f"{name}." for name, _ in network.named_modules() if name and name.count(".") < 2]
    for family in FAMILIES:
        names = {old: old for old in weights}
        for _ in range(4):
            known = set(names.values())
            renamed = {old: family(name, known) for old, name in names.items()}
            for part in ("", *parts):
                yield {part + new: old for old, new in renamed.items()}
            names = {old: _without_prefix(name) for old, name in names.items()}


def _without_prefix(name: str) -> str:
    prefix = next((prefix for prefix in PREFIXES if name.startswith(prefix)), "")
    return name[len(prefix) :]


def _of_torchvision(name: str, names: set[str]) -> str:
    """timm's name of a parameter of torchvision's EfficientNet."""
    last = max((int(n.split(".")[1]) for n in names if n.startswith("features.")), default=0)
    if match := re.fullmatch(r"features\.(\d+)\.([01])\.(\w+)", name):
        ends = {0: ("conv_stem", "bn1"), last: ("conv_head", "bn2")}
        return f"{ends.get(int(match[1]), ('?', '?'))[int(match[2])]}.{match[3]}"
    if match := re.fullmatch(r"features\.(\d+)\.(\d+)\.block\.(\d)\.(0|1|fc1|fc2)\.(\w+)", name):
        stage, number, part, kind, tensor = match.groups()
        start = f"features.{stage}.{number}.block."
        convolutions = [k for k in "0123" if f"{start}{k}.0.weight" in names]
        if kind in ("fc1", "fc2"):  # squeeze and excitation
            layer = f"se.conv_{'reduce' if kind == 'fc1' else 'expand'}"
        else:
            layer = _layer(convolutions.index(part), len(convolutions), kind == "1")
        return f"blocks.{int(stage) - 1}.{number}.{layer}.{tensor}"
    return name.replace("classifier.1.", "classifier.")


def _of_first_port(name: str, names: set[str]) -> str:
    """timm's name of a parameter of EfficientNet-Lite0 as the first ports to torch call it."""
    ends = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2"}
    places = [f"{s}.{i}" for s, stage in enumerate(STAGES) for i in range(stage[0])]
    match = re.fullmatch(
        r"_blocks\.(\d+)\._(bn[012]|expand_conv|depthwise_conv|project_conv)(.+)", name
    )
    if not match or int(match[1]) >= len(places):
        start, _, rest = name.partition(".")
        return f"{({**ends, '_fc': 'classifier'}).get(start, start)}.{rest}"
    count = 3 if f"_blocks.{match[1]}._expand_conv.weight" in names else 2
    norm = match[2].startswith("bn")
    order = ["bn0", "bn1", "bn2"] if norm else ["expand_conv", "depthwise_conv", "project_conv"]
    layer = _layer(order.index(match[2]) - (3 - count), count, norm)
    return f"blocks.{places[int(match[1])]}.{layer}{match[3]}"


def _layer(place: int, count: int, norm: bool) -> str:
    """What timm calls the convolutions of a block, or their normalisations, in their order."""
    names = ("conv_pw", "conv_dw", "conv_pwl") if count == 3 else ("conv_dw", "conv_pw")
    return f"bn{place + 1}" if norm else names[place]


def _of_deeplab(name: str, names: set[str]) -> str:
    """The lab's name of a parameter of DeepLab-v2 in its ports: one has torchvision's names and
    `layer5.conv2d_list`, the other counts layers from the stem and has `block1` and `aspp`.
    """
    if match := re.fullmatch(r"(?:layer5\.conv2d_list\.|aspp\.(?:stages\.)?c)(\d)\.(\w+)", name):
        return f"heads.{match[1]}.{match[2]}"
    if match := re.fullmatch(r"layer1\.conv1\.(conv|bn)\.(\w+)", name):
        return f"trunk.{match[1]}1.{match[2]}"
    match = re.fullmatch(r"layer(\d)\.block(\d+)\.(\w+)\.(conv|bn)\.(\w+)", name)
    if not match:
        return f"trunk.{name}"
    stage, block, layer, kind, tensor = match.groups()
    order = {"reduce": 1, "conv3x3": 2, "increase": 3}
    part = f"{kind}{order[layer]}" if layer in order else f"downsample.{int(kind == 'bn')}"
    return f"trunk.layer{int(stage) - 1}.{int(block) - 1}.{part}.{tensor}"


def head_of(network: nn.Module) -> set[str]:
    """The names of the parameters of the head: of layers that are called so, else of the last."""
    names = [name for name, _ in network.named_parameters()]
    last = names[-1].rpartition(".")[0] if names else ""
    return {n for n in names if HEAD.search(n)} or {n for n in names if n.startswith(f"{last}.")}


def _as_it_is(name: str, names: set[str]) -> str:
    """torchvision and timm give ResNet the same names, which are those of this package."""
    return name


FAMILIES: tuple[Callable[[str, set[str]], str], ...] = (
    *(_as_it_is, _of_torchvision, _of_first_port),
    _of_deeplab,
)


class FrozenBatchNorm(nn.modules.batchnorm._BatchNorm):
    """A batch normalisation whose statistics and parameters do not change in training: those of a
    small batch are too noisy to fine-tune with.
    """

    def train(self, mode: bool = True) -> "FrozenBatchNorm":
        return super().train(False)


def freeze_batch_norm(network: nn.Module) -> None:
    """Neither the running means nor the factors of any batch normalisation change any more. The
    layers stay what they are, so that the names of the weights do.
    """
    for layer in network.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            kind = type(layer)
            frozen = type(f"Frozen{kind.__name__}", (FrozenBatchNorm, kind), {})
            object.__setattr__(layer, "__class__", frozen)
            layer.requires_grad_(False).eval()
