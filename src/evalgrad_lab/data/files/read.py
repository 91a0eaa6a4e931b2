"""Chooses the reader for the data, and computes their digest and their normalisation."""

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from evalgrad_lab.data.dataset import Examples, Found, Reading
from evalgrad_lab.data.files import arrays, folders, tables
from evalgrad_lab.errors import UserError

BLOCK = 2**20  # numbers that are looked at together, in float64: images in memory are large


def read(path: Path, how: Reading) -> Found:
    """The data set at `path`, read according to its form and the task; `NAME:FOLDER` is a folder in
    the official layout of that data set.
    """
    name, colon, root = str(path).partition(":")
    if colon and not path.exists():
        from evalgrad_lab.data.layouts import LAYOUTS, read_layout

        if name in LAYOUTS:
            return read_layout(name, Path(root), how.task, how.data_options)
    if how.data_options:
        raise UserError(
            f"--data-options are for layouts, --data NAME:FOLDER; --data is {path}. Drop them."
        )
    if path.is_dir() and how.task == "segmentation":
        return folders.read_segmentation(path, how)
    if path.is_dir() and how.task == "classification":
        return folders.read_classification(path, how)
    if path.suffix == ".npz" and path.is_file():
        return arrays.read_arrays(path, how)
    if path.suffix == ".csv" and path.is_file() and how.task != "segmentation":
        return tables.read_table(path, how)
    forms = {
        "segmentation": "a folder or .npz",
        "classification": "a folder, .npz or .csv",
        "ranking": ".npz or .csv",
        "multilabel": ".npz or .csv",
    }
    raise UserError(f"--data must be {forms[how.task]} for {how.task}, and exist; got {path}.")


def read_parts(path: Path, how: Reading, validation: Path | None, test: Path | None) -> Found:
    """The data set at `path`, with validation and test data from files of their own."""
    found = read(path, how)
    like = replace(how, classes=tuple(found.classes), columns=tuple(found.columns) or None)
    for name, file in (("validation", validation), ("test", test)):
        if file is None:
            continue
        if getattr(found, name) is not None:
            raise UserError(
                f"--{name}-data: {path} already contains {name} data. Drop the option, or remove"
                " that data."
            )
        part: dict[str, Any] = {name: read(file, like).train}
        found = replace(found, **part)
    return found


def read_inputs(path: Path, columns: list[str]) -> Examples:
    """Examples without targets, for predictions."""
    if path.suffix in (".npz", ".csv") and not path.exists():
        raise UserError(f"--data must exist; there is no {path}.")
    if path.is_dir():
        return folders.read_images(path)
    if path.suffix == ".npz":
        return arrays.read_array_inputs(path)
    if path.suffix == ".csv" and columns:
        return tables.read_table_inputs(path, columns)
    without = "images or .npz, because the model was not trained on .csv"
    forms = "images, .npz or .csv" if columns else without
    raise UserError(f"--data must be a folder of {forms}; got {path}.")


def digest_of(paths: Iterable[Path | None]) -> str:
    """Of the names and contents of all files: changed data are never answered by an old run."""
    total = hashlib.sha256()
    for path in (path for path in paths if path is not None):
        total.update(b"/")
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            if file.is_file() and not file.name.startswith("."):
                name = file.relative_to(path).as_posix().encode()
                content = hashlib.sha256(file.read_bytes()).digest()
                total.update(len(name).to_bytes(4, "big") + name + content)
    return total.hexdigest()[:32]


class Look(NamedTuple):
    """What one pass over the inputs says: mean and standard deviation of every channel or column,
    and whether all have the same shape.
    """

    mean: list[float]
    std: list[float]
    alike: bool


def look_at(path: Path, examples: Examples, channels: int | None = None) -> Look:
    """Read every input once: a broken file or other channels raise before the training."""
    inputs, known = examples.inputs, examples.known
    if known is not None:
        return Look(known.mean, known.std, known.same_size)
    parts = (inputs[i][None] for i in range(len(inputs)))
    if isinstance(inputs, Tensor) and len(inputs):
        parts = iter(inputs.split(max(BLOCK // inputs[0].numel(), 1)))
    count, total, square = 0, torch.zeros(()), torch.zeros(())
    shapes = set()
    for i, values in enumerate(parts):
        if channels is not None and values.shape[1] != channels:
            raise UserError(
                f"{path}, {examples.names[i]}: the model takes {channels} channels or columns; got"
                f" {values.shape[1]}."
            )
        shapes.add(values.shape[1:])
        flat = values.double().transpose(0, 1).flatten(1)
        count, total, square = count + flat.shape[1], total + flat.sum(1), square + (flat**2).sum(1)
    mean = total / max(count, 1)
    std = (square / max(count, 1) - mean**2).clamp(min=0).sqrt()
    # a constant column says nothing; leave it
    std = torch.where(std > 1e-6 * (1 + mean.abs()), std, 1.0)
    return Look(mean.flatten().tolist(), std.flatten().tolist(), len(shapes) <= 1)


def fingerprints(examples: Examples) -> list[str]:
    """What each input is known by, whatever its file; in a layout, which is not read, its name."""
    if examples.known is not None:
        return list(examples.names)
    return [_fingerprint(examples.inputs[i]) for i in range(len(examples))]


def _fingerprint(values: Tensor) -> str:
    content = str(tuple(values.shape)).encode() + values.contiguous().numpy().tobytes()
    return hashlib.blake2b(content, digest_size=8).hexdigest()
