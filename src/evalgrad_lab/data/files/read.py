"""Which reader reads what: folders of images, `.npz` and `.csv`; and the numbers that normalise
what was read.
"""

from dataclasses import dataclass
from pathlib import Path

import torch

from evalgrad_lab.data.dataset import Column, Examples, Found
from evalgrad_lab.data.files import arrays, folders, tables
from evalgrad_lab.errors import UserError


@dataclass(frozen=True)
class Reading:
    """How files are read: the task, the columns of a table, the labels."""

    task: str
    target: str = "target"
    group: str | None = None
    num_classes: int | None = None
    ignore_index: int = 255


def read(path: Path, how: Reading) -> Found:
    """The data set at `path`, read according to its form and the task."""
    if path.is_dir() and how.task == "segmentation":
        return folders.read_segmentation(path, how.num_classes, how.ignore_index)
    if path.is_dir() and how.task == "classification":
        return folders.read_classification(path)
    if path.suffix == ".npz" and path.is_file():
        return arrays.read_arrays(path, how.task, how.num_classes, how.ignore_index)
    if path.suffix == ".csv" and path.is_file() and how.task != "segmentation":
        return tables.read_table(path, how.task, how.target, how.group)
    forms = {
        "segmentation": "a folder or .npz",
        "classification": "a folder, .npz or .csv",
        "ranking": ".npz or .csv",
    }
    raise UserError(f"--data must be {forms[how.task]} for {how.task}, and exist; got {path}.")


def read_like(path: Path, how: Reading, classes: list[str], columns: list[str]) -> Found:
    """Data for a model that exists: its classes and columns must be those of the data."""
    found = read(path, how)
    if how.task != "segmentation" and not set(found.classes) <= set(classes):
        raise UserError(
            f"{path} has the classes {found.classes}, and the model knows {classes}. Use data with"
            " its classes."
        )
    if found.columns != columns:
        raise UserError(
            f"{path} has the columns {found.columns}, and the model was trained on {columns}."
        )
    if found.classes == classes or how.task != "classification":
        return found
    place = [torch.tensor(classes.index(name)) for name in found.classes]
    others = (part and _renumbered(part, place) for part in (found.validation, found.test))
    return Found(_renumbered(found.train, place), *others, classes=classes, columns=columns)


def _renumbered(part: Examples, place: list[torch.Tensor]) -> Examples:
    target = Column([place[int(label)] for label in part.labels()])
    return Examples(part.inputs, target, part.names, part.lists)


def read_inputs(path: Path, columns: list[str]) -> Examples:
    """Examples without targets, for predictions."""
    if path.is_dir():
        return folders.read_images(path)
    if path.suffix == ".npz":
        return arrays.read_array_inputs(path)
    if path.suffix == ".csv":
        return tables.read_table_inputs(path, columns)
    raise UserError(f"--data must be a folder of images, .npz or .csv; got {path}.")


def check_inputs(path: Path, examples: Examples, channels: int) -> bool:
    """Whether all inputs have the same shape. A broken file or other channels are told, before
    anything is written.
    """
    shapes = set()
    for i, name in enumerate(examples.names):
        shape = tuple(examples.inputs[i].shape)
        if shape[0] != channels:
            raise UserError(
                f"{path}, {name}: the model takes {channels} channels or columns; got {shape[0]}."
            )
        shapes.add(shape)
    return len(shapes) == 1


def statistics(examples: Examples) -> tuple[list[float], list[float], bool]:
    """Mean and standard deviation of every channel or column, and whether all inputs have the same
    shape.
    """
    count, total, square = 0, torch.zeros(()), torch.zeros(())
    shapes = set()
    for i in range(len(examples)):
        values = examples.inputs[i].double()
        shapes.add(tuple(values.shape))
        values = values.flatten(1) if values.ndim > 1 else values.unsqueeze(1)
        count, total, square = (
            count + values.shape[1],
            total + values.sum(1),
            square + (values**2).sum(1),
        )
    mean = total / count
    std = (square / count - mean**2).clamp(min=0).sqrt()
    # a constant column says nothing; leave it
    std = torch.where(std > 1e-6 * (1 + mean.abs()), std, 1.0)
    return [float(x) for x in mean], [float(x) for x in std], len(shapes) == 1
