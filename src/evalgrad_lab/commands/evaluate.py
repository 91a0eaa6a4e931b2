"""`evalgrad evaluate`: the metric of a trained model, on its test part or on other data."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalgrad_lab.errors import UserError
from evalgrad_lab.options import option
from evalgrad_lab.store import write_atomically
from evalgrad_lab.view_options import ViewOptions

if TYPE_CHECKING:
    from evalgrad_lab.data.dataset import Examples
    from evalgrad_lab.decisions import Decision
    from evalgrad_lab.saved import Description

MOST_COLUMNS = 12  # of a confusion matrix in the terminal


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(ViewOptions):
    """Options of `evaluate` and of the command `evalgrad evaluate`.

    Example:
        >>> options = EvaluateOptions(run=Path("run"), metric="auc")
        >>> options.arguments()
        ['run', '--metric', 'auc']
    """

    data: Path | None = option(None, help="as for `evalgrad train` (the test set of the run)")
    metric: str | None = option(None, help="metric to measure (the one it was trained for)")
    include_trained: bool = option(
        False, help="also measure on the examples of --data that the run was trained on"
    )


@dataclass(frozen=True)
class EvaluateResult:
    """What `evaluate` returns, and writes to `evaluation/result.json`.

    Attributes:
        metric: the name of the metric.
        value: the metric; None if it is undefined on these examples.
        part: the part of the data that was measured, such as the test part.
        examples: number of examples measured.
        trained: how many examples of the data the model was trained on; they are left out unless
            `include_trained` is given.
        validated: how many of the examples measured chose the model and its decision.
        decision: how scores became predictions; None for rankings.
        classes: the table of classes.
        confusion: the confusion matrix; rows are true, columns predicted classes.
        note: what the examples should have and do not, such as positives of a label.
        path: the file that was written.

    Example:
        >>> result = evaluate(EvaluateOptions(run=folder / "run"))
        >>> result.metric, result.part, result.trained
        ('ap', 'test', 0)
    """

    metric: str
    value: float | None
    part: str
    examples: int
    trained: int
    validated: int
    decision: "Decision | None"
    classes: list[dict[str, Any]]
    confusion: list[Any]
    note: str
    path: Path

    def plain(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "path"}


def evaluate(options: EvaluateOptions) -> EvaluateResult:
    """Measure on the run's own test part; or on `test/` of the data, on `val/`, or on all of them.
    Writes `RUN/evaluation/result.json`.

    Args:
        options: the folder of the run, and other data or another metric if wanted.

    Example:
        >>> result = evaluate(EvaluateOptions(run=folder / "run", metric="auc"))  # of `train`
        >>> result.metric, 0 < result.value <= 1
        ('auc', True)
    """
    from evalgrad_lab import metrics, saved, views
    from evalgrad_lab.judging import judge
    from evalgrad_lab.parts import one_sided

    description, network = saved.read(options.run, options.trust_model)
    metric = metrics.find(options.metric or description.metric, description.task)
    decision = options.decision(description)
    part, examples, seen = _examples(options, description)
    asked = replace(description, metric=metric.name)  # by whose k crops are averaged
    scored = (
        (scores, batch.target, batch.lists)
        for scores, batch in views.scores_by_batch(
            options, asked, network, examples, options.data or options.run
        )
    )
    judged = judge(metric, scored, description.classes, description.ignore_index, decision)
    result = EvaluateResult(
        metric.name,
        judged.value,
        part,
        len(examples),
        *seen,
        decision,
        judged.classes,
        judged.confusion,
        one_sided(description.task, examples, description.classes),
        options.run / "evaluation" / "result.json",
    )
    write_atomically(result.path, json.dumps(result.plain(), indent=1).encode())
    return result


def _examples(
    options: EvaluateOptions, description: "Description"
) -> tuple[str, "Examples", tuple[int, int]]:
    """What is measured, and how many of the data were trained on and validated on."""
    from evalgrad_lab import saved, training
    from evalgrad_lab.data.files.read import fingerprints, read

    if options.data is None:
        if options.include_trained:
            raise UserError("--include-trained needs --data. Pass data, or drop it.")
        return "test", training.stored_test(options.run), (0, 0)
    found = read(options.data, description.reading())
    parts = {"test": found.test, "validation": found.validation, "all": found.train}
    name, examples = next((name, part) for name, part in parts.items() if part is not None)
    known = saved.read_parts(options.run)
    trained, validated = ({mark for _, mark in known[part]} for part in ("train", "validation"))
    marks = fingerprints(examples)
    fresh = [i for i, mark in enumerate(marks) if mark not in trained]
    if not fresh and not options.include_trained:
        raise UserError(
            f"{options.run} was trained on all {len(examples)} examples of {options.data}."
            f" `evalgrad evaluate {options.run}` measures on its test part, --include-trained on"
            " these."
        )
    seen = (len(examples) - len(fresh), sum(mark in validated - trained for mark in marks))
    return name, examples if options.include_trained else examples.take(fresh), seen


def main(options: EvaluateOptions) -> int:
    """The command."""
    found = evaluate(options)
    where = options.data or "the test part"
    decided = f", decided by {found.decision}" if found.decision else ""
    value = "is undefined" if found.value is None else f"{found.value:.6f}"
    print(f"{found.metric} {value} on {found.examples} examples of {where}{decided}")
    if found.note:
        print(f"they should have {found.note}; what is missing is left out of the metric")
    if found.trained:
        said = "are among them" if options.include_trained else "are left out"
        print(f"{found.trained} examples that the run was trained on {said}")
    if found.validated:
        print(
            f"{found.validated} of the measured examples were the validation data that chose the"
            " model: the value is optimistic; without --data the test set is measured"
        )
    print_classes(found.classes, found.confusion)
    print(f"All numbers: {found.path}")
    return 0


def print_classes(classes: list[dict[str, Any]], confusion: list[Any]) -> None:
    """The table of classes, and the confusion matrix where that has few columns."""
    if not classes:
        return
    _print(list(classes[0]), [[_text(value) for value in row.values()] for row in classes])
    if 0 < len(confusion) <= MOST_COLUMNS and not isinstance(confusion[0][0], list):
        names = [row["class"] for row in classes]
        rows = [[name, *map(str, counts)] for name, counts in zip(names, confusion, strict=True)]
        _print(["true \\ predicted", *names], rows)


def _print(headings: list[str], rows: list[list[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for i, heading in enumerate(headings):
        table.add_column(escape(heading), justify="right" if i else "left")
    for row in rows:
        table.add_row(*map(escape, row))
    Console().print(table)


def _text(value: float | str | None) -> str:
    return "" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)
