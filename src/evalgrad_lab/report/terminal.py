"""The comparison in the terminal: one table per task, then a summary in words."""

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from evalgrad_lab.report import words
from evalgrad_lab.report.panels import CONFIDENCE, Panel, Row, grouped_by, panels
from evalgrad_lab.report.records import Comparison

COLOURS = {"win": "bold green", "tie": "dim", "loss": "bold red", "unknown": "yellow"}


def print_table(comparison: Comparison, console: Console | None = None) -> None:
    """A table for each task, a section for each budget, then the report's opening."""
    console = console or Console()
    found = panels(comparison["records"])
    for group in grouped_by(found, lambda panel: panel.task).values():
        console.print(_table(group))
        if both := words.shared(group):
            console.print(both, style="dim", highlight=False, markup=False)
        console.print()
    for sentence in words.opening(found):
        style = COLOURS[sentence.verdict] if sentence.verdict else "bold"
        console.print(escape(sentence.text), style=style, highlight=False)
    console.print(words.chance(found), style="dim", highlight=False)


def _table(group: list[Panel]) -> Table:
    first = group[0]
    designed = " (designed data)" if first.designed else ""
    table = Table(
        title=escape(f"{first.task}{designed}: test {first.metric}, %"),
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("loss", overflow="fold")
    table.add_column("mean ± spread", justify="right", no_wrap=True)
    table.add_column(f"difference ({CONFIDENCE:.0%})", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for panel in group:
        table.add_row(f"[italic]{escape(panel.budget)}[/]")
        for row in panel.rows:
            mean = words.with_spread(row.mean, row.spread)
            table.add_row(escape(row.loss), mean, *_difference(panel, row))
        table.add_section()
    return table


def _difference(panel: Panel, row: Row) -> tuple[str, str]:
    if row.difference is None:
        return "", "reference" if row is panel.reference else ""
    verdict, gain = row.difference.verdict, words.signed(row.difference.mean)
    return f"{gain} ({words.interval(row.difference)})", f"[{COLOURS[verdict]}]{verdict}[/]"
