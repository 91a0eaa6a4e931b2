"""The page of one training, `RUN/report.html`: curves, the table of classes, the confusion matrix,
and for segmentation example predictions. One HTML file that needs nothing else.
"""

import shlex
from math import isfinite
from typing import Any

from evalgrad_lab.commands.train import TrainOptions
from evalgrad_lab.report import charts
from evalgrad_lab.report.page import fill
from evalgrad_lab.report.sections import Figure, pictures_of
from evalgrad_lab.store import write_atomically

MOST_CLASSES = 30  # of a confusion matrix that can be read


def write_run(
    options: TrainOptions,
    result: dict[str, Any],
    curve: list[dict[str, Any]],
    examples: list[Any],
) -> None:
    """Write `report.html` into the folder of a run, whole or not at all.

    Args:
        options: of the run; its folder names it.
        result: what is written to `result.json`.
        curve: the rows of `log.csv`.
        examples: images with their targets and predictions, for segmentation.
    """
    metric, part = result["metric"], "validation" if result["test"] is None else "test"
    figures = [
        _figure(curve, "loss", "Training loss", "baseline0", percent=False),
        _figure(curve, "metric", f"Validation {metric} (%)", "ours0", percent=True),
    ]
    text = fill(
        "run.html",
        name=options.out.resolve().name,
        command=shlex.join(["evalgrad", "train", *options.arguments()]),
        result=result,
        curve=curve,
        part=part,
        items="pixels" if options.task == "segmentation" else "examples",
        figures=[figure for figure in figures if figure is not None],
        confusion=_shaded(result["classes"], result["confusion"]),
        examples=[pictures_of(example, {"prediction": example}) for example in examples],
    )
    write_atomically(options.out / "report.html", text.encode())


def _figure(
    curve: list[dict[str, Any]], name: str, caption: str, style: str, percent: bool
) -> Figure | None:
    points = [(row["epoch"], row[name]) for row in curve if isfinite(row[name])]
    if not points:
        return None
    x, y = ([float(point[i]) for point in points] for i in (0, 1))
    line = charts.Line(caption, style, x, y, y, y)
    last = f"{100 * y[-1]:.1f}" if percent else f"{y[-1]:.4g}"
    drawing = charts.curves([line], "epochs", f"{caption} against epochs ends at {last}.", percent)
    return Figure(drawing, f"{caption} against epochs")


def _shaded(
    classes: list[dict[str, Any]], confusion: list[Any]
) -> list[tuple[str, list[tuple[int, float]]]]:
    """The confusion matrix by rows, each count with its share of the row; nothing where there are
    too many classes, or a matrix for each label.
    """
    if not 0 < len(confusion) <= MOST_CLASSES or isinstance(confusion[0][0], list):
        return []
    rows = zip([row["class"] for row in classes], confusion, strict=True)
    return [(name, [(count, count / max(sum(row), 1)) for count in row]) for name, row in rows]
