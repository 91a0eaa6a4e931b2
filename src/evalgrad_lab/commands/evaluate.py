"""`evalgrad evaluate`: the metric of a trained model on data with targets."""

from dataclasses import dataclass

from evalgrad_lab import metrics, saved, views
from evalgrad_lab.data.files.read import read_like
from evalgrad_lab.options import option


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(views.ViewOptions):
    """What `evalgrad evaluate` takes."""

    metric: str | None = option(None, help="default: the one it was trained for")


@dataclass(frozen=True)
class EvaluateResult:
    """The metric of a model on `examples` examples of a `part` of the data."""

    metric: str
    value: float
    per_class: dict[str, float]
    part: str
    examples: int


def evaluate(options: EvaluateOptions) -> EvaluateResult:
    """Measure on `test/` of the data, or on `val/`, or else on all of them."""
    description, network = saved.read(options.run)
    metric = metrics.find(options.metric or description.metric, description.task)
    measure = metric.measure(len(description.classes), description.ignore_index)
    how = description.reading()
    found = read_like(options.data, how, description.classes, description.columns)
    parts = {"test": found.test, "validation": found.validation, "all": found.train}
    part, examples = next((name, part) for name, part in parts.items() if part is not None)
    scored = views.scores_by_batch(options, description, network, examples)
    rows = metrics.measured(measure, ((s, batch.target, batch.lists) for s, batch in scored))
    values = measure.per_class(rows) if measure.per_class else []
    per_class = dict(zip(description.classes, values, strict=False))
    value = metrics.finite(measure.value(rows))
    return EvaluateResult(metric.name, value, per_class, part, len(examples))


def main(options: EvaluateOptions) -> int:
    """The command."""
    found = evaluate(options)
    print(f"{found.metric} {found.value:.6f} on {found.examples} examples of {options.data}")
    return 0
