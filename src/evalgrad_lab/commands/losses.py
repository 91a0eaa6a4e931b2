"""`evalgrad losses`: the guide to the losses, by task."""

from argparse import ArgumentParser, Namespace

from rich import box
from rich.console import Console
from rich.table import Table

from evalgrad_lab.losses import KINDS, OBJECTIVES


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `evalgrad losses`."""
    parser.add_argument("--task", choices=KINDS, help="only the losses for this kind of task")


def run(options: Namespace) -> int:
    """Print one table per kind of task."""
    console = Console()
    for kind in KINDS if options.task is None else (options.task,):
        table = Table(title=kind, title_justify="left", box=box.SIMPLE_HEAD)
        for heading in ("loss", "metric", "when"):
            table.add_column(heading, no_wrap=heading == "loss")  # a name is there to be copied
        for name, objective in OBJECTIVES.items():
            if kind in objective.kinds:
                table.add_row(name, objective.metric, objective.guidance)
        console.print(table)
    console.print(
        "Two names joined by + are a weighted sum: --loss cross_entropy+lovasz_softmax. Options:"
        " --loss-options, as JSON."
    )
    return 0
