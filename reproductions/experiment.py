"""What an experiment is: plain data, a function that runs it and one that judges the numbers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from evalgrad_lab.runs import Runs
from reproductions.claims import COLUMNS, Claim
from reproductions.sizes import Size

if TYPE_CHECKING:
    from reproductions.data_sets import DataSet

WITH_CAMVID = " --camvid FOLDER"  # the option of experiments that need it


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
    # how the claims begin that stand for it; None: the first does, (): it tests none of the paper's
    headlines: Sequence[str] | None = None
    full: bool = False  # whether it has this size, too

    @property
    def paper(self) -> str:
        return self.name.partition("/")[0]

    def claims(self, outcome: Outcome) -> Table:
        """The verdicts, a row for each claim."""
        return Table("", COLUMNS, [claim.cells() for claim in self.judge(outcome.numbers)])


def elsewhere(experiment: Experiment, data: "DataSet") -> Experiment:
    """The same experiment on other data, which its `run` takes as `data`."""
    run: Any = experiment.run
    return replace(
        experiment,
        name=f"{experiment.name}-{data.name.replace(' ', '-')}",
        title=f"{experiment.title}, {data.title}",
        source=f"{experiment.source}, {data.title}",
        run=partial(run, data=data),
        options=WITH_CAMVID,
    )


@dataclass(frozen=True)
class Paper:
    """A paper and its experiments in the order of its page."""

    name: str
    title: str
    citation: str
    introduction: str  # what stands at the head of its page
    experiments: Sequence[Experiment]
