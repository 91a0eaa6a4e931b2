"""A task: data, a network, metrics, and the methods with their hyper-parameter grids."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

from torch import nn

from evalgrad_lab import losses, metrics
from evalgrad_lab.data.dataset import Dataset, Part
from evalgrad_lab.decisions import Fit
from evalgrad_lab.fit import BatchLoss
from evalgrad_lab.given import Given
from evalgrad_lab.measures import Measure
from evalgrad_lab.phases import on_batches

Grid = Mapping[str, tuple[float, ...]]
Build = Callable[[Mapping[str, Any], Part], BatchLoss]
EQUAL_TIME = "equal time"


@dataclass(frozen=True)
class Method:
    """One row of a comparison. `build(options, train)` makes the loss; `grid` is what it is tuned
    over on validation.

    The grid has `learning_rate`, may have `weight_decay`, and holds the loss's own options: class
    weights, epsilon, temperature.
    """

    name: str
    role: Literal["baseline", "ours"]
    build: Build
    grid: Grid

    def candidates(self) -> Iterator[dict[str, float]]:
        """All combinations of the grid."""
        for values in product(*self.grid.values()):
            yield dict(zip(self.grid, values, strict=True))


@dataclass(frozen=True)
class Task:
    """One experiment. `methods` starts with the reference, whose training time is what "equal
    time" means.

    `measures` are the metrics by the names that reports show; the first is the headline one.
    `decided` are the decision rules that are tried on validation besides argmax or a threshold of
    0, for every method; during training only the first is tried. `keep_best` keeps the network that
    was best on validation during training (early stopping), for every method.
    """

    name: str
    title: str
    description: str
    data: Callable[[int], Dataset[Part]]
    model: Callable[[], nn.Module]
    measures: Mapping[str, Measure]
    methods: tuple[Method, ...]
    iterations: tuple[int, ...]
    batch: int | None = None  # None trains on all examples in every step
    decided: tuple[Fit, ...] = ()
    classes: tuple[str, ...] = ()  # their names, to show the metric of each
    designed: bool = False
    keep_best: bool = False
    seeds: int = 5

    @property
    def metric(self) -> str:
        """The name of the headline metric."""
        return next(iter(self.measures))

    @property
    def budgets(self) -> tuple[str, ...]:
        """Each number of iterations, then as much time as the reference needs for the first."""
        return (*(f"{count} iterations" for count in self.iterations), EQUAL_TIME)

    def method(self, name: str) -> Method:
        """The method of that name."""
        return next(method for method in self.methods if method.name == name)


def loss(name: str, **fixed: Any) -> Build:
    """`Method.build` for a loss of the table, with what it needs of the training part."""
    kind = losses.find(name).kinds[0]

    def build(options: Mapping[str, Any], train: Part) -> BatchLoss:
        num_classes = int(train.target.max()) + 1
        return on_batches(name, {**fixed, **options}, kind, Given(train, num_classes))

    return build


def baseline(name: str, grid: Grid, called: str = "", **fixed: Any) -> Method:
    """A loss of the table under its own name, or as it is `called`, with `fixed` options."""
    return Method(called or name, "baseline", loss(name, **fixed), grid)


def ours(name: str, grid: Grid, called: str = "", **fixed: Any) -> Method:
    """The same for a loss that is compared with the baselines."""
    return replace(baseline(name, grid, called, **fixed), role="ours")


def measured(task: str, *names: str, num_classes: int = 2) -> dict[str, Measure]:
    """Metrics of the table, under the names that reports show."""
    found = [metrics.find(name, task) for name in names]
    return {metric.title: metric.measure(num_classes, 255) for metric in found}


def by_default(measure: Measure) -> Measure:
    """The same without a chosen decision."""
    return replace(measure, plain=True)
