"""Pictures that are the same bytes on every run: one style, text as text, no dates, no random
names.
"""

import io
import re
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from evalgrad_lab.store import write_atomically
from evalgrad_lab.tune import Tuned

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "evalgrad",
    "font.size": 9,
    "path.simplify_threshold": 0.5,
}


def new_figure(width: float = 7.0, height: float = 3.2) -> Figure:
    """An empty figure in the style of the pages; sizes in inches."""
    with mpl.rc_context(STYLE):
        return Figure(figsize=(width, height), layout="constrained")


def draw_curves(methods: Mapping[str, Tuned], label: str) -> Figure:
    """A score per epoch, the mean over the seeds of what each result has as `curve`."""
    figure = new_figure(5.0, 3.0)
    panel = figure.subplots()
    for name, method in methods.items():
        curves = [result["curve"] for result in method.results]
        panel.plot(
            range(1, len(curves[0]) + 1),
            [fmean(column) for column in zip(*curves, strict=True)],
            label=name,
            linewidth=1,
        )
    panel.set(xlabel="epoch", ylabel=label)
    panel.legend(fontsize=7)
    return figure


def write_svg(figure: Figure, path: Path) -> None:
    """Write the figure with no more digits than a screen shows."""
    text = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    short = re.sub(r"(\d+\.\d\d)\d+", r"\1", text.getvalue())
    write_atomically(
        path, ("\n".join(line.rstrip() for line in short.splitlines()) + "\n").encode()
    )
