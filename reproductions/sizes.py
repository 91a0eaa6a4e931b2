"""The sizes of experiments, and why one cannot run. Trainings import this, and not what judges
them: a change in the verdicts voids no finished run.
"""

from collections.abc import Sequence
from typing import Any, Literal

from evalgrad_lab.data.fetched import place

# tiny: seconds, for tests; default: minutes, on embedded data; full: on what `make data` fetches,
# or with more classes. Some experiments have no default size, most have no full one.
Size = Literal["tiny", "default", "full"]


class SkippedError(Exception):
    """The experiment cannot run at this size on this machine; the message says what to do."""


def on_fetched_data(name: str, size: Size, *folders: str) -> None:
    """For an experiment that has no embedded data: skip its default size, and raise for a folder
    that `make data` has not fetched before anything runs.
    """
    if size == "default":
        raise SkippedError(
            f"it needs data that `make data` fetches ({', '.join(folders)}); `python -m"
            f" reproductions {name} --full` runs it."
        )
    for folder in folders:
        place(folder)


def by_size(names: str, **sizes: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """The settings of every size, as rows under the names of their columns.

    >>> by_size("images seeds", tiny=(8, [0]), default=(80, [0, 1]))["default"]
    {'images': 80, 'seeds': [0, 1]}
    """
    return {size: dict(zip(names.split(), row, strict=True)) for size, row in sizes.items()}
