"""What a task is: data, a network, a metric, the losses to compare, and what each of them may be
tuned over.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import torch
from torch import Tensor, nn

from evalgrad_lab import losses
from evalgrad_lab.data.dataset import Part, Split

# scores, target, index of the items in the training part -> loss
Criterion = Callable[[Tensor, Tensor, Tensor], Tensor]
# scores, target, decision threshold -> metrics by name
Measure = Callable[[Tensor, Tensor, float], dict[str, float]]
EQUAL_TIME = "equal time"


@dataclass(frozen=True)
class Loss:
    """One row of a comparison. `build(options, train)` makes the criterion; `grid` is what it is
    tuned over on validation.

    The grid has `learning_rate`, may have `weight_decay`, and holds the loss's own options: class
    weights, epsilon, temperature.
    """

    name: str
    role: Literal["baseline", "ours"]
    build: Callable[[Mapping[str, Any], Part], Criterion]
    grid: Mapping[str, tuple[float, ...]]

    def candidates(self) -> Iterator[dict[str, float]]:
        """All combinations of the grid."""
        for values in product(*self.grid.values()):
            yield dict(zip(self.grid, values, strict=True))


@dataclass(frozen=True)
class Task:
    """One experiment. `losses` starts with the reference, whose training time is what "equal time"
    means.

    `measure` gives the metrics of scores, higher is better; its first is the headline one.
    `threshold` chooses the decision threshold on validation, for every loss alike; None where the
    metric needs none. `keep_best` keeps the network that was best on validation during training
    (early stopping), for every loss alike.
    """

    name: str
    title: str
    description: str
    data: Callable[[int], Split]
    model: Callable[[], nn.Module]
    metric: str
    measure: Measure
    losses: tuple[Loss, ...]
    iterations: tuple[int, ...]
    batch: int | None = None  # None trains on all examples in every step
    threshold: Callable[[Tensor, Tensor], float] | None = None
    per_class: Callable[[Tensor, Tensor], tuple[list[str], list[float]]] | None = None
    # scores, threshold -> label maps to show
    predict: Callable[[Tensor, float], Tensor] | None = None
    designed: bool = False
    keep_best: bool = False
    seeds: int = 5

    @property
    def budgets(self) -> tuple[str, ...]:
        """The names of the budgets: each number of iterations, then as much time as the reference
        needs for the first.
        """
        return (*(f"{count} iterations" for count in self.iterations), EQUAL_TIME)

    def loss(self, name: str) -> Loss:
        """The loss of that name."""
        return next(loss for loss in self.losses if loss.name == name)


def objective(name: str, **fixed: Any) -> Callable[[Mapping[str, Any], Part], Criterion]:
    """`Loss.build` for a loss of `losses`: it adds what the loss needs from the training part,
    and passes `index` on.
    """

    def build(options: Mapping[str, Any], train: Part) -> Criterion:
        chosen = {**fixed, **options}
        found = losses.find(name)
        if found.needs == "labels":
            chosen["labels"] = train.target
        if found.needs == "weight":
            chosen["weight"] = frequency_weights(train.target, chosen.pop("weight_power"))
        loss = losses.make(name, chosen)
        if found.takes_index:
            return lambda scores, target, index: loss(scores, target, index=index)
        return lambda scores, target, index: loss(scores, target)

    return build


def frequency_weights(target: Tensor, power: float) -> list[float]:
    """Class weights frequency ** -power with mean 1: power 0 is unweighted, 1 the inverse
    frequency.
    """
    count = torch.bincount(target.flatten()).double().clamp(min=1)
    weight = count**-power
    return (weight / weight.mean()).tolist()
