"""The page of one training, `RUN/report.html`: curves, the table of classes, the confusion matrix,
and example predictions. One HTML file that needs nothing else.
"""

import shlex
from collections.abc import Sequence
from math import isfinite
from typing import Any

from evalgrad_lab.commands.train import TrainOptions
from evalgrad_lab.report import charts
from evalgrad_lab.report.page import fill
from evalgrad_lab.report.pictures import image_picture
from evalgrad_lab.report.sections import Figure, pictures_of
from evalgrad_lab.store import write_atomically

MOST_CLASSES = 30  # of a confusion matrix that can be read


def write_run(
    options: TrainOptions,
    result: dict[str, Any],
    curves: list[list[dict[str, Any]]],
    examples: list[Any],
    guesses: Sequence[dict[str, Any]] = (),
) -> None:
    """Write `report.html` into the folder of a run, whole or not at all.

    Args:
        options: of the run; its folder names it.
        result: what is written to `result.json`.
        curves: the rows of `log.csv`, and of `branch.csv` for a second branch; of `branch1.csv`
            too if that was repeated.
        examples: images with their targets and predictions, for segmentation.
        guesses: images or rows of a table with their classes, for other tasks.
    """
    metric = result["metric"]
    forked = result["recipe"].get("fork_epoch", 0.0)
    figures = [
        _figure(curves[:1], 0.0, "loss", "Training loss", percent=False),
        _figure(curves, forked, "metric", f"Validation {metric} (%)", percent=True),
    ]
    text = fill(
        "run.html",
        name=options.out.resolve().name,
        command=shlex.join(["evalgrad", "train", *options.arguments()]),
        result=result,
        curve=curves[0],
        totals=totals(curves),
        branches=len(curves) - 1,
        items="pixels" if options.task == "segmentation" else "examples",
        figures=[figure for figure in figures if figure is not None],
        confusion=_shaded(result["classes"], result["confusion"]),
        examples=[pictures_of(example, {"prediction": example}) for example in examples],
        guesses=guesses,
        pictures=[image_picture(one["image"]) for one in guesses if "image" in one],
    )
    write_atomically(options.out / "report.html", text.encode())


def totals(curves: list[list[dict[str, Any]]]) -> tuple[int, float]:
    """The steps and the seconds of all branches."""
    ends = [rows[-1] for rows in curves if rows]
    return sum(row["step"] for row in ends), sum(row["seconds"] for row in ends)


def _figure(
    curves: list[list[dict[str, Any]]], forked: float, name: str, caption: str, percent: bool
) -> Figure | None:
    """The curve of the training; that of a second branch begins where it left the first, and goes
    on by its steps, because its last epoch may be a part of one.
    """
    lines, per_step = [], curves[0][-1]["epoch"] / curves[0][-1]["step"]
    for number, rows in enumerate(curves):
        x = [forked + per_step * row["step"] if number else row["epoch"] for row in rows]
        points = [(at, row[name]) for at, row in zip(x, rows, strict=True) if isfinite(row[name])]
        if points:
            x, y = ([float(point[i]) for point in points] for i in (0, 1))
            style = "ours0" if percent and number == len(curves) - 1 else "baseline0"
            lines.append(charts.Line(f"branch {number + 1}", style, x, y, y, y))
    if not lines:
        return None
    last = [f"{100 * one.mean[-1]:.1f}" if percent else f"{one.mean[-1]:.4g}" for one in lines]
    text = f"{caption} against epochs ends at {' and at '.join(last)}."
    drawing = charts.curves(lines, "epochs", text, percent)
    repeated = ", and the second branch that collapsed" * (len(lines) > 2)
    grey = f"; in grey the branch that stays with the first loss{repeated}"
    which = grey if len(lines) > 1 else ""
    return Figure(drawing, f"{caption} against epochs{which}")


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
