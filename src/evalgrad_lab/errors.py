"""Errors that the user can repair, reported in one sentence without a traceback."""

from multiprocessing import current_process

GUARD = (
    'no other process could start. In a script, call it under `if __name__ == "__main__":`,'
    " because every process imports the script; jobs=1 starts none."
)


class UserError(Exception):
    """The message names the file or option and how to repair it; the command exits with code 2."""


def refuse_import_by_worker() -> None:
    """End a worker that begins the work of its parent again, because it imports a script without a
    guard. Its parent says why, with `GUARD`: here it would be in a traceback of every worker.
    """
    if getattr(current_process(), "_inheriting", False):  # as Python asks itself
        raise SystemExit(1)
