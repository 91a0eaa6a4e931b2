"""What an experiment is: plain data, a function that runs it and one that judges the numbers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from matplotlib.figure import Figure

from evalgrad_lab.data.fetched import place
from evalgrad_lab.runs import Runs
from reproductions.claims import COLUMNS, Claim

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


@dataclass(frozen=True)
class Table:
    """Rows under columns; numbers of the paper stand in columns of their own."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]

    def cells(self) -> list[list[str]]:
        """The rows as text, floats with four significant digits."""

        def text(cell: object) -> str:
            return f"{cell:.4g}" if isinstance(cell, float) else str(cell)

        return [[text(cell) for cell in row] for row in self.rows]


@dataclass(frozen=True)
class Outcome:
    """What one run gives. `numbers` is plain data: all that the verdicts may look at."""

    numbers: Mapping[str, Any]
    setting: str  # data, network, budget and tuning of this size, in a sentence or two
    seeds: Sequence[int]
    tables: Sequence[Table] = ()
    figures: Mapping[str, Figure] = field(default_factory=dict)  # caption -> picture


@dataclass(frozen=True)
class Experiment:
    """One table or figure of a paper."""

    name: str  # paper/item, such as lovasz/figure-3b
    title: str
    source: str  # where the paper has it: tables, figures, section
    claim: str  # what the paper concludes from it
    run: Callable[[Size, Runs], Outcome]
    judge: Callable[[Mapping[str, Any]], Sequence[Claim]]
    options: str = ""  # without which the command cannot run it
    headlines: Sequence[str] = ()  # how the claims begin that stand for it; if none, the first
    full: bool = False  # whether it has this size, too

    @property
    def paper(self) -> str:
        return self.name.partition("/")[0]

    def claims(self, outcome: Outcome) -> Table:
        """The verdicts, a row for each claim."""
        return Table("", COLUMNS, [claim.cells() for claim in self.judge(outcome.numbers)])


@dataclass(frozen=True)
class Paper:
    """A paper and its experiments in the order of its page."""

    name: str
    title: str
    citation: str
    introduction: str  # what stands at the head of its page
    experiments: Sequence[Experiment]
