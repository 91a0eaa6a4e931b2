"""Pictures that are the same bytes on every run: one style, text as text, no dates."""

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
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


def plot_lines(panel: Axes, lines: Mapping[str, tuple[Any, Any]], **words: Any) -> None:
    """Lines (x, y) by name, cross-entropy's dashed; `words` are those of `Axes.set`."""
    for name, (x, y) in lines.items():
        panel.plot(x, y, "--" if "cross-entropy" in name else "-", label=name, linewidth=1)
    panel.set(**words)
    panel.legend(fontsize=7)


def mean_curve(curves: Sequence[Sequence[Any]], column: int | str = 1) -> tuple[Any, Any]:
    """x and y of points such as [x, y], y being the mean over the curves; `column` is its place."""
    points = list(zip(*curves, strict=True))
    first = 0 if isinstance(column, int) else "iteration"
    return [p[0][first] for p in points], [fmean(one[column] for one in p) for p in points]


def draw_epochs(methods: Mapping[str, Tuned], label: str) -> Figure:
    """A score after every epoch, the mean over the seeds of what each result has as `curve`."""
    figure, lines = new_figure(5.0, 3.0), {}
    for name, method in methods.items():
        scores = zip(*(result["curve"] for result in method.results), strict=True)
        heights = [fmean(score) for score in scores]
        lines[name] = (range(1, len(heights) + 1), heights)
    plot_lines(figure.subplots(), lines, xlabel="epoch", ylabel=label)
    return figure


def write_svg(figure: Figure, path: Path) -> None:
    """Write the figure with no more digits than a screen shows; its words keep theirs."""
    text = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    short = re.sub(r"<[^>]*>", _shortened, text.getvalue())
    write_atomically(
        path, ("\n".join(line.rstrip() for line in short.splitlines()) + "\n").encode()
    )


def _shortened(tag: re.Match[str]) -> str:
    """The numbers in a tag place something; those between tags are ticks and names of lines."""
    return re.sub(r"(\d+\.\d\d)\d+", r"\1", tag[0])
