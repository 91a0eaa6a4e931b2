"""What a loss may need to know about the training data, such as how frequent the classes are."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from evalgrad_lab.data.dataset import Examples
from evalgrad_lab.errors import UserError
from evalgrad_lab.loss_factories import is_number

STEEPEST = 10  # power of a frequency in class weights, which stay finite


@dataclass(frozen=True)
class Given:
    """What a loss may need to know about the data and the training."""

    train: Examples
    num_classes: int
    ignore_index: int | None = None
    ranks: int = 1

    @cached_property
    def class_counts(self) -> Tensor:
        """Items of each class in the training data. Masks are read from files, all of them."""
        count, target = torch.zeros(self.num_classes, dtype=torch.double), self.train.target
        assert target is not None
        places = range(0 if isinstance(target, Tensor) else len(target))
        for part in [target] if isinstance(target, Tensor) else (target[i] for i in places):
            labels = part if self.ignore_index is None else part[part != self.ignore_index]
            count += torch.bincount(labels.flatten(), minlength=self.num_classes)
        return count


def class_weights(given: Given, power: float) -> list[float]:
    """frequency ** -power of each class, with mean 1: power 0 is unweighted, 1 the inverse."""
    if not (is_number(power) and 0 <= power <= STEEPEST):
        raise UserError(
            f"--loss-options: weight_power must be a number from 0 to {STEEPEST}; got {power!r}. 0"
            " weighs all classes alike, 1 by the inverse of their frequency."
        )
    weight = given.class_counts.clamp(min=1) ** -power
    return (weight / weight.mean()).tolist()


def check_weight(weight: Any, classes: int) -> None:
    """The user's own class weights."""
    right = isinstance(weight, list) and len(weight) == classes and all(map(is_number, weight))
    if not right or not all(0 <= one < math.inf for one in weight) or not any(weight):
        raise UserError(
            f"--loss-options: weight must be a list of {classes} numbers, one for each class, at"
            f" least 0 and not all 0; got {weight!r}. weight_power of weighted_cross_entropy"
            " computes it from the training data."
        )
