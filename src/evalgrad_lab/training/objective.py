"""The phases of a training: the goal's loss or the user's, what it needs of the data, and how the
baseline is mixed in.
"""

from dataclasses import dataclass
from typing import Any

import torch

import evalgrad as eg
from evalgrad_lab import losses
from evalgrad_lab.data.examples import Examples
from evalgrad_lab.errors import UserError
from evalgrad_lab.schedules import Mix
from evalgrad_lab.training.goals import Goal
from evalgrad_lab.training.module import Phase

# A mean over pixels or items: the mean over the ranks serves. Every other loss is computed on the
# batches of all ranks.
MEANS = ("cross_entropy", "weighted_cross_entropy", "bce", "hinge")
BASELINES = {
    "segmentation": "cross_entropy",
    "classification": "cross_entropy",
    "binary segmentation": "bce",
    "ranking": "bce",
}


def kind_of(loss: str, goal: Goal, num_classes: int) -> str:
    """The kind of task that the loss sees; a loss for another task is told."""
    kinds = losses.find(loss).kinds
    if goal.task in kinds:
        return goal.task
    if goal.task == "segmentation" and "binary segmentation" in kinds:
        if num_classes != 2:
            raise UserError(
                f"--loss {loss} is for two classes; the data have {num_classes}. Take"
                " lovasz_softmax."
            )
        return "binary segmentation"
    raise UserError(
        f"--loss {loss} is for {' and '.join(kinds)}, and --task is {goal.task}. `evalgrad losses`"
        " lists those for it."
    )


@dataclass(frozen=True)
class Given:
    """What the losses may ask of the data."""

    train: Examples
    num_classes: int
    ignore_index: int


def plan(
    loss: str, options: dict[str, Any], kind: str, mix: Mix | None, steps: int, given: Given
) -> list[Phase]:
    """One phase, or two where the baseline comes first."""
    baseline = BASELINES[kind]
    if mix is not None and loss == baseline:
        raise UserError(
            f"--mix mixes the baseline {baseline} with another loss; --loss is {baseline} itself."
            " Drop --mix."
        )
    if mix is None:
        return [_phase(loss, options, kind, steps, given)]
    if mix.order == "sum":
        return [
            _phase(f"{baseline}+{loss}", {loss: options, "share": mix.share}, kind, steps, given)
        ]
    first, second = mix.lengths(steps)
    return [_phase(baseline, {}, kind, first, given), _phase(loss, options, kind, second, given)]


def _phase(name: str, options: dict[str, Any], kind: str, steps: int, given: Given) -> Phase:
    loss, takes_index = (
        losses.make(name, _with_data(name, options, kind, given)),
        losses.find(name).takes_index,
    )
    # whole lists, of which each rank has its own
    by_list = given.train.lists is not None and not takes_index
    if name not in MEANS and not by_list:
        loss = eg.distributed.global_batch(loss, once="index" if takes_index else None)
    return Phase(loss, takes_index, steps)


def _with_data(name: str, options: dict[str, Any], kind: str, given: Given) -> dict[str, Any]:
    """The options with what the loss needs of the training data, where the user has not said it."""
    if options.get("solver") == "lagrangian":
        raise UserError(
            f"--loss-options: the solver of {name} must be ratio; lagrangian has steps of its own,"
            " see docs/s_measures.md."
        )
    if "+" in name:
        return {
            **options,
            **{
                part: _with_data(part, options.get(part, {}), kind, given)
                for part in name.split("+", 1)
            },
        }
    known: dict[str, Any] = {"ignore_index": given.ignore_index} if "segmentation" in kind else {}
    needs = losses.find(name).needs
    if needs and needs not in options:
        known[needs] = _labels(given.train) if needs == "labels" else _class_weights(given)
    return {**known, **options}


def _labels(train: Examples) -> torch.Tensor:
    assert train.targets is not None
    return torch.stack([train.targets[i] for i in range(len(train))])


def _class_weights(given: Given) -> list[float]:
    train, targets = given.train, given.train.targets
    assert targets is not None
    if targets[0].ndim == 0:
        weights = eg.inverse_frequency_weights(
            _labels(train)[:, None], num_classes=given.num_classes
        )
    else:
        stream = (targets[i][None] for i in range(len(train)))
        weights = eg.median_frequency_weights(
            stream, num_classes=given.num_classes, ignore_index=given.ignore_index
        )
    return [float(w) for w in weights]
