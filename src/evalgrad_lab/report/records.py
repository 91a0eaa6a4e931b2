"""Records of runs, as plain data: the only input of statistics and reports."""

from collections.abc import Sequence
from typing import Any, Literal, TypedDict

from typing_extensions import NotRequired

Grid = list[list[float]]


class Point(TypedDict):
    """One validation during training; `seconds` is the time of the training alone."""

    iteration: int
    seconds: float
    loss: float
    metric: float


class PerClass(TypedDict):
    """The metric of every class on test."""

    labels: list[str]
    values: list[float]


class Example(TypedDict):
    """A small test image (H, W), (1, H, W) or (3, H, W), its label map and the predicted one."""

    image: Grid | list[Grid]
    target: list[list[int]]
    prediction: list[list[int]]


class Record(TypedDict):
    """One run. Metrics lie in [0, 1], higher is better; `metric` names the headline one."""

    task: str
    title: str
    description: NotRequired[str]
    designed: bool
    loss: str
    role: Literal["baseline", "ours"]
    budget: str
    seed: int
    hyper: dict[str, float | int | str | bool | None]
    metric: str
    test: dict[str, float]
    validation: dict[str, float]
    curve: list[Point]
    per_class: PerClass | None
    examples: list[Example] | None
    iterations: int
    seconds: float
    milliseconds_per_step: float
    loss_milliseconds: float
    peak_megabytes: float
    decision: dict[str, Any] | None  # rule and numbers, chosen on validation
    recipe: NotRequired[dict[str, Any]]  # what `--loss auto` did


class Comparison(TypedDict):
    """Finished runs and what is needed to repeat them."""

    records: list[Record]
    command: str
    versions: dict[str, str]
    machine: dict[str, str | int | float]
    # on the user's data: the winner, or that there is none, and the model that is left
    conclusion: NotRequired[str]
    winner: NotRequired[str | None]
    model: NotRequired[str]
    train_command: NotRequired[str]  # what makes the model again that is left


def shown_under(budgets: Sequence[str], results: Sequence[Any]) -> list[Record]:
    """What runs gave, each with the budget that it is shown under."""
    records: list[Any] = [
        {**one, "budget": budget} for budget, one in zip(budgets, results, strict=True)
    ]
    return records
