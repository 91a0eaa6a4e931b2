"""The training, validation and test part of the user's data, and what they must have."""

from functools import lru_cache
from pathlib import Path

from evalgrad_lab.commands.train import TrainOptions
from evalgrad_lab.data.dataset import Dataset, Examples, Found, Reading
from evalgrad_lab.data.files.read import read_parts
from evalgrad_lab.errors import UserError


def files_of(options: TrainOptions) -> tuple[Path, Path | None, Path | None]:
    """Where the data are."""
    return options.data, options.validation_data, options.test_data


def dataset(options: TrainOptions, digest: str) -> Dataset[Examples]:
    """The three parts of the data."""
    reading = Reading(**options.shared(Reading))
    for name in ("target", "group"):
        if getattr(reading, name) != getattr(Reading, name) and options.data.suffix != ".csv":
            raise UserError(
                f"--{name} names a column of a .csv; --data is {options.data}. Drop it: an .npz has"
                f" an array `{name}`."
            )
    return _parts(_found(*files_of(options), reading, digest), options)


@lru_cache(maxsize=1)
def _found(
    data: Path, validation: Path | None, test: Path | None, how: Reading, digest: str
) -> Found:
    """The data are read once in a process that trains many times on them."""
    return read_parts(data, how, validation, test)


def _parts(found: Found, options: TrainOptions) -> Dataset[Examples]:
    """The three parts; raises for what cannot be trained on or measured."""
    if options.task == "multilabel" and found.train.lists is not None:
        raise UserError(
            f"{options.data}: lists are for --task ranking; each label of a multilabel task is one"
            " ranking of all items. Drop --group and its column, or the array `group`."
        )
    if found.validation is None and len(found.train) < 2:
        raise UserError(
            f"{options.data} has one example; at least two are needed, to hold one out for"
            " validation."
        )
    if options.validation + options.test >= 1:
        raise UserError(
            f"--validation {options.validation} and --test {options.test} leave nothing to train"
            " on. Make them smaller."
        )
    data = found.complete(options.validation, options.test, options.seed, options.split)
    if options.limit is not None:
        parts = (data.train, data.validation, data.test)
        first = (part.take(range(min(options.limit, len(part)))) for part in parts)
        data = Dataset(*first, classes=data.classes, columns=data.columns)
    for name, part in (("training", data.train), ("validation", data.validation)):
        if missing := one_sided(options.task, part, data.classes):
            raise UserError(f"{options.data}: the {name} data must have {missing}. Add data.")
    return data


def one_sided(task: str, part: Examples, classes: list[str]) -> str:
    """What a part should have and does not: items of both labels, of which metrics of rankings
    and of multilabel tasks are made; "" where nothing is missing.
    """
    if task not in ("ranking", "multilabel") or not len(part):
        return ""
    labels = part.labels()
    columns = labels[:, None] if labels.ndim == 1 else labels
    found = (columns.amin(0) == columns.amax(0)).nonzero()
    label = f" of {classes[int(found[0])]}" if len(found) and labels.ndim == 2 else ""
    return f"items with target 0 and with target 1{label}" if len(found) else ""


def test_note(options: TrainOptions, data: Dataset[Examples]) -> str:
    """What the test part should have and does not. It does not stop a training, whose choices are
    made on validation.
    """
    missing = one_sided(options.task, data.test, data.classes)
    where = options.test_data or options.data
    return missing and (
        f"{where}: the test data should have {missing}; the test metric is undefined, or leaves"
        " that label out."
    )
