"""The phases of a training: the goal's loss or the user's, what it needs of the data, and how the baseline is mixed in."""

from typing import Any

import torch

import evalgrad as eg
from evalgrad.lab import objectives
from evalgrad.lab.errors import UserError
from evalgrad.lab.schedules import Mix
from evalgrad.lab.training.examples import Examples
from evalgrad.lab.training.goals import Goal
from evalgrad.lab.training.module import Phase

BASELINES = {"segmentation": "cross_entropy", "classification": "cross_entropy", "binary segmentation": "bce", "ranking": "bce"}


def kind_of(loss: str, goal: Goal, num_classes: int) -> str:
    """The kind of task that the loss sees; a loss for another task is told."""
    kinds = objectives.find(loss).kinds
    if goal.task in kinds:
        return goal.task
    if goal.task == "segmentation" and "binary segmentation" in kinds:
        if num_classes != 2:
            raise UserError(f"--loss {loss} is for two classes; the data have {num_classes}. Take lovasz_softmax.")
        return "binary segmentation"
    raise UserError(f"--loss {loss} is for {' and '.join(kinds)}, and --task is {goal.task}. `evalgrad losses` lists those for it.")


def plan(
    loss: str, options: dict[str, Any], kind: str, mix: Mix | None, steps: int, train: Examples, num_classes: int, ignore_index: int
) -> list[Phase]:
    """One phase, or two for "baseline first"."""
    baseline = BASELINES[kind]
    if mix is not None and loss == baseline:
        raise UserError(f"--mix mixes the baseline {baseline} with another loss; --loss is {baseline} itself. Drop --mix.")
    names = [loss]
    if mix is not None and mix.order == "then":
        names = [baseline, loss]
    elif mix is not None:
        names = [f"{baseline}+{loss}"]
        options = {loss: options, "share": mix.share}
    lengths = (steps,) if mix is None else mix.lengths(steps)
    phases = []
    for name, length in zip(names, lengths, strict=True):
        given = {} if name != names[-1] else options
        made = objectives.make(name, _with_data(name, given, kind, train, num_classes, ignore_index))
        phases.append(Phase(made, objectives.find(name).takes_index, length))
    return phases


def _with_data(
    name: str, options: dict[str, Any], kind: str, train: Examples, num_classes: int, ignore_index: int
) -> dict[str, Any]:
    """The options with what the loss needs of the training data, where the user has not said it."""
    if "+" in name:
        parts = {part: _with_data(part, options.get(part, {}), kind, train, num_classes, ignore_index) for part in name.split("+")}
        return {**options, **parts}
    known: dict[str, Any] = {"ignore_index": ignore_index} if "segmentation" in kind else {}
    needs = objectives.find(name).needs
    if needs and needs not in options:
        known[needs] = _labels(train) if needs == "labels" else _class_weights(train, num_classes, ignore_index)
    return {**known, **options}


def _labels(train: Examples) -> torch.Tensor:
    assert train.targets is not None
    return torch.stack([train.targets[i] for i in range(len(train))])


def _class_weights(train: Examples, num_classes: int, ignore_index: int) -> list[float]:
    targets = train.targets
    assert targets is not None
    if targets[0].ndim == 0:
        weights = eg.inverse_frequency_weights(_labels(train)[:, None], num_classes=num_classes)
    else:
        stream = (targets[i][None] for i in range(len(train)))
        weights = eg.median_frequency_weights(stream, num_classes=num_classes, ignore_index=ignore_index)
    return [float(w) for w in weights]
