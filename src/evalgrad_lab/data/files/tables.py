"""Reader of CSV tables: a header, one target column (several for a multilabel task), an optional
column with the list of each row; all other columns are inputs, numbers or words. A column of words
is one-hot encoded, in columns called `column=word`.
"""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from evalgrad_lab.data.dataset import Examples, Found, Reading
from evalgrad_lab.errors import UserError

MOST_WORDS = 100  # different ones in a column; more are names or texts, which say nothing this way


def read_table(path: Path, how: Reading) -> Found:
    """The data set in a CSV file. Classes are named by what the target column holds; rankings need
    0 and 1. The target of a multilabel task is several such columns, with commas between their
    names, which name the labels.
    """
    header, rows = _rows(path)
    names = how.target.split(",") if how.task == "multilabel" else [how.target]
    for column, option in [*((name, "--target") for name in names), (how.group, "--group")]:
        if column is not None and column not in header:
            raise UserError(
                f"{path} has no column {column!r}; it has {', '.join(header)}. Name the right one"
                f" with {option}."
            )
    if how.task == "multilabel" and len(names) < 2:
        raise UserError(
            "--target must name at least two columns for multilabel, such as a,b; got"
            f" {how.target!r}. With one column --task ranking is the same."
        )
    found = [[row[header.index(name)] for row in rows] for name in names]
    values = [_classes(path, name, labels, how) for name, labels in zip(names, found, strict=True)]
    pairs = zip(values, found, strict=True)
    numbers = [[known.index(label) for label in labels] for known, labels in pairs]
    many = how.task == "multilabel"
    targets = torch.tensor(numbers).T if many else torch.tensor(numbers[0])
    classes = names if many else values[0]
    lists = None if how.group is None else _numbered([row[header.index(how.group)] for row in rows])
    columns = how.columns or _columns(path, header, rows, (*names, how.group))
    inputs = _inputs(path, header, rows, columns)
    examples = Examples(inputs, targets, [str(i) for i in range(len(rows))], lists)
    return Found(examples, classes=classes, columns=list(columns))


def read_table_inputs(path: Path, columns: Sequence[str]) -> Examples:
    """The columns that the model was trained on, for predictions."""
    header, rows = _rows(path)
    inputs = _inputs(path, header, rows, columns)
    return Examples(inputs, None, [str(i) for i in range(len(rows))])


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
                f"{path}, line {line} has {len(row)} fields, but the header has {len(header)}."
                " Make them equal."
            )
    return header, rows


def _classes(path: Path, column: str, labels: list[str], how: Reading) -> list[str]:
    """What a target column may hold."""
    binary = how.task in ("ranking", "multilabel")
    classes = list(how.classes or sorted(set(labels), key=_number_or_word))
    classes = ["0", "1"] if binary else classes
    for line, label in enumerate(labels, start=2):
        if label not in classes:
            known = "0 or 1" if binary else f"one of {classes}"
            raise UserError(f"{path}, line {line}: {column} must be {known}; got {label!r}.")
    return classes


def _columns(
    path: Path, header: list[str], rows: list[list[str]], others: Sequence[str | None]
) -> tuple[str, ...]:
    """The names of the inputs: a column of numbers has one, a column of words one for each."""
    names: list[str] = []
    for place, name in enumerate(header):
        if name in others:
            continue
        words = sorted({row[place] for row in rows})
        if any(_number(word) is not None for word in words):
            names.append(name)  # of numbers; a word among them raises when they are read
        elif len(words) <= MOST_WORDS:
            names += [f"{name}={word}" for word in words]
        else:
            raise UserError(
                f"{path}: the column {name} has {len(words)} different words, but a categorical"
                f" column may have at most {MOST_WORDS}. Drop the column, or encode it as numbers."
            )
    return tuple(names)


def _inputs(path: Path, header: list[str], rows: list[list[str]], columns: Sequence[str]) -> Tensor:
    readers = [_reader(path, header, name) for name in columns]
    values = torch.tensor([[r(line, row) for r in readers] for line, row in enumerate(rows, 2)])
    for line, finite in enumerate(values.isfinite().all(1).tolist(), start=2):
        if not finite:
            raise UserError(
                f"{path}, line {line}: all numbers must be finite. Fill in the missing value or"
                " drop the line."
            )
    return values


def _reader(path: Path, header: list[str], name: str) -> Callable[[int, list[str]], float]:
    """What reads an input from a row: a number, or whether the word is the one of its name. A word
    that the training data lack is none of them.
    """
    if name in header:
        place = header.index(name)

        def number(line: int, row: list[str]) -> float:
            found = _number(row[place])
            if found is None:
                raise UserError(
                    f"{path}, line {line}: the column {name} must hold numbers; got"
                    f" {row[place]!r}. Fill in the missing value, or drop the line or the column."
                )
            return found

        return number
    column, _, word = name.partition("=")
    if column not in header:
        raise UserError(f"{path} lacks the column {column} that the model was trained on. Add it.")
    place = header.index(column)
    return lambda line, row: float(row[place] == word)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _number_or_word(label: str) -> tuple[int, float, str]:
    """The order of class names: numbers by value, then words."""
    number = _number(label)
    return (1, 0.0, label) if number is None else (0, number, label)


def _numbered(values: list[str]) -> list[int]:
    numbers = {value: i for i, value in enumerate(sorted(set(values)))}
    return [numbers[value] for value in values]
