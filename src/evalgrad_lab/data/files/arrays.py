"""Reader of `.npz` files: `inputs` and `target`, and for validation `val_inputs` and `val_target`;
`group` for rankings in lists, `classes` for the names of the classes. The target of a multilabel
task is (N, labels), 0 and 1.

Images are (N, H, W) or (N, H, W, channels), of 8 bits or numbers in [0, 1]; tables (N, columns).
"""

import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from evalgrad_lab.data.dataset import Examples, Found, Reading
from evalgrad_lab.data.files.folders import class_names
from evalgrad_lab.data.files.memory import check_memory
from evalgrad_lab.errors import UserError

SPLIT = "Split it, or give images as a folder."
# Of every number of the inputs: as float32, and once more in the parts of the data set.
EXPANDED = 8


def read_arrays(path: Path, how: Reading) -> Found:
    """The data set in an `.npz` file."""
    arrays = _load(path)
    train = _split(path, arrays, "", how.task)
    validation, test = (
        _split(path, arrays, prefix, how.task) if f"{prefix}inputs" in arrays else None
        for prefix in ("val_", "test_")
    )
    labels = [part.target for part in (train, validation, test) if part is not None]
    each = [(i, part[i]) for part in labels if part is not None for i in range(len(part))]
    targets = [(f"{path}, example {i}", target) for i, target in each]
    names = _names(path, arrays)
    if how.task in ("ranking", "multilabel"):
        _check_binary(targets)
    names_of = _label_names if how.task == "multilabel" else class_names
    classes = names_of(path, targets, names, how)
    return Found(train, validation, test, classes=classes)


def _names(path: Path, arrays: dict[str, np.ndarray]) -> list[str]:
    names = arrays.get("classes", np.array([]))
    if names.ndim != 1:
        raise UserError(f"{path}: classes must be a list of names; got the shape {names.shape}.")
    return [str(name) for name in names]


def _check_binary(targets: list[tuple[str, Tensor]]) -> None:
    for name, target in targets:
        if not ((target == 0) | (target == 1)).all():
            raise UserError(f"{name}: the target must be 0 or 1; got {target.tolist()}.")


def _label_names(
    path: Path, targets: list[tuple[str, Tensor]], names: list[str], how: Reading
) -> list[str]:
    """The names of the labels of a multilabel task."""
    count = len(targets[0][1])
    found = list(how.classes or names) or [str(c) for c in range(count)]
    if len(found) != count:
        raise UserError(f"{path} has {count} labels, but {len(found)} names are given: {found}.")
    return found


def read_array_inputs(path: Path) -> Examples:
    """The inputs alone, for predictions."""
    values = _inputs(path, "inputs", _load(path))
    return Examples(values, None, [str(i) for i in range(len(values))])


def _load(path: Path) -> dict[str, np.ndarray]:
    try:
        with zipfile.ZipFile(path) as parts:
            check_memory(path, sum(part.file_size for part in parts.infolist()), SPLIT)
        with np.load(path, allow_pickle=False) as file:  # a pickle may run any code
            arrays = {key: file[key] for key in file.files}
    except UserError:
        raise
    except Exception as error:  # zipfile, zlib and NumPy's parser of headers each have their own
        raise _unreadable(path, str(error)) from error
    for key, value in arrays.items():
        if not isinstance(value, np.ndarray):  # NumPy gives the bytes of what is no .npy
            raise _unreadable(path, f"{key!r} is not an array")
    return arrays


def _unreadable(path: Path, why: str) -> UserError:
    why = " ".join(why.split())  # one line
    return UserError(
        f"{path} cannot be read as an .npz file of plain arrays ({why}). Write it with numpy.savez."
    )


