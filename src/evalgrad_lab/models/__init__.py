"""The networks by name, one file each, small enough to read; `package.module:factory` names any
other. A factory is called as ``factory(inputs, outputs=..., **options)``: channels or columns in,
scores out.
"""

import hashlib
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from evalgrad_lab.errors import UserError
from evalgrad_lab.models.alexnet import alexnet
from evalgrad_lab.models.brain_net import BrainNet
from evalgrad_lab.models.densenet import densenet
from evalgrad_lab.models.enet import ENet
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
}


def build(name: str, inputs: int, outputs: int, options: dict[str, Any]) -> nn.Module:
    """The network of that name with fresh weights."""
    try:
        return find(name)(inputs, outputs=outputs, **options)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{name} must take (inputs, outputs=...) and the --model-options {options}: {error}"
        ) from error


def find(name: str) -> Factory:
    """A network of the table, or what `package.module:factory` names; modules of the current
    folder are found too.
    """
    if name in MODELS:
        return MODELS[name]
    module, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        factory: Factory = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(
            f"--model must be {', '.join(MODELS)} or package.module:factory; {name!r} cannot be"
            f" imported ({error})."
        ) from error
    return factory


def source_digest(name: str) -> str:
    """Of the file that a factory of the user's is in; "" for a network of the table."""
    if name in MODELS:
        return ""
    source = inspect.getsourcefile(find(name))
    return hashlib.sha256(Path(source).read_bytes()).hexdigest()[:16] if source else ""
