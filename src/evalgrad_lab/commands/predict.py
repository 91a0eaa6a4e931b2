"""`evalgrad predict`: masks as PNG for segmentation, a CSV table for everything else."""

import csv
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image
from torch import Tensor

from evalgrad_lab import metrics, saved, views
from evalgrad_lab.data.files.read import read_inputs
from evalgrad_lab.options import option
from evalgrad_lab.store import write_atomically


@dataclass(frozen=True, kw_only=True)
class PredictOptions(views.ViewOptions):
    """What `evalgrad predict` takes."""

    out: Path = option(help="folder for the masks, or for predictions.csv")


@dataclass(frozen=True)
class PredictResult:
    """How many predictions were written, and where."""

    examples: int
    path: Path


def predict(options: PredictOptions) -> PredictResult:
    """Read and check all inputs, then write what the model says of them."""
    description, network = saved.read(options.run)
    examples = read_inputs(options.data, description.columns)
    rows: list[list[str]] = []
    for scores, batch in views.scores_by_batch(options, description, network, examples):
        names = [examples.names[i] for i in batch.index]
        if description.task == "segmentation":
            masks = metrics.decide(scores, description.kind == "binary segmentation")
            for name, mask in zip(names, masks, strict=True):
                write_atomically(options.out / f"{name}.png", encode_mask(mask))
        else:
            said = _words(description, scores)
            rows += [[name, *words] for name, words in zip(names, said, strict=True)]
    if not rows:
        return PredictResult(len(examples), options.out)
    path = options.out / "predictions.csv"
    write_atomically(path, _table(description, rows))
    return PredictResult(len(rows), path)


def main(options: PredictOptions) -> int:
    """The command."""
    result = predict(options)
    print(f"{result.examples} {'rows' if result.path.suffix else 'masks'} in {result.path}")
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
    best = scores.topk(metrics.find(description.metric, description.task).k, dim=1).indices
    return [[description.classes[int(c)] for c in row] for row in best]


def _table(description: saved.Description, rows: list[list[str]]) -> bytes:
    many = len(rows[0]) - 1
    names = [f"prediction_{i}" for i in range(1, many + 1)] if many > 1 else ["prediction"]
    header = ["name", *(["score"] if description.task == "ranking" else names)]
    buffer = io.StringIO(newline="")
    csv.writer(buffer).writerows([header, *rows])
    return buffer.getvalue().encode()
