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
import re
import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from evalgrad_lab.errors import UserError


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` so that a reader sees the old file or the new one, never half of it. What keeps
    it from being written, such as a full disk, raises a UserError.
    """
    # not mkstemp, whose files only their owner can read
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file() and not path.is_dir():
            raise OSError("it is a device or a pipe")  # root would replace /dev/null by a file
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written ({error.strerror or error}). Existing files are unchanged;"
            " free disk space or grant access, then run the same command again."
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def remove_halves(folder: Path) -> None:
    """Remove what `write_atomically` left where it was killed: nobody else may write there."""
    for path in folder.glob(".*"):
        if re.fullmatch(r"\..+\.[0-9a-f]{32}", path.name):
            path.unlink()


def read_json(path: Path, repair: str) -> dict[str, Any]:
    """The JSON object in a file; raises with the repair if it is something else."""
    if not path.exists():
        raise UserError(f"{path} is missing. {repair}")
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as JSON ({error}). {repair}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} must hold a JSON object. {repair}")
    return content


def sealed(content: Mapping[str, Any]) -> bytes:
    """A JSON object with a checksum of its contents in the field `check`."""
    fields = {name: value for name, value in content.items() if name != "check"}
    return json.dumps({**fields, "check": _check_sum(fields)}, indent=1).encode()


def unsealed(path: Path, content: Mapping[str, Any], repair: str) -> dict[str, Any]:
    """The contents of a file that `sealed` made, without the checksum, which must be right."""
    fields = {name: value for name, value in content.items() if name != "check"}
    if content.get("check") != _check_sum(fields):
        raise UserError(
            f"{path} has a wrong checksum: it has been damaged or edited, or is of another version."
            f" {repair}"
        )
    return fields


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
        """The result of the run; None if it is not there. A file that was damaged or edited counts
        as none, which is said: the run is done again.
        """
        path = self.path(description)
        if not path.exists():
            return None
        try:
            record = json.loads(path.read_bytes())
            if record["check"] == _check_sum(record["description"], record["result"]):
                return record["result"]
        except (KeyError, TypeError, ValueError):
            pass
        print(f"{path} has been damaged or edited; its run is repeated.", file=sys.stderr)
        return None

    def save(self, description: dict[str, Any], result: Any) -> None:
        record = {"description": description, "result": result}
        record["check"] = _check_sum(description, result)
        write_atomically(
            self.path(description), json.dumps(record, sort_keys=True, indent=1).encode()
        )


def _check_sum(*contents: Any) -> str:
    """By which a record that is not as it was written is known."""
    plain = json.loads(json.dumps(contents))  # as it will be read: keys are texts
    content = json.dumps(plain, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()
