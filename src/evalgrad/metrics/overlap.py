"""The overlap of hard predictions with the truth, class by class: Jaccard, Dice and Tversky, from
counts that add up over batches and ranks.

    index = hits / (hits + misses x number of misses + false_alarms x number of false alarms)
"""

from typing import Literal

import torch
from torch import Tensor

from evalgrad._errors import describe, fail
from evalgrad._inputs import WORKING, check_classes, floating, like, plain
from evalgrad._labels import IGNORED, binary_labels, class_labels
from evalgrad._options import Classes, integer, one_of
from evalgrad._rows import chosen_classes, exact_dtype
from evalgrad.metrics.class_counts import class_counts
from evalgrad.metrics.curves import mean, settled

Over = Literal["dataset", "batch", "image"]
over_choice = one_of("dataset", "batch", "image")

# What an image with an undeclared label counts where labels cannot be read: so far below 0 that no
# sum over images comes back to it, and that a million such images do not leave int64.
UNDECLARED_COUNT = -(2**42)

LEAVE_OUT = {
    "target": "pass ignore_index={value}",
    "prediction": "mark them in the target and pass `ignore_index`",
}


def pixel_counts(
    function: str, prediction: object, target: object, num_classes: int, ignore_index: int | None
) -> Tensor:
    """Pixels right, predicted and true of every class in every image: ``(N, C, 3)``."""
    predicted = plain(function, "prediction", prediction)
    if predicted.is_floating_point():
        predicted = floating(function, "prediction", predicted, at_least=0)
    true = like(function, "target", target, predicted, "prediction")
    wanted, not_true = _labels(function, "target", true, num_classes, ignore_index)
    # What is predicted where nothing counts may be anything.
    if not predicted.is_floating_point() and not predicted.is_complex():
        predicted = predicted.long()
    predicted = predicted.masked_fill((wanted < 0).reshape(predicted.shape), 0)
    found, not_predicted = _labels(function, "prediction", predicted, num_classes, None)
    counts = class_counts(found, torch.where(found < 0, found, wanted), num_classes)
    for invalid in (not_true, not_predicted):
        if invalid is not None:
            counts = counts.masked_fill(invalid[:, None, None], UNDECLARED_COUNT)
    return counts


def _labels(
    function: str, argument: str, x: Tensor, num_classes: int, ignore_index: int | None
) -> tuple[Tensor, Tensor | None]:
    """Labels ``(N, pixels)`` of a map ``(N, *)``, and which images hold an undeclared one."""
    rows = x.reshape(x.shape[0], x.shape[1:].numel()) if x.ndim else x.reshape(1, 1)
    leave_out = LEAVE_OUT[argument]
    if not x.is_floating_point() and not x.is_complex():
        words = {"leave_out": leave_out, "more": "pass num_classes={number}"}
        found = class_labels(function, rows, num_classes, ignore_index, argument=argument, **words)
        return found.label, found.invalid
    if num_classes != 2:
        must = "an integer or bool tensor of class indices"
        repair = (
            "For scores pass the best class, `scores.argmax(1)`; otherwise convert with `.long()`."
        )
        fail(TypeError, function, argument, must, describe(x), repair)
    binary = binary_labels(function, rows, argument, None, ignore_index, leave_out)
    label = binary.positive.long()
    label = label if binary.mask is None else torch.where(binary.mask, label, IGNORED)
    return label, binary.invalid


def mean_index(
    function: str,
    counts: Tensor,
    classes: Classes,
    zero_division: float,
    misses: float = 1.0,
    false_alarms: float = 1.0,
) -> Tensor:
    """Mean index of groups from their counts ``(G, C, 3)``; by default the Jaccard index."""
    if counts.ndim != 3 or counts.shape[2] != 3:
        repair = "For one group add a dimension: `counts.unsqueeze(0)`."
        fail(ValueError, function, "counts", "(G, C, 3)", describe(counts), repair)
    check_classes(function, classes, counts.shape[1])
    counts = counts.to(exact_dtype(counts))
    right, predicted, true = counts.unbind(-1)
    size = right + misses * (true - right) + false_alarms * (predicted - right)
    chosen = true > 0 if classes == "present" else chosen_classes(true, classes)
    void = ~chosen | (true.sum(1, keepdim=True) == 0)
    broken = (counts < 0).flatten(1).any(1, keepdim=True)
    index, weight = settled(right / size, size == 0, void, broken, zero_division)
    return mean(mean(index, weight), (weight.sum(1) > 0).to(weight))


def given_counts(function: str, counts: object) -> Tensor:
    """Counts as a user has them: integers, or sums that have become floats."""
    found = plain(function, "counts", counts)
    if found.is_complex() or (found.is_floating_point() and found.dtype not in WORKING):
        repair = "Pass what `jaccard_counts` returns."
        fail(TypeError, function, "counts", "integers or floats", describe(found), repair)
    return found


BATCH_SIZE = integer(1, none=True, repair="Pass the number of images per batch.")


def in_groups(function: str, counts: Tensor, over: Over, batch_size: int | None) -> Tensor:
    """Counts of images added up over what is one group: ``(G, C, 3)``."""
    if over == "batch":
        repair = 'Pass the number of images per batch together with over="batch".'
        integer(1, repair=repair)(function, "batch_size", batch_size)
        return torch.stack([chunk.sum(0) for chunk in counts.split(batch_size or 1)])
    return counts.sum(0, keepdim=True) if over == "dataset" else counts
