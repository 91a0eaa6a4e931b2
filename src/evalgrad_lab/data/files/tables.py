"""Reader of CSV tables: a header, one target column (several for a multilabel task), an optional
column that says which list a row belongs to, the rest numbers.
"""

import csv
from pathlib import Path

import torch
from torch import Tensor

from evalgrad_lab.data.dataset import Column, Examples, Found
from evalgrad_lab.errors import UserError


def read_table(path: Path, task: str, target: str, group: str | None) -> Found:
    """The data set in a CSV file. Classes are named by what the target column holds; rankings need
    0 and 1. The target of a multilabel task is several columns of 0 and 1, with commas between
    their names, which name the labels.
    """
    header, rows = _rows(path)
    targets = target.split(",") if task == "multilabel" else [target]
    for column, option in [*((name, "--target") for name in targets), (group, "--group")]:
        if column is not None and column not in header:
            raise UserError(
                f"{path} has no column {column!r}; it has {', '.join(header)}. Name the right one"
                f" with {option}."
            )
    if task == "multilabel" and len(targets) < 2:
        raise UserError(
            f"--target must name at least two columns for multilabel, such as a,b; got {target!r}."
            " With one column --task ranking is the same."
        )
    found = [[row[header.index(name)] for row in rows] for name in targets]
    values = sorted(set(found[0]), key=_number_or_word) if task == "classification" else ["0", "1"]
    labels = torch.tensor(
        [_numbers(path, *column, values) for column in zip(targets, found, strict=True)]
    ).T
    columns = tuple(name for name in header if name not in (*targets, group))
    examples = Examples(
        _inputs(path, header, rows, columns),
        Column(list(labels if task == "multilabel" else labels[:, 0])),
        [str(i) for i in range(len(rows))],
        None if group is None else _numbered([row[header.index(group)] for row in rows]),
    )
    classes = targets if task == "multilabel" else values
    return Found(examples, classes=classes, columns=list(columns))


def _numbers(path: Path, name: str, column: list[str], values: list[str]) -> list[int]:
    for line, value in enumerate(column, start=2):
        if value not in values:
            raise UserError(f"{path}, line {line}: {name} must be 0 or 1; got {value!r}.")
    return [values.index(value) for value in column]


def read_table_inputs(path: Path, columns: list[str]) -> Examples:
    """The columns that the model was trained on, for predictions."""
    header, rows = _rows(path)
    if missing := [name for name in columns if name not in header]:
        raise UserError(
            f"{path} lacks the columns {', '.join(missing)} that the model was trained on. Add"
            " them."
        )
    return Examples(
        _inputs(path, header, rows, tuple(columns)), None, [str(i) for i in range(len(rows))]
    )


def _rows(path: Path) -> tuple[list[str], list[list[str]]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header, *rows = [row for row in csv.reader(file) if row] or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(
            f"{path} cannot be read as a CSV table ({error}). Save it as UTF-8 text."
        ) from error
    if not rows:
        raise UserError(
            f"{path} has no rows below its header. Give it a header line and one line per item."
        )
    for line, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise UserError(
                f"{path}, line {line} has {len(row)} fields and the header {len(header)}. Make them"
                " equal."
            )
    return header, rows


def _inputs(
    path: Path, header: list[str], rows: list[list[str]], columns: tuple[str, ...]
) -> Column:
    places = [header.index(name) for name in columns]
    items: list[Tensor] = []
    for line, row in enumerate(rows, start=2):
        try:
            items.append(torch.tensor([float(row[place]) for place in places]))
        except ValueError as error:
            raise UserError(
                f"{path}, line {line}: all columns but the target must be numbers ({error}). Encode"
                " or drop it."
            ) from error
        if not items[-1].isfinite().all():
            raise UserError(
                f"{path}, line {line}: all numbers must be finite. Fill the gaps or drop the line."
            )
    return Column(items)


def _number_or_word(label: str) -> tuple[int, float, str]:
    """The order of class names: numbers by value, then words."""
    try:
        return 0, float(label), label
    except ValueError:
        return 1, 0.0, label


def _numbered(values: list[str]) -> list[int]:
    numbers = {value: i for i, value in enumerate(sorted(set(values)))}
    return [numbers[value] for value in values]
