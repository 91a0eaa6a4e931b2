"""`evalgrad losses`: the guide to the losses, by task."""

from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table

from evalgrad_lab.losses import KINDS, LOSSES, Kind
from evalgrad_lab.options import Options, option


@dataclass(frozen=True, kw_only=True)
class LossesOptions(Options):
    """What `evalgrad losses` takes."""

    task: Kind | None = option(None, help="only losses for this kind of task")


def main(options: LossesOptions) -> int:
    """Print one table per kind of task."""
    console = Console()
    for kind in KINDS if options.task is None else (options.task,):
        table = Table(title=kind, title_justify="left", box=box.SIMPLE_HEAD)
        for heading in ("loss", "metric", "when"):
            table.add_column(heading, no_wrap=heading == "loss")  # a name is there to be copied
        for name, loss in LOSSES.items():
            if kind in loss.kinds:
                table.add_row(name, loss.metric, loss.guidance)
        console.print(table)
    console.print(
        "Two names joined by + are a weighted sum: --loss cross_entropy+lovasz_softmax. Options:"
        " --loss-options, as JSON."
    )
    return 0
