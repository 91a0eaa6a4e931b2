"""Which samples have which classes: computed from a dataset, or read from a table of any kind."""

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from evalgrad._errors import describe, fail
from evalgrad._inputs import converted, with_values
from evalgrad._labels import class_labels
from evalgrad._options import CHECKS, flag, integer


def class_presence(
    dataset: Any,
    *,
    num_classes: int,
    ignore_index: int | None = None,
    target: Callable[[Any], Any] | None = None,
    progress: bool = True,
) -> Tensor:
    """Which classes each sample of a dataset contains: a bool table ``(samples, C)``.

    Args:
        dataset: anything with a length and items.
        num_classes: C.
        ignore_index: label to ignore.
        target: function that returns the labels of an item; None takes ``item[1]``.
        progress: show a progress bar: that of rich or tqdm if one is installed, otherwise a line of
            text.

    Example:
        >>> dataset = [("image", torch.tensor([0, 2])), ("image", torch.tensor([255]))]
        >>> class_presence(dataset, num_classes=3, ignore_index=255)
        tensor([[ True, False,  True],
                [False, False, False]])
    """
    CHECKS["num_classes"]("class_presence", "num_classes", num_classes)
    CHECKS["ignore_index"]("class_presence", "ignore_index", ignore_index)
    flag("class_presence", "progress", progress)
    _check_dataset(dataset, target)
    presence = torch.zeros(len(dataset), num_classes, dtype=torch.bool)
    rows: Iterable[int] = range(len(dataset))
    for row in _with_progress(rows, len(dataset)) if progress else rows:
        item = dataset[row]
        given = _second(item) if target is None else target(item)
        values = converted("class_presence", "target", given).flatten().unsqueeze(0)
        labels = class_labels(
            "class_presence", values, num_classes, ignore_index, more="pass num_classes={number}"
        )
        presence[row] = labels.counts[0] > 0
    return presence


def _check_dataset(dataset: Any, target: Any) -> None:
    items = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
    if not items or isinstance(dataset, (str, bytes, Mapping)):
        must, repair = "a dataset with a length and items", "Pass e.g. a list of (input, labels)."
        fail(TypeError, "class_presence", "dataset", must, describe(dataset), repair)
    if target is not None and not callable(target):
        must, repair = "a function or None", "It returns the labels of an item."
        fail(TypeError, "class_presence", "target", must, describe(target), repair)


def _second(item: Any) -> Any:
    """The labels of an item that is a pair."""
    try:
        return item[1]
    except (TypeError, LookupError):
        must, repair = "given for items other than pairs", "It returns the labels of an item."
        fail(TypeError, "class_presence", "target", must, f"the item {describe(item)}", repair)


def _with_progress(rows: Iterable[int], total: int) -> Iterable[int]:
    """A progress bar on stderr, by whatever is installed."""
    bar: Iterable[int] = _with_text(rows, total)
    with contextlib.suppress(ImportError):
        bar = importlib.import_module("tqdm").tqdm(rows, desc="Reading labels", total=total)
    with contextlib.suppress(ImportError):
        console = importlib.import_module("rich.console").Console(stderr=True)
        bar = importlib.import_module("rich.progress").track(
            rows, "Reading labels", total, console=console
        )
    return bar


def _with_text(rows: Iterable[int], total: int) -> Iterator[int]:
    for done, row in enumerate(rows, 1):
        yield row
        if done == total or done % max(total // 100, 1) == 0:
            end = "\n" if done == total else ""
            print(f"\rReading labels: {done} of {total}", end=end, file=sys.stderr, flush=True)


def members_of_classes(
    function: str, presence: Any, classes: Sequence[int] | None, names: Sequence[str] | None
) -> tuple[int, dict[int, list[int]]]:
    """Number of samples, and the samples of each class."""
    if len(getattr(presence, "shape", ())) != 2:
        must, repair = "a matrix (samples, classes)", "`class_presence` computes one."
        fail(ValueError, function, "presence", must, describe(presence), repair)
    samples, num_classes = presence.shape
    if names is not None:
        _check_names(function, names, num_classes)
    columns = _columns(function, classes, num_classes)
    row, column = _nonzero(function, presence)
    by_class = (column * samples + row).argsort()
    parts = row[by_class].split(column.bincount(minlength=num_classes).tolist())
    members: dict[int, list[int]] = {c: parts[c].tolist() for c in columns}
    for c, with_class in members.items():
        if not with_class:
            name = f"class {c}" + (f" ({names[c]!r})" if names is not None else "")
            must, got = "a table with a sample of every class", f"none for {name}"
            repair = "Leave it out with classes=[...], or add a sample that contains it."
            fail(ValueError, function, "presence", must, got, repair)
    return samples, members


def _check_names(function: str, names: Sequence[str], num_classes: int) -> None:
    listed = isinstance(names, Sequence) and not isinstance(names, str)
    if not listed or len(names) != num_classes:
        must, repair = f"a list of {num_classes} names", "Pass one for each column of the table."
        fail(TypeError, function, "class_names", must, describe(names), repair)


def _columns(function: str, classes: Sequence[int] | None, num_classes: int) -> Sequence[int]:
    """The classes to sample from, all of them for None."""
    columns = range(num_classes) if classes is None else classes
    if not isinstance(columns, Sequence) or isinstance(columns, str):
        must, repair = "a list of columns", "Pass e.g. classes=[0, 2], or None for all."
        fail(TypeError, function, "classes", must, describe(classes), repair)
    if not columns:
        repair = "Pass None to cycle over all of them."
        fail(ValueError, function, "classes", "at least one class", "none", repair)
    for c in columns:
        integer(0, num_classes - 1, repair="List columns of the table.")(function, "classes", c)
    return columns


def _nonzero(function: str, matrix: Any) -> tuple[Tensor, Tensor]:
    """Rows and columns of what is not zero."""
    if hasattr(matrix, "tocsr"):  # scipy's
        entries = matrix.tocsr().tocoo()  # adds up what is listed twice
        kept = entries.data != 0
        return torch.as_tensor(entries.row[kept]).long(), torch.as_tensor(entries.col[kept]).long()
    matrix = with_values(function, "presence", torch.as_tensor(matrix)).cpu()
    if matrix.layout == torch.strided:
        rows, columns = matrix.bool().nonzero().unbind(1)
    else:
        entries = matrix.to_sparse_coo().coalesce()
        rows, columns = entries.indices()[:, entries.values() != 0]
    return rows, columns