def _split(path: Path, arrays: dict[str, np.ndarray], prefix: str, task: str) -> Examples:
    target = _array(path, f"{prefix}target", arrays)
    if not np.issubdtype(target.dtype, np.integer) and target.dtype != bool:
        raise UserError(
            f"{path}: {prefix}target must hold integers; got {target.dtype}. Save class indices."
        )
    maps = target.shape[1:] if task == "segmentation" else None
    inputs = _inputs(path, f"{prefix}inputs", arrays, maps)
    expected: tuple[int, ...] = (len(inputs),)
    if task == "segmentation":
        expected = (len(inputs), *inputs.shape[2:])
    if task == "multilabel":
        labels = _array(path, "target", arrays).shape[1:] or (0,)
        expected = (len(inputs), max(labels[0], 2))
    if target.shape != expected:
        raise UserError(
            f"{path}: {prefix}target must have the shape {expected} for {task}; got {target.shape}."
        )
    targets = torch.from_numpy(target.astype(np.int64))
    lists = _lists(path, f"{prefix}group", arrays, len(inputs)) if "group" in arrays else None
    return Examples(inputs, targets, [str(i) for i in range(len(inputs))], lists)


def _lists(path: Path, key: str, arrays: dict[str, np.ndarray], count: int) -> list[int]:
    """The number of the list of each item."""
    group = _array(path, key, arrays)
    if group.shape != (count,):
        raise UserError(
            f"{path}: {key} must have the shape {(count,)}, one list for each item; got"
            f" {group.shape}."
        )
    numbers: list[int] = np.unique(group, return_inverse=True)[1].tolist()
    return numbers


def _inputs(
    path: Path, key: str, arrays: dict[str, np.ndarray], maps: tuple[int, ...] | None = None
) -> Tensor:
    """Images (N, channels, H, W) or rows of numbers; `maps` is the shape of a label map, where the
    target has them.
    """
    values = _array(path, key, arrays)
    if values.dtype.kind not in "biuf":
        must = f"{path}: {key} must hold integers or floats; got {values.dtype}."
        raise UserError(f"{must} Convert them with numpy's astype.")
    _check_shape(path, key, values.shape, maps)
    check_memory(path, EXPANDED * values.size, SPLIT)
    with np.errstate(over="ignore"):  # what float32 cannot hold is infinite, which is told below
        inputs = torch.from_numpy(values.astype(np.float32))
    if values.dtype == np.uint8:
        inputs /= 255  # in place: images are large
    if not inputs.numel() or not inputs.isfinite().all():
        raise UserError(
            f"{path}: {key} must hold at least one example and only finite numbers. Remove or fill"
            " in missing values."
        )
    if inputs.ndim == 3:
        return inputs.unsqueeze(1)
    return inputs.permute(0, 3, 1, 2) if inputs.ndim == 4 else inputs


def _check_shape(
    path: Path, key: str, shape: tuple[int, ...], maps: tuple[int, ...] | None
) -> None:
    if len(shape) not in ((2, 3, 4) if maps is None else (3, 4)):
        tables = "" if maps is not None else ", or rows (N, columns)"
        task = "" if maps is None else " for segmentation"
        raise UserError(
            f"{path}: {key} must be images, (N, H, W) or (N, H, W, channels){tables}{task}; got"
            f" the shape {shape}."
        )
    if len(shape) == 4 and _channels_first(shape, maps):
        raise UserError(
            f"{path}: {key} must be images (N, H, W, channels), with the channels last; got the"
            f" shape {shape}. Save {key}.transpose(0, 2, 3, 1)."
        )


def _channels_first(shape: tuple[int, ...], maps: tuple[int, ...] | None) -> bool:
    """Whether images are as torch takes them: the label maps say so, or channels as there are in
    files; of one or three rows no network here could make anything.
    """
    if maps is not None:
        return maps == shape[2:] != shape[1:3]
    return shape[1] in (1, 3) and min(shape[2:]) > 4


def _array(path: Path, key: str, arrays: dict[str, np.ndarray]) -> np.ndarray:
    if key not in arrays:
        raise UserError(
            f"{path} has no array {key!r}; got {sorted(arrays)}. Save it with numpy.savez(file,"
            " inputs=..., target=...)."
        )
    return arrays[key]
