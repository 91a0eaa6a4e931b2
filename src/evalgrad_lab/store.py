"""A content-addressed store of finished runs: a run is described by plain data, and the description
is its address.

An interrupted command loses only the runs in flight; a rerun finds the finished ones by their
description and reuses them.
"""

import csv
import hashlib
import io
import json
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evalgrad_lab.errors import UserError


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` so that a reader sees the old file or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # not mkstemp, whose files only their owner can read
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_json(path: Path, repair: str) -> dict[str, Any]:
    """The JSON object in a file; what it is instead is told, with the repair."""
    if not path.exists():
        raise UserError(f"{path} is missing. {repair}")
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as JSON ({error}). {repair}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} must hold a JSON object. {repair}")
    return content


def as_csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Rows as a table under the names of the first."""
    buffer = io.StringIO(newline="")
    writer = csv.DictWriter(buffer, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue().encode()


class Store:
    """Finished runs under `folder`, one JSON file each: `{"description": ..., "result": ...}`.

    >>> import tempfile
    >>> store = Store(Path(tempfile.mkdtemp()))
    >>> store.load({"task": "circles", "seed": 0}) is None
    True
    >>> store.save({"task": "circles", "seed": 0}, {"iou": 0.5})
    >>> store.load({"seed": 0, "task": "circles"})
    {'iou': 0.5}
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, description: dict[str, Any]) -> Path:
        canonical = json.dumps(description, sort_keys=True, allow_nan=False)
        return self.folder / f"{hashlib.sha256(canonical.encode()).hexdigest()[:32]}.json"

    def load(self, description: dict[str, Any]) -> Any | None:
        path = self.path(description)
        return json.loads(path.read_text())["result"] if path.exists() else None

    def save(self, description: dict[str, Any], result: Any) -> None:
        record = {"description": description, "result": result}
        write_atomically(
            self.path(description), json.dumps(record, sort_keys=True, indent=1).encode()
        )
