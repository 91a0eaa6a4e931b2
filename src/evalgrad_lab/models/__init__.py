"""The networks by name, one file each, small enough to read; `package.module:factory` names any
other, and so does a Hugging Face model folder. A factory is called as ``factory(inputs,
outputs=..., **options)``: channels or columns in, scores out.
"""

import hashlib
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from evalgrad_lab.data.fetched import EFFICIENTNET, NotFetchedError, place
from evalgrad_lab.errors import UserError
from evalgrad_lab.models.alexnet import alexnet
from evalgrad_lab.models.brain_net import BrainNet
from evalgrad_lab.models.densenet import densenet
from evalgrad_lab.models.efficientnet_lite import EfficientNetUNet
from evalgrad_lab.models.enet import ENet
from evalgrad_lab.models.hugging_face import HuggingFace, read_config
from evalgrad_lab.models.mlp import mlp
from evalgrad_lab.models.resnet import DeepLab, resnet18
from evalgrad_lab.models.segnet import SegNet
from evalgrad_lab.models.unet import UNet

Factory = Callable[..., nn.Module]


def _of_colours(factory: Factory) -> Factory:
    """A network that takes three channels and nothing else."""

    def build(inputs: int, **options: Any) -> nn.Module:
        if inputs != 3:
            raise ValueError(f"it takes 3 channels; the images have {inputs}.")
        return factory(**options)

    return build


MODELS: dict[str, Factory] = {
    "unet": UNet,
    "enet": ENet,
    "segnet": SegNet,
    "deeplab": _of_colours(DeepLab),
    "brain_net": BrainNet,
    "densenet": densenet,
    "resnet18": _of_colours(resnet18),
    "alexnet": _of_colours(alexnet),
    "mlp": mlp,
    "efficientnet_unet": EfficientNetUNet,
    "hugging_face": HuggingFace,
}


@dataclass(frozen=True)
class Choice:
    """What `--model` says: a name for `build` with its options, and the weights it starts from."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    weights: Path | None = None


def choose(model: str, task: str) -> Choice:
    """What `--model` names. Of a folder the configuration is taken in: it is not needed again."""
    if (Path(model) / "config.json").is_file():
        folder = Path(model)
        found = any(folder.glob("*.safetensors")) or any(folder.glob("*.bin"))
        options = {"config": read_config(folder), "task": task}
        return Choice("hugging_face", options, folder if found else None)
    if model == "efficientnet_unet":
        try:
            return Choice(model, weights=place(*EFFICIENTNET))
        except NotFetchedError:
            return Choice(model)
    return Choice(model)


def build(name: str, inputs: int, outputs: int, options: dict[str, Any]) -> nn.Module:
    """The network of that name with fresh weights."""
    try:
        return find(name)(inputs, outputs=outputs, **options)
    except (TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]  # torch lists all signatures below
        raise UserError(
            f"{name} must take (inputs, outputs=...) and the --model-options {options}: {reason}"
        ) from error


def find(name: str) -> Factory:
    """A network of the table, or `package.module:factory`, also of the current folder."""
    if name in MODELS:
        return MODELS[name]
    module, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        factory: Factory = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(
            f"--model must be {', '.join(MODELS)}, package.module:factory or a folder with"
            f" config.json; {name!r} cannot be imported ({error})."
        ) from error
    return factory


def source_digest(name: str) -> str:
    """Of the file that a factory of the user's is in; "" for a network of the table."""
    if name in MODELS:
        return ""
    source = inspect.getsourcefile(find(name))
    return hashlib.sha256(Path(source).read_bytes()).hexdigest()[:16] if source else ""
