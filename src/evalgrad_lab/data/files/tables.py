"""Reader of CSV tables: a header, one target column, an optional column that says which list a row
belongs to, the rest numbers.
"""

import csv
from pathlib import Path

import torch
from torch import Tensor

from evalgrad_lab.data.dataset import Column, Examples, Found
from evalgrad_lab.errors import UserError


def read_table(path: Path, task: str, target: str, group: str | None) -> Found:
    """The data set in a CSV file. Classes are named by what the target column holds; rankings need
    0 and 1.
    """
    header, rows = _rows(path)
    for column, option in ((target, "--target"), (group, "--group")):
        if column is not None and column not in header:
            raise UserError(
                f"{path} has no column {column!r}; it has {', '.join(header)}. Name the right one"
                f" with {option}."
            )
    columns = tuple(name for name in header if name not in (target, group))
    labels = [row[header.index(target)] for row in rows]
    classes = ["0", "1"] if task == "ranking" else sorted(set(labels), key=_number_or_word)
    for line, label in enumerate(labels, start=2):
        if label not in classes:
            raise UserError(
                f"{path}, line {line}: {target} must be 0 or 1 for a ranking; got {label!r}."
            )
    targets = Column([torch.tensor(classes.index(label)) for label in labels])
    lists = None if group is None else _numbered([row[header.index(group)] for row in rows])
    examples = Examples(
        _inputs(path, header, rows, columns), targets, [str(i) for i in range(len(rows))], lists
    )
    return Found(examples, classes=classes, columns=list(columns))


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
