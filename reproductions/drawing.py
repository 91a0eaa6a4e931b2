"""Pictures that are the same bytes on every run: one style, text as text, no dates, no random
names.
"""

import io
import re
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from evalgrad_lab.store import write_atomically

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


def write_svg(figure: Figure, path: Path) -> None:
    """Write the figure with no more digits than a screen shows."""
    text = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    short = re.sub(r"(\d+\.\d\d)\d+", r"\1", text.getvalue())
    write_atomically(
        path, ("\n".join(line.rstrip() for line in short.splitlines()) + "\n").encode()
    )
