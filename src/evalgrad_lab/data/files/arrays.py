"""Reader of `.npz` files: `inputs` and `target`, and for validation `val_inputs` and `val_target`;
`group` for rankings in lists, `classes` for the names of the classes. The target of a multilabel
task is (N, labels), 0 and 1.

Images are (N, H, W) or (N, H, W, channels), of 8 bits or numbers in [0, 1]; tables (N, columns).
"""

import math
import zipfile
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from evalgrad_lab.data.dataset import Examples, Found, Reading
from evalgrad_lab.data.files.folders import class_names
from evalgrad_lab.errors import UserError


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
    names = [str(name) for name in arrays.get("classes", ())]
    if how.task in ("ranking", "multilabel"):
        _check_binary(targets)
    names_of = _label_names if how.task == "multilabel" else class_names
    classes = names_of(path, targets, names, how)
    return Found(train, validation, test, classes=classes)


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
        _check_size(path)
        with np.load(path, allow_pickle=False) as file:  # a pickle may run any code
            return {key: file[key] for key in file.files}
    except (
        EOFError,
        MemoryError,
        zlib.error,
        OSError,
        ValueError,
        zipfile.BadZipFile,
    ) as error:
        raise UserError(
            f"{path} cannot be read as an .npz file of plain arrays ({error}). Write it with"
            " numpy.savez."
        ) from error


def _check_size(path: Path) -> None:
    """A small file may unpack to arrays that no memory holds: what it says of itself is asked
    before.
    """
    with zipfile.ZipFile(path) as parts:
        unpacked = sum(part.file_size for part in parts.infolist())
    free = free_memory()
    if unpacked > free:
        raise UserError(
            f"{path} unpacks to {unpacked / 1e9:.1f} GB, but only {free / 1e9:.1f} GB of memory"
            " are free. Split it, or give images as a folder."
        )


def free_memory() -> float:
    """Bytes that a process may ask for; infinite where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return math.inf
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return 1024.0 * int(found[0]) if found else math.inf


def _split(path: Path, arrays: dict[str, np.ndarray], prefix: str, task: str) -> Examples:
    inputs = _inputs(path, f"{prefix}inputs", arrays)
    target = _array(path, f"{prefix}target", arrays)
    if not np.issubdtype(target.dtype, np.integer) and target.dtype != bool:
        raise UserError(
            f"{path}: {prefix}target must hold integers; got {target.dtype}. Save class indices."
        )
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
    lists = None
    if "group" in arrays:
        group = _array(path, f"{prefix}group", arrays)
        if group.shape != (len(inputs),):
            raise UserError(
                f"{path}: {prefix}group must have the shape {(len(inputs),)}, one list for each"
                f" item; got {group.shape}."
            )
        lists = np.unique(group, return_inverse=True)[1].tolist()
    targets = torch.from_numpy(target.astype(np.int64))
    return Examples(inputs, targets, [str(i) for i in range(len(inputs))], lists)


def _inputs(path: Path, key: str, arrays: dict[str, np.ndarray]) -> Tensor:
    values = _array(path, key, arrays)
    scale = 255 if values.dtype == np.uint8 else 1
    inputs = torch.from_numpy(values.astype(np.float32)) / scale
    if not len(inputs) or not inputs.isfinite().all():
        raise UserError(
            f"{path}: {key} must hold at least one example and only finite numbers. Remove or fill"
            " in missing values."
        )
    if inputs.ndim == 3:
        return inputs.unsqueeze(1)
    return inputs.permute(0, 3, 1, 2) if inputs.ndim == 4 else inputs


def _array(path: Path, key: str, arrays: dict[str, np.ndarray]) -> np.ndarray:
    if key not in arrays:
        raise UserError(
            f"{path} has no array {key!r}; got {sorted(arrays)}. Save it with numpy.savez(file,"
            " inputs=..., target=...)."
        )
    return arrays[key]
