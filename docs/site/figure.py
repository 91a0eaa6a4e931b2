"""Draws the figure of README from a comparison on the digit scenes: `make figure`.

The scenes are the first of the test part, of seed 0, whatever they look like; the numbers are means
over the test parts of all seeds.
"""

import base64
import io
import json
import sys
from html import escape
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.timing import write_between
from docs.site.readme import README
from evalgrad_lab.report.panels import Panel, Row, panels
from evalgrad_lab.report.pictures import image_picture, label_picture

PATH = Path(__file__).parents[1] / "assets" / "digit_scenes.svg"
SIDE, GAP, SCENES = 112, 10, 2
NAMES = {
    "cross_entropy": ["cross-entropy"],
    "weighted_cross_entropy": ["cross-entropy with", "class weights"],
    "lovasz_softmax": ["Lovász-Softmax"],
    "cross_entropy+lovasz_softmax": ["cross-entropy +", "Lovász-Softmax"],
}


def drawn(panel: Panel) -> str:
    """The figure: image, truth, and what each loss says, with its metric below."""
    rows = [row for row in panel.rows if row.loss in NAMES]
    columns = [["image"], ["truth"], *(NAMES[row.loss] for row in rows)]
    width = len(columns) * (SIDE + GAP) + GAP
    height = SCENES * (SIDE + GAP) + 3 * 16 + GAP
    parts = [_pictures(rows, scene) for scene in range(SCENES)]
    parts += [_text(i, 0, lines) for i, lines in enumerate(columns)]
    parts += [_text(i + 2, 2, [_metric(row)], bold=True) for i, row in enumerate(rows)]
    said = ", ".join(f"{' '.join(NAMES[row.loss])} {_metric(row)}" for row in rows)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
        f' font-family="sans-serif" font-size="12" role="img" aria-label="{escape(said)}">\n'
        f'<rect width="{width}" height="{height}" rx="6" fill="#ffffff"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def caption(panel: Panel) -> str:
    """What the differences to the best baseline are, with their intervals."""
    assert panel.reference is not None
    said = []
    for row in panel.rows:
        if row.role == "ours" and row.difference and row.difference.interval:
            low, high = (100 * end for end in row.difference.interval)
            mean, verdict = 100 * row.difference.mean, row.difference.verdict
            name = " ".join(NAMES[row.loss])
            said.append(f"{name} {mean:+.1f} ({low:+.1f} to {high:+.1f}), a {verdict}")
    reference = " ".join(NAMES[panel.reference.loss])
    best = f"Difference from the best baseline, {reference}"
    return f"{best}, with its 95 % interval: {'; '.join(said)}."


def _pictures(rows: list[Row], scene: int) -> str:
    shown = [next(run for run in row.runs if run["examples"])["examples"] for row in rows]
    first = shown[0][scene]
    pictures = [image_picture(first["image"]), label_picture(first["target"])]
    pictures += [label_picture(examples[scene]["prediction"]) for examples in shown]
    y = GAP + scene * (SIDE + GAP)
    return "\n".join(
        squares(picture, GAP + i * (SIDE + GAP), y) for i, picture in enumerate(pictures)
    )


def squares(picture: str, x: int, y: int) -> str:
    """A PNG in a data URI as shapes, of each colour one: a page that shows an SVG may forbid the
    pictures in it (github/markup#1259).
    """
    file = io.BytesIO(base64.b64decode(picture.partition(",")[2]))
    pixels = np.asarray(Image.open(file).convert("RGB"))
    colours, index = np.unique(pixels.reshape(-1, 3), axis=0, return_inverse=True)
    paths = [
        f'<path fill="#{bytes(colour).hex()}" d="{_runs(index.reshape(pixels.shape[:2]) == i)}"/>'
        for i, colour in enumerate(colours)
    ]
    scale = SIDE / len(pixels)
    start = f'<g transform="translate({x} {y}) scale({scale:g})" shape-rendering="crispEdges">'
    return "".join([start, *paths, "</g>"])


def _runs(mask: np.ndarray) -> str:
    """The path of rectangles that cover a mask, one for each run of a row."""
    found = []
    for row, line in enumerate(np.pad(mask, ((0, 0), (1, 1))).astype(int)):
        starts, ends = (np.flatnonzero(np.diff(line) == step) for step in (1, -1))
        found += [f"M{a} {row}h{b - a}v1h{a - b}z" for a, b in zip(starts, ends, strict=True)]
    return "".join(found)


def _text(column: int, line: int, lines: list[str], bold: bool = False) -> str:
    x = GAP + column * (SIDE + GAP) + SIDE / 2
    y = SCENES * (SIDE + GAP) + GAP + 8
    weight = ' font-weight="bold"' * bold
    return "\n".join(
        f'<text x="{x}" y="{y + 16 * (line + i)}" text-anchor="middle" fill="#22262e"{weight}>'
        f"{escape(text)}</text>"
        for i, text in enumerate(lines)
    )


def _metric(row: Row) -> str:
    return f"{100 * row.mean:.1f} ± {100 * (row.spread or 0):.1f}"


if __name__ == "__main__":
    (panel,) = panels(json.loads(Path(sys.argv[1]).read_text())["records"])
    PATH.write_text(drawn(panel))
    write_between(README, "figure", caption(panel))
    for row in panel.rows:
        print(f"{row.loss}: {panel.metric} {_metric(row)} over {len(row.runs)} seeds")
