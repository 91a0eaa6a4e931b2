"""Which reader reads what: folders of images, `.npz` and `.csv`; and the numbers that normalise
what was read.
"""

from pathlib import Path

import torch

from evalgrad_lab.data.examples import Column, Examples, Source
from evalgrad_lab.data.files import arrays, folders, tables
from evalgrad_lab.errors import UserError
from evalgrad_lab.training.saved import Description


def read_source(
    path: Path,
    task: str,
    target: str,
    group: str | None,
    num_classes: int | None,
    ignore_index: int,
) -> Source:
    """The data set at `path`, read according to its form and the task."""
    if path.is_dir() and task == "segmentation":
        return folders.read_segmentation(path, num_classes, ignore_index)
    if path.is_dir() and task == "classification":
        return folders.read_classification(path)
    if path.suffix == ".npz" and path.is_file():
        return arrays.read_arrays(path, task, num_classes, ignore_index)
    if path.suffix == ".csv" and path.is_file() and task != "segmentation":
        return tables.read_table(path, task, target, group)
    forms = {
        "segmentation": "a folder or .npz",
        "classification": "a folder, .npz or .csv",
        "ranking": ".npz or .csv",
    }
    raise UserError(f"--data must be {forms[task]} for {task}, and exist; got {path}.")


def read_like(path: Path, description: Description) -> Examples:
    """Examples with targets, for a model that exists: its classes and columns must be those of the
    data. `val/` is preferred.
    """
    known = description
    source = read_source(
        path, known.task, known.target, known.group, len(known.classes), known.ignore_index
    )
    if known.task != "segmentation" and not set(source.classes) <= set(known.classes):
        raise UserError(
            f"{path} has the classes {source.classes}, and the model knows {known.classes}. Use"
            " data with its classes."
        )
    if list(source.columns) != known.columns:
        raise UserError(
            f"{path} has the columns {source.columns}, and the model was trained on"
            f" {known.columns}."
        )
    examples = source.validation or source.train
    if (
        source.classes != known.classes
        and known.task == "classification"
        and examples.targets is not None
    ):
        place = [torch.tensor(known.classes.index(name)) for name in source.classes]
        targets = Column([place[int(examples.targets[i])] for i in range(len(examples))])
        examples = Examples(examples.inputs, targets, examples.names, examples.lists)
    return examples


def read_inputs(path: Path, description: Description) -> Examples:
    """Examples without targets, for predictions."""
    if path.is_dir():
        examples = folders.read_images(path)
    elif path.suffix == ".npz":
        examples = arrays.read_array_inputs(path)
    elif path.suffix == ".csv":
        examples = tables.read_table_inputs(path, description.columns)
    else:
        raise UserError(f"--data must be a folder of images, .npz or .csv; got {path}.")
    return examples


def check_inputs(path: str, examples: Examples, channels: int) -> bool:
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
