"""`python -m reproductions`: run the papers' experiments, show the results, write the pages."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

import reproductions
from evalgrad_lab.cli import guarded
from evalgrad_lab.data.fetched import NotFetchedError
from evalgrad_lab.errors import UserError
from evalgrad_lab.runs import Runs
from evalgrad_lab.store import Store
from reproductions import pages
from reproductions.data_sets import CAMVID
from reproductions.experiment import Experiment, Outcome, Table
from reproductions.sizes import Size, SkippedError

PROG = "python -m reproductions"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog=PROG, description="Run the papers' experiments.")
    add_arguments(parser)
    return guarded(PROG, lambda: run(parser.parse_args(arguments)))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="an experiment, a paper, or `all`")
    parser.add_argument("--list", action="store_true", help="list the experiments and exit")
    group = parser.add_mutually_exclusive_group()
    sizes = {
        "full": "on the larger data that `make data` fetches, where an experiment has a use for it",
        "tiny": "takes seconds; checks that it runs, the results mean nothing",
    }
    for size, text in sizes.items():
        group.add_argument(f"--{size}", dest="size", action="store_const", const=size, help=text)
    out, jobs = Path("runs/reproduce"), os.cpu_count() or 1
    finished = "finished runs and pages (default %(default)s)"
    parser.add_argument("--out", type=Path, default=out, help=finished)
    parser.add_argument("--docs", type=Path, help="write the pages here and not under --out")
    roads = "folder of CamVid, with train/ and val/, for the experiments that need it"
    parser.add_argument("--camvid", type=Path, help=roads)
    parser.add_argument("--jobs", type=int, default=jobs, help="runs at a time (one per core)")


def run(arguments: argparse.Namespace) -> int:
    """Run what was asked for; finished runs of an earlier run are reused."""
    console = Console()
    if arguments.list:
        console.print(_listing())
        return 0
    if not arguments.names:
        raise UserError(
            "name an experiment, a paper, or `all`. `python -m reproductions --list` lists them."
        )
    if arguments.camvid is not None:
        os.environ[CAMVID] = str(arguments.camvid)
    size: Size = arguments.size or "default"
    experiments = reproductions.find(arguments.names)
    folder = arguments.docs or arguments.out / "pages"
    sections: dict[tuple[str, Size], str] = {}
    skipped: dict[str, str] = {}
    with Runs(Store(arguments.out / "runs"), arguments.jobs) as runs:
        for experiment in experiments:
            if size == "full" and not experiment.full:
                console.print(f"\n[bold]{experiment.name}[/]  has no larger size than the default.")
                continue
            runs.spent.clear()
            try:
                outcome = experiment.run(size, runs)
            except (SkippedError, NotFetchedError) as reason:
                skipped[experiment.name] = str(reason)
                console.print(f"\n[bold]{experiment.name}[/]  skipped: {escape(str(reason))}")
            else:
                _show(console, experiment, outcome)
                text = pages.section(experiment, size, outcome, runs.seconds, folder)
                sections[experiment.name, size] = text
            # After every experiment, so that an interrupted command has written what it showed.
            (paper,) = reproductions.papers([experiment.paper])
            path = pages.write_page(paper, sections, skipped, folder)
            console.print(f"written to {path}")
    pages.write_summary(reproductions.papers(), folder)
    return 0


def _show(console: Console, experiment: Experiment, outcome: Outcome) -> None:
    console.print(
        f"\n[bold]{experiment.name}[/]  {escape(experiment.title)} ({escape(experiment.source)})"
    )
    for table in outcome.tables:
        console.print(_rich(table))
    for caption in outcome.figures:
        console.print(f"figure: {escape(caption)}")
    console.print(_rich(experiment.claims(outcome)))


def _rich(table: Table) -> RichTable:
    columns, title = map(escape, table.columns), escape(table.title)
    rich = RichTable(*columns, title=title, title_justify="left")
    for row in table.cells():
        rich.add_row(*[escape(cell) for cell in row])
    return rich


def _listing() -> RichTable:
    table = RichTable("experiment", "title", "in the paper")
    for paper in reproductions.papers():
        for experiment in paper.experiments:
            table.add_row(experiment.name, escape(experiment.title), escape(experiment.source))
    return table


if __name__ == "__main__":
    sys.exit(main())
