"""The papers' full settings, one JSON file each, for a machine that has the data and the GPU.

JSON because Python 3.10 reads no TOML. `python -m reproductions --config NAME --data PATH` trains
one; `--dry-run` tries a single step.
"""

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from evalgrad_lab.errors import UserError

HOME = Path(__file__).parent


@dataclass(frozen=True)
class Config:
    """A full setting. `data`: layout, splits and preparation; `training`: length, batch, optimiser
    and schedule.
    """

    title: str
    source: str  # table, figure or section of the paper
    notes: str  # what must be given by hand, and where the setting departs from the paper
    data: dict[str, Any]
    model: dict[str, Any]
    loss: dict[str, Any]
    training: dict[str, Any]
    metric: str


def names() -> list[str]:
    """The settings that come with the lab."""
    return sorted(path.stem for path in HOME.glob("*.json"))


def read(name: str) -> Config:
    """A setting by the name of a file here, or by the path of one's own."""
    path = HOME / f"{name}.json" if name in names() else Path(name)
    if not path.exists():
        raise UserError(f"--config: {name} is neither a file nor one of {', '.join(names())}.")
    try:
        content = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise UserError(f"{path} is not JSON: {error}. Repair the file.") from error
    expected = {field.name for field in fields(Config)}
    if not isinstance(content, dict) or set(content) != expected:
        keys = sorted(content) if isinstance(content, dict) else type(content).__name__
        raise UserError(
            f"{path} must have the keys {', '.join(sorted(expected))}; got {keys}. See the files in"
            f" {HOME}."
        )
    return Config(**content)
