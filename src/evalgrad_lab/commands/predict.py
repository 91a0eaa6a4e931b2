"""`evalgrad predict`: masks as PNG for segmentation, a CSV table for everything else."""

import csv
import io
from argparse import ArgumentParser, Namespace
from pathlib import Path

import numpy as np
from PIL import Image
from torch import Tensor

from evalgrad_lab.data.examples import Examples
from evalgrad_lab.data.files.reading import read_inputs
from evalgrad_lab.store import write_atomically
from evalgrad_lab.training import saved, viewing
from evalgrad_lab.training.goals import parse_goal
from evalgrad_lab.training.measures import decide


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `evalgrad predict`."""
    viewing.add_arguments(parser)
    parser.add_argument("--out", required=True, help="folder for the masks, or for predictions.csv")


def run(options: Namespace) -> int:
    """Read and check all inputs, then write what the model says of them."""
    description, network = saved.read(Path(options.run))
    examples = read_inputs(Path(options.data), description)
    out = Path(options.out)
    rows: list[list[str]] = []
    for scores, batch in viewing.scores_by_batch(options, description, network, examples):
        names = [examples.names[i] for i in batch["index"]]
        if description.task == "segmentation":
            for name, mask in zip(names, decide(scores), strict=True):
                write_atomically(out / f"{name}.png", encode_mask(mask))
        else:
            rows += [
                [name, *said] for name, said in zip(names, _words(description, scores), strict=True)
            ]
    if rows:
        write_atomically(out / "predictions.csv", _table(description, rows))
    print(_summary(description, examples, out))
    return 0


def encode_mask(mask: Tensor) -> bytes:
    """A PNG with the class index of every pixel: 8 bits, or 16 where there are more than 256
    classes.
    """
    buffer = io.BytesIO()
    values = mask.cpu().numpy()
    Image.fromarray(values.astype(np.uint8 if values.max(initial=0) < 256 else np.uint16)).save(
        buffer, format="PNG"
    )
    return buffer.getvalue()


def _words(description: saved.Description, scores: Tensor) -> list[list[str]]:
    """What stands in the row of each example: its score, or the k best classes."""
    if description.task == "ranking":
        return [[repr(float(score))] for score in scores]
    best = scores.topk(parse_goal(description.metric, description.task).k, dim=1).indices
    return [[description.classes[int(c)] for c in row] for row in best]


def _table(description: saved.Description, rows: list[list[str]]) -> bytes:
    many = len(rows[0]) - 1
    names = (
        ["score"]
        if description.task == "ranking"
        else [f"prediction_{i}" for i in range(1, many + 1)]
    )
    buffer = io.StringIO(newline="")
    csv.writer(buffer).writerows(
        [["name", *(names if many > 1 or names == ["score"] else ["prediction"])], *rows]
    )
    return buffer.getvalue().encode()


def _summary(description: saved.Description, examples: Examples, out: Path) -> str:
    what = "masks" if description.task == "segmentation" else "rows"
    return f"{len(examples)} {what} in {out if what == 'masks' else out / 'predictions.csv'}"
