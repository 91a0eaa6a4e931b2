"""Checkpoints of a training: written atomically, with checksums that are verified when they are
read.
"""

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from evalgrad_lab.errors import UserError
from evalgrad_lab.store import write_atomically

if TYPE_CHECKING:
    from evalgrad_lab.fit import Hook, Training


def write(path: Path, training: "Training", hooks: Sequence["Hook"]) -> None:
    """The state of a training and its hooks."""
    state = {**training.state_dict(), "hooks": [hook.state_dict() for hook in hooks]}
    buffer = io.BytesIO()
    torch.save({**state, "kind": _kind(training, hooks)}, buffer)
    write_atomically(path, buffer.getvalue())


def read(path: Path, repair: str) -> dict[str, Any]:
    """The state in a file; raises with the repair if it cannot be one or was damaged."""
    try:
        content = path.read_bytes()
        with zipfile.ZipFile(io.BytesIO(content)) as parts:
            if damaged := parts.testzip():  # torch.load does not look at the check sums
                raise UserError(f"{path} is damaged (in {damaged}). {repair}")
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        state["network"].items()
    except UserError:
        raise
    except Exception as error:  # torch.load raises whatever a foreign file makes it raise
        reason = type(error).__name__  # torch's own words are a page long
        raise UserError(f"{path} cannot be read as a checkpoint ({reason}). {repair}") from error
    return dict(state)


def resume(training: "Training", hooks: Sequence["Hook"], state: dict[str, Any]) -> None:
    """Bring a new training and its hooks to what a checkpoint of the same ones holds."""
    kind = _kind(training, hooks)
    try:
        if state.get("kind") != kind:
            raise ValueError(f"it has {state.get('kind')}, this run {kind}")
        training.load_state_dict(state)
        for hook, saved in zip(hooks, state["hooks"], strict=True):
            hook.load_state_dict(saved)
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"the checkpoint is of another kind of run: {reason}. Pass the options of that run, or"
            " --resume never to start over."
        ) from error


def _kind(training: "Training", hooks: Sequence["Hook"]) -> str:
    """The names of all that has a state: only between trainings of the same it may be handed on."""
    parts = (training.optimiser, *training.losses, *hooks)
    return ", ".join(type(part).__name__.removeprefix("Fabric") for part in parts)
