"""Locks a folder, so that only one run uses it at a time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from evalgrad_lab.errors import UserError, refuse_import_by_worker
from evalgrad_lab.store import remove_halves

# Set for every process that is started to train beside the first one, which alone writes.
RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID")


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Within, no other process can hold the folder: one that tries is refused. The system gives it
    free when the process ends, however it ends. A folder that is still empty then is removed.
    """
    refuse_import_by_worker()
    if any(os.environ.get(name, "0") != "0" for name in RANKS):
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise UserError(
            f"--out {folder} cannot be used ({error.strerror}). Choose a folder that can be"
            " written."
        ) from error
    try:
        _lock(descriptor, folder)
        remove_halves(folder)
        yield
    finally:
        os.close(descriptor)
        with suppress(OSError):
            folder.rmdir()


def _lock(descriptor: int, folder: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows has no such locks
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise UserError(
            f"another process is using {folder}. Wait for it, or choose another --out."
        ) from error
    except OSError:  # a file system without locks
        return
