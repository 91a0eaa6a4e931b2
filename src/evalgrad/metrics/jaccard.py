"""The Jaccard index (IoU) of hard predictions, from counts that add up over batches and ranks."""

from collections.abc import Sequence

import torch
from torch import Tensor

from evalgrad._inputs import like, plain
from evalgrad._labels import class_labels
from evalgrad._options import CHECKS, checked, integer, one_of


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
        target: the same shape, true class indices.
        num_classes: C.
        ignore_index: label of pixels that are as if absent.
    """
    function = "jaccard_counts"
    predicted = plain(function, "prediction", prediction)
    shape = (predicted.shape[0], predicted.shape[1:].numel())
    true = like(function, "target", target, predicted).reshape(shape)
    labels = class_labels(function, true, num_classes, ignore_index)
    counted = labels.label >= 0
    predicted = torch.where(counted, predicted.reshape(shape).long(), 0)
    class_labels(function, predicted, num_classes, None, argument="prediction")
    behind = torch.full_like(predicted, num_classes)  # a class behind the last: what is ignored
    predicted, true = (torch.where(counted, t, behind) for t in (predicted, labels.label))
    hit = torch.where(predicted == true, true, behind)
    counts = true.new_zeros(3, true.shape[0], num_classes + 1)
    counts = counts.scatter_add(
        2, torch.stack([hit, predicted, true]), torch.ones_like(true).expand(3, -1, -1)
    )
    return counts[:, :, :-1].permute(1, 2, 0)


def jaccard_from_counts(
    counts: Tensor, *, classes: str | Sequence[int] = "present", absent: str = "one"
) -> Tensor:
    """Mean Jaccard index of groups from their counts ``(G, C, 3)``: over the classes of each group,
    then over the groups.

    Args:
        counts: intersection, predicted and true pixels, as `jaccard_counts` returns them, summed
            over whatever is one group.
        classes: ``"present"`` averages over the classes that occur in the group's target, ``"all"``
            over all C, a list over those it names.
        absent: a class neither predicted nor true, 0/0: ``"one"`` counts it as 1, ``"skip"`` leaves
            it out.

    Returns:
        The mean as a float64 scalar; NaN if there is nothing to average.
    """
    one_of("one", "skip")("jaccard_from_counts", "absent", absent)
    hit, predicted, true = counts.double().unbind(-1)
    union = predicted + true - hit
    # a void group is left out
    counted = _chosen(true > 0, classes) & (true.sum(1, keepdim=True) > 0)
    if absent == "skip":
        counted = counted & (union > 0)
    index = torch.where(union > 0, hit / union.clamp(min=1), 1.0)
    classes_counted = counted.sum(1)
    mean = torch.where(counted, index, 0.0).sum(1) / classes_counted.clamp(min=1)
    return mean.sum() / (classes_counted > 0).sum()  # no group: 0/0 is NaN


def _chosen(present: Tensor, classes: str | Sequence[int]) -> Tensor:
    if isinstance(classes, str):
        CHECKS["classes"]("jaccard_from_counts", "classes", classes)
        return present if classes == "present" else torch.ones_like(present)
    index = torch.tensor(list(classes), dtype=torch.int64, device=present.device)
    return torch.zeros_like(present).index_fill(1, index, True)


def jaccard_index(
    prediction: Tensor,
    target: Tensor,
    *,
    num_classes: int,
    over: str = "dataset",
    batch_size: int | None = None,
    classes: str | Sequence[int] = "present",
    absent: str = "one",
    ignore_index: int | None = None,
) -> Tensor:
    """Mean Jaccard index (mIoU) of hard predictions.

    Args:
        prediction: ``(N, *)`` predicted class indices; for binary tasks `logits > 0` with
            ``num_classes=2, classes=[1]``.
        target: the same shape, true class indices.
        num_classes: C.
        over: ``"dataset"`` counts over all N images, ``"image"`` takes the mean over images,
            ``"batch"`` the mean over consecutive batches of `batch_size` images.
        batch_size: for ``over="batch"``.
        classes: as `jaccard_from_counts`.
        absent: as `jaccard_from_counts`.
        ignore_index: label of pixels that are as if absent.

    Example:
        >>> jaccard_index(torch.tensor([[0, 1, 1]]), torch.tensor([[0, 0, 1]]), num_classes=2)
        tensor(0.5000, dtype=torch.float64)
    """
    one_of("dataset", "batch", "image")("jaccard_index", "over", over)
    counts = jaccard_counts(prediction, target, num_classes=num_classes, ignore_index=ignore_index)
    if over == "batch":
        repair = 'Pass the number of images per batch together with over="batch".'
        integer(1, repair=repair)("jaccard_index", "batch_size", batch_size)
        counts = torch.stack([chunk.sum(0) for chunk in counts.split(batch_size or 1)])
    elif over == "dataset":
        counts = counts.sum(0, keepdim=True)
    return jaccard_from_counts(counts, classes=classes, absent=absent)
