"""`evalgrad predict`: masks as PNG for segmentation, a CSV table for everything else."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evalgrad_lab.errors import UserError
from evalgrad_lab.options import option
from evalgrad_lab.store import as_csv, write_atomically
from evalgrad_lab.view_options import ViewOptions

if TYPE_CHECKING:
    from torch import Tensor

    from evalgrad_lab.decisions import Decision
    from evalgrad_lab.saved import Description

TABLE = "predictions.csv"


@dataclass(frozen=True, kw_only=True)
class PredictOptions(ViewOptions):
    """Options of `predict` and of the command `evalgrad predict`.

    Example:
        >>> options = PredictOptions(run=Path("run"), data=Path("new.csv"), out=Path("scores"))
        >>> options.batch_size, options.probabilities
        (16, False)
    """

    data: Path = option(help="as for `evalgrad train`; targets are not needed")
    out: Path = option(help="folder for the masks, or for predictions.csv")
    probabilities: bool = option(
        False,
        help="also write the probabilities of all classes: NAME.npy (classes, H, W) next to each"
        " mask, or one column per class",
    )


@dataclass(frozen=True)
class PredictResult:
    """What `predict` returns.

    Attributes:
        examples: number of predictions written.
        path: the table, or the folder of the masks.

    Example:
        >>> options = PredictOptions(run=folder / "run", data=folder / "rows.csv", out=folder)
        >>> predict(options).examples
        60
    """

    examples: int
    path: Path


def predict(options: PredictOptions) -> PredictResult:
    """Write the predictions of a trained model: masks as PNG, or a table `predictions.csv`.

    Args:
        options: the folder of the run, the inputs and the folder to write to.

    Example:
        >>> options = PredictOptions(run=folder / "run", data=folder / "rows.csv", out=folder)
        >>> predict(options).path.read_text().splitlines()[0]  # of a run of `train`
        'name,score'
    """
    from evalgrad_lab import saved, views
    from evalgrad_lab.data.files.read import read_inputs

    _check_out(options)
    description, network = saved.read(options.run, options.trust_model)
    decision = options.decision(description)
    examples = read_inputs(options.data, description.columns)
    rows: list[dict[str, str]] = []
    source = options.data
    for scores, batch in views.scores_by_batch(options, description, network, examples, source):
        names = [examples.names[i] for i in batch.index]
        chances = _probabilities(scores, description, options.crops is not None)
        if description.task == "segmentation":
            _write_masks(options, names, scores, chances, decision)
        else:
            said = _rows(options, description, scores, chances, decision)
            rows += [{"name": name, **row} for name, row in zip(names, said, strict=True)]
    if not rows:
        return PredictResult(len(examples), options.out)
    path = options.out / TABLE
    write_atomically(path, as_csv(rows))
    return PredictResult(len(rows), path)


def _check_out(options: PredictOptions) -> None:
    """Masks have the names of their images: among the data they would overwrite them."""
    data, out = options.data.resolve(), options.out.resolve()
    root = data.parent if data.name == "images" else data
    if out.is_relative_to(root) or out / TABLE == data:
        raise UserError(
            f"--out {options.out} lies in --data, which predictions would overwrite. Choose a"
            " folder elsewhere."
        )


def main(options: PredictOptions) -> int:
    """The command."""
    result = predict(options)
    print(f"{result.examples} {'rows' if result.path.suffix else 'masks'} in {result.path}")
    return 0


def _probabilities(scores: "Tensor", description: "Description", marginals: bool) -> "Tensor":
    """Of every class, ``(N, C, *)``: the softmax of the scores, the sigmoid of a single one; those
    of ten crops are probabilities already.
    """
    import torch

    if description.task == "multilabel":
        return torch.sigmoid(scores)
    if description.of_one_score:
        second = torch.sigmoid(scores)
        return torch.stack([1 - second, second], 1)
    return scores if marginals else scores.softmax(1)


def _write_masks(
    options: PredictOptions,
    names: list[str],
    scores: "Tensor",
    chances: "Tensor",
    decision: "Decision | None",
) -> None:
    import numpy as np

    assert decision is not None  # of masks something always decides
    for name, mask, of_classes in zip(names, decision(scores), chances, strict=True):
        write_atomically(options.out / f"{name}.png", encode_mask(mask))
        if options.probabilities:
            buffer = io.BytesIO()
            np.save(buffer, of_classes.numpy())
            write_atomically(options.out / f"{name}.npy", buffer.getvalue())


def encode_mask(mask: "Tensor") -> bytes:
    """A PNG with the class of every pixel: 8 bits, or 16 beyond 256 classes."""
    import numpy as np
    from PIL import Image

    buffer, values = io.BytesIO(), mask.cpu().numpy()
    kind = np.uint8 if values.max(initial=0) < 256 else np.uint16
    Image.fromarray(values.astype(kind)).save(buffer, format="PNG")
    return buffer.getvalue()


def _rows(
    options: PredictOptions,
    description: "Description",
    scores: "Tensor",
    chances: "Tensor",
    decision: "Decision | None",
) -> list[dict[str, str]]:
    """The row of each example: score and decision, or the k best classes with probabilities."""
    from evalgrad_lab import metrics

    if description.of_one_score:
        many = description.task == "multilabel"
        names = [f"_{name}" for name in description.classes] if many else [""]
        marks = decision(scores).view(len(scores), -1).tolist() if decision else [[]] * len(scores)
        pairs = zip(scores.view(len(scores), -1).tolist(), marks, strict=True)
        rows = [_marks(names, *pair) for pair in pairs]
    else:
        assert decision is not None  # of classes something always decides
        k = metrics.find(description.metric, description.task).k
        places = decision.shifted(scores).topk(k, dim=1).indices
        best = chances.gather(1, places)
        rows = [_guesses(description, *pair) for pair in zip(best, places, strict=True)]
    if options.probabilities:
        for row, chance in zip(rows, chances.tolist(), strict=True):
            columns = zip(description.classes, chance, strict=True)
            row.update({f"probability_{name}": repr(value) for name, value in columns})
    return rows


def _marks(names: list[str], scores: list[float], marks: list[int]) -> dict[str, str]:
    """The score of every label and, where something decides, whether it is given."""
    row = {}
    for i, (name, score) in enumerate(zip(names, scores, strict=True)):
        row[f"score{name}"] = repr(score)
        row |= {f"prediction{name}": str(mark) for mark in marks[i : i + 1]}
    return row


def _guesses(description: "Description", best: "Tensor", places: "Tensor") -> dict[str, str]:
    row = {}
    for rank, (value, place) in enumerate(zip(best.tolist(), places.tolist(), strict=True), 1):
        number = f"_{rank}" if len(best) > 1 else ""
        row[f"prediction{number}"] = description.classes[place]
        row[f"score{number}"] = repr(value)
    return row
