"""The Jaccard index (IoU) of hard predictions, from counts that add up over batches and ranks."""

from typing import Literal

import torch
from torch import Tensor

from evalgrad._errors import describe, fail
from evalgrad._inputs import check_classes, like, plain
from evalgrad._labels import IGNORED, binary_labels, class_labels
from evalgrad._options import Classes, checked, integer, one_of
from evalgrad._rows import chosen_classes, exact_dtype
from evalgrad.metrics.class_counts import class_counts
from evalgrad.metrics.curves import mean, settled

Over = Literal["dataset", "batch", "image"]

# What an image with an undeclared label counts where labels cannot be read: so far below 0 that no
# sum over images comes back to it, and that a million such images do not leave int64.
UNDECLARED_COUNT = -(2**42)

LEAVE_OUT = {
    "target": "pass ignore_index={value}",
    "prediction": "mark them in the target by `ignore_index`",
}


@checked()
def jaccard_counts(
    prediction: Tensor, target: Tensor, *, num_classes: int, ignore_index: int | None = None
) -> Tensor:
    """Intersection, predicted and true pixels of every class in every image: ``(N, C, 3)``
    integers.

    Counts of several batches or ranks add up (over the first axis) to those of the dataset;
    `jaccard_from_counts` does the rest.

    Args:
        prediction: ``(N, *)`` predicted class indices; for binary tasks `logits > 0`.
        target: ``(N, *)`` or ``(N, 1, *)``, true class indices. With two classes both may be
            floating-point masks of 0 and 1.
        num_classes: C.
        ignore_index: label of pixels that are as if absent.

    Returns:
        int64. Under compile, vmap or on a GPU, where labels are not read, an image with an
        undeclared label has negative counts, and the index of every group that it is in is NaN.

    Example:
        >>> prediction, target = torch.tensor([[0, 1, 1]]), torch.tensor([[0, 0, 1]])
        >>> jaccard_counts(prediction, target, num_classes=2)
        tensor([[[1, 1, 2],
                 [1, 2, 1]]])
    """
    return _counts("jaccard_counts", prediction, target, num_classes, ignore_index)


def _counts(
    function: str, prediction: object, target: object, num_classes: int, ignore_index: int | None
) -> Tensor:
    predicted = plain(function, "prediction", prediction)
    true = like(function, "target", target, predicted, "prediction")
    wanted, not_true = _labels(function, "target", true, num_classes, ignore_index)
    # What is predicted where nothing counts may be anything.
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
        repair = "Of scores take the best class, `scores.argmax(1)`; else convert with `.long()`."
        fail(TypeError, function, argument, must, describe(x), repair)
    binary = binary_labels(function, rows, argument, None, ignore_index, leave_out)
    label = binary.positive.long()
    label = label if binary.mask is None else torch.where(binary.mask, label, IGNORED)
    return label, binary.invalid


@checked()
def jaccard_from_counts(
    counts: Tensor, *, classes: Classes = "present", zero_division: float = 1.0
) -> Tensor:
    """Mean Jaccard index of groups from their counts ``(G, C, 3)``: over the classes of each group,
    then over the groups.

    Args:
        counts: intersection, predicted and true pixels, as `jaccard_counts` returns them, summed
            over whatever is one group.
        classes: ``"present"`` averages over the classes that occur in the group's target, ``"all"``
            over all C, a list over those it names.
        zero_division: value of 0/0, a class neither predicted nor true; NaN leaves it out.

    Returns:
        The mean as a float64 scalar. A group in which nothing counts is left out; the mean of no
        group is NaN.

    Example:
        >>> counts = torch.tensor([[[1, 1, 2], [1, 2, 1], [0, 0, 0]]])
        >>> jaccard_from_counts(counts, classes="all")
        tensor(0.6667, dtype=torch.float64)
        >>> jaccard_from_counts(counts, classes="all", zero_division=float("nan"))
        tensor(0.5000, dtype=torch.float64)
    """
    function = "jaccard_from_counts"
    counts = plain(function, "counts", counts)
    if counts.ndim != 3 or counts.shape[2] != 3:
        repair = "Counts of one group need its axis: `counts.unsqueeze(0)`."
        fail(ValueError, function, "counts", "(G, C, 3)", describe(counts), repair)
    return _index(function, counts, classes, zero_division)


def _index(function: str, counts: Tensor, classes: Classes, zero_division: float) -> Tensor:
    num_classes = counts.shape[1]
    check_classes(function, classes, num_classes)
    right, predicted, true = counts.to(exact_dtype(counts)).unbind(-1)
    union = predicted + true - right
    chosen = true > 0 if classes == "present" else chosen_classes(true, classes)
    void = ~chosen | (true.sum(1, keepdim=True) == 0)
    broken = (counts < 0).flatten(1).any(1, keepdim=True)
    index, weight = settled(right / union, union == 0, void, broken, zero_division)
    return mean(mean(index, weight), (weight.sum(1) > 0).to(weight))


@checked(over=one_of("dataset", "batch", "image"))
def jaccard_index(
    prediction: Tensor,
    target: Tensor,
    *,
    num_classes: int,
    over: Over = "dataset",
    batch_size: int | None = None,
    classes: Classes = "present",
    zero_division: float = 1.0,
    ignore_index: int | None = None,
) -> Tensor:
    """Mean Jaccard index (mIoU) of hard predictions.

    Args:
        prediction: ``(N, *)`` predicted class indices; for binary tasks `logits > 0` with
            ``num_classes=2, classes=[1]``.
        target: ``(N, *)`` or ``(N, 1, *)``, true class indices. With two classes both may be
            floating-point masks of 0 and 1.
        num_classes: C.
        over: ``"dataset"`` counts over all N images, ``"image"`` takes the mean over images,
            ``"batch"`` the mean over consecutive batches of `batch_size` images.
        batch_size: for ``over="batch"``.
        classes: as `jaccard_from_counts`.
        zero_division: as `jaccard_from_counts`.
        ignore_index: label of pixels that are as if absent.

    Returns:
        As `jaccard_from_counts`.

    Example:
        >>> jaccard_index(torch.tensor([[0, 1, 1]]), torch.tensor([[0, 0, 1]]), num_classes=2)
        tensor(0.5000, dtype=torch.float64)
    """
    function = "jaccard_index"
    counts = _counts(function, prediction, target, num_classes, ignore_index)
    if over == "batch":
        repair = 'Pass the number of images per batch together with over="batch".'
        integer(1, repair=repair)(function, "batch_size", batch_size)
        counts = torch.stack([chunk.sum(0) for chunk in counts.split(batch_size or 1)])
    elif over == "dataset":
        counts = counts.sum(0, keepdim=True)
    return _index(function, counts, classes, zero_division)
