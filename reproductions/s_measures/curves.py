"""The pictures of figure 3: a test score per epoch, one line per alpha."""

from collections.abc import Mapping
from statistics import fmean

from matplotlib.figure import Figure

from evalgrad_lab.tune import Tuned
from reproductions.drawing import new_figure


def draw_curves(methods: Mapping[str, Tuned], label: str) -> Figure:
    """The mean over the seeds of what each result has as `curve`."""
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
