"""Saves and loads a trained model as plain data: the weights, and `model.json` to use them."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from evalgrad_lab import models
from evalgrad_lab.data.dataset import Dataset, Examples, Reading
from evalgrad_lab.data.files.read import fingerprints
from evalgrad_lab.decisions import Decision
from evalgrad_lab.errors import UserError
from evalgrad_lab.losses import KINDS
from evalgrad_lab.options import fits, in_words
from evalgrad_lab.store import read_json, sealed, unsealed, write_atomically
from evalgrad_lab.view_options import Views

FINISHED = (
    "Pass the --out folder of a finished `evalgrad train`. If it is one, remove its result.json and"
    " repeat the same `evalgrad train`, which writes the file again."
)


@dataclass(frozen=True)
class Description:
    """Description of the model and its data in plain types, the contents of `model.json`."""

    task: str
    metric: str
    kind: str  # of the loss, see `losses`
    loss: str
    model: str  # see `models`
    model_options: dict[str, Any]
    inputs: int  # channels of an image, or columns of a table
    outputs: int
    classes: list[str]
    columns: list[str]
    target: str
    group: str | None
    mean: list[float]
    std: list[float]
    bgr: bool  # whether the network takes blue before red
    views: dict[str, Any]  # how validation looked at images, see `view_options`
    ignore_index: int
    data_options: dict[str, Any]
    decision: Decision | None  # None: nothing decides

    @property
    def of_one_score(self) -> bool:
        """Whether one score decides for each item, pixel or label."""
        two = self.task == "segmentation" and len(self.classes) == 2
        return two or self.task in ("ranking", "multilabel")

    def reading(self) -> Reading:
        """How data for this model are read."""
        count, columns = len(self.classes), tuple(self.columns) or None
        how = (self.target, self.group, count, self.ignore_index, self.data_options)
        return Reading(self.task, *how, tuple(self.classes), columns)


class Normalise(nn.Module):
    """(x - mean) / std of every channel or column, in the opposite order for `bgr`; the numbers are
    those of the description.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: list[float], std: list[float], bgr: bool = False) -> None:
        super().__init__()
        self.bgr = bgr
        self.register_buffer("mean", torch.tensor(mean), persistent=False)
        self.register_buffer("std", torch.tensor(std), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        shape = (1, -1, *[1] * (x.ndim - 2))
        scaled = (x - self.mean.view(shape)) / self.std.view(shape)
        return scaled.flip(1) if self.bgr else scaled


def build(description: Description) -> nn.Sequential:
    """The network that the description names, with fresh weights behind its normalisation."""
    known = description
    network = models.build(known.model, known.inputs, known.outputs, known.model_options)
    return nn.Sequential(Normalise(known.mean, known.std, known.bgr), network)


def write(folder: Path, description: Description, network: nn.Module) -> None:
    """Both files; the description first, so that weights are never without one."""
    write_atomically(folder / "model.json", sealed(asdict(description)))
    state = network.state_dict()
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    data = save(weights, metadata={"sha256": check_sum(weights)})
    write_atomically(folder / "best.safetensors", data)


def check_sum(weights: dict[str, Tensor]) -> str:
    """Of names, types, shapes and numbers: one bit that flips on a disk would go unseen."""
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def write_parts(folder: Path, data: Dataset[Examples], files: Sequence[Path | None]) -> None:
    """`parts.json`: which examples were trained on, validated on and kept for the test, by name and
    fingerprint, and the files they are from.
    """
    # a layout, NAME:FOLDER, is no path that exists
    places = [f if f is None or not f.exists() else f.resolve() for f in files]
    parts: dict[str, Any] = {"data": [f and str(f) for f in places]}
    for name in ("train", "validation", "test"):
        part = getattr(data, name)
        parts[name] = list(zip(part.names, fingerprints(part), strict=True))
    write_atomically(folder / "parts.json", sealed(parts))


def read_parts(folder: Path) -> dict[str, Any]:
    """What `write_parts` wrote."""
    path = folder / "parts.json"
    parts = unsealed(path, read_json(path, FINISHED), FINISHED)
    right = fits(parts.get("data"), list[str | None]) and len(parts["data"]) == 3
    for name in ("train", "validation", "test"):
        pairs = parts.get(name, "")
        right = right and fits(pairs, list[list[str]]) and {len(pair) for pair in pairs} <= {2}
    if not right:
        raise UserError(f"{path} does not say which examples are in which part. {FINISHED}")
    return parts


def read(folder: Path, trusted: bool = False) -> tuple[Description, nn.Sequential]:
    """The trained network, ready to predict, and its description. A network that is not of the
    lab's own is code that runs when it is built, and has to be `trusted`.
    """
    description = read_description(folder)
    if description.model not in models.MODELS and not trusted:
        raise UserError(
            f"loading {folder} would run the code of its network, {description.model}. If you"
            " trust who made the folder, add --trust-model."
        )
    path = folder / "best.safetensors"
    weights = read_weights(path)
    if description.model in models.MODELS:
        with torch.device("meta"):  # no memory is taken for a network that the weights do not fit
            check_weights(path, weights, build(description))
    network = build(description)
    check_weights(path, weights, network)
    network.load_state_dict(weights)
    return description, network.eval()


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors, if they are the ones that were written."""
    try:
        with safe_open(path, framework="pt") as file:
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            expected = (file.metadata() or {}).get("sha256")
        if check_sum(weights) != expected:
            raise OSError("its checksum is wrong: it has been damaged or edited")
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path} cannot be read ({error}). {FINISHED}") from error
    return weights


def read_description(folder: Path) -> Description:
    """`model.json`, checked for its fields, their types and its checksum."""
    path = folder / "model.json"
    content, names = read_json(path, FINISHED), {field.name for field in fields(Description)}
    values = {name: value for name, value in content.items() if name != "check"}
    if set(values) != names:
        raise UserError(
            f"{path} must have the fields {', '.join(sorted(names))}. It is of another version, or"
            " no model description."
        )
    for name, kind in get_type_hints(Description).items():
        if name != "decision" and not fits(values[name], kind):
            raise UserError(
                f"{path}: {name} must be {in_words(kind)}; got {values[name]!r}. {FINISHED}"
            )
    try:
        decision = Decision.of(values["decision"])
    except (TypeError, ValueError) as error:
        raise UserError(f"{path}: {error} {FINISHED}") from error
    description = _checked(path, Description(**{**values, "decision": decision}))
    unsealed(path, content, FINISHED)
    return description


def _checked(path: Path, known: Description) -> Description:
    """The numbers of a description must be those of one model."""
    count, decision = len(known.classes), known.decision
    right = {
        "task and kind": known.task in KINDS and known.kind in KINDS,
        "inputs, mean and std": known.inputs == len(known.mean) == len(known.std) > 0,
        "outputs and classes": count > 0 and known.outputs in (1, count),
        "decision": decision is None or len(decision.numbers) in (0, 1, count),
        "views": _are_views(known.views),
    }
    if wrong := [names for names, fit in right.items() if not fit]:
        raise UserError(f"{path}: {wrong[0]} do not fit together. {FINISHED}")
    return known


def _are_views(views: dict[str, Any]) -> bool:
    try:
        return Views(**views).views() == views
    except (TypeError, UserError):
        return False


def check_weights(path: Path, weights: dict[str, Tensor], network: nn.Module) -> None:
    """Whether the weights fit the network; the first that does not is named."""
    expected = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            raise UserError(
                f"{path} is a checkpoint of another model: {name} is {found.get(name, 'missing')}"
                f" there and {expected.get(name, 'missing')} here. Pass the same --model,"
                " --model-options and data, or another --out."
            )
