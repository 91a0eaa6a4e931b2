"""The report: one HTML file that needs nothing else, from the templates beside this module."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from evalgrad_lab.report import charts, words
from evalgrad_lab.report.panels import CONFIDENCE, Panel, grouped_by, panels
from evalgrad_lab.report.records import Comparison
from evalgrad_lab.report.sections import section
from evalgrad_lab.store import write_atomically

FOLDER = Path(__file__).parent


def write_report(comparison: Comparison, path: str | Path) -> None:
    """Write the report of a comparison to `path`, whole or not at all."""
    write_atomically(Path(path), render(comparison).encode())


def render(comparison: Comparison) -> str:
    """The report as text."""
    found = panels(comparison["records"])
    by_task = grouped_by(found, lambda panel: panel.task)
    return fill(
        "page.html",
        sentences=words.opening(found),
        confidence=f"{CONFIDENCE:.0%}",
        glance=_glance(found),
        anchors={task: f"task-{number}" for number, task in enumerate(by_task, 1)},
        sections=[section(group) for group in by_task.values()],
        comparison=comparison,
        seeds=sorted({record["seed"] for record in comparison["records"]}),
        note=words.chance(found),
    )


def fill(template: str, **values: Any) -> str:
    """A template with its values, the style sheet and the words; what is not Markup is escaped."""
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = _breakable
    style = Markup((FOLDER / "style.css").read_text())
    return environment.get_template(template).render(style=style, words=words, **values)


def _breakable(name: str) -> Markup:
    """A name that may be broken after an underscore or a plus sign, in a narrow column."""
    return escape(name).replace("_", Markup("_<wbr>")).replace("+", Markup("+<wbr>"))


def _glance(found: list[Panel]) -> list[tuple[Panel, Markup]]:
    """Every panel with its interval drawn; one scale for all."""
    differences = [panel.champion.difference if panel.champion else None for panel in found]
    ends = [end for one in differences if one for end in one.interval or (one.mean,)]
    low, high = min(0.0, *ends, 0.0), max(0.0, *ends, 0.0)
    rows = []
    for panel, difference in zip(found, differences, strict=True):
        drawing = charts.NOTHING
        if difference:
            points = f"{words.signed(difference.mean)} points, {words.interval(difference)}"
            description = f"{panel.task}, {panel.budget}: {points}"
            drawing = charts.interval_bar(difference, low, high, description)
        rows.append((panel, drawing))
    return rows
