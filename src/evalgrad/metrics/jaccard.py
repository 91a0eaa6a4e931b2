"""The Jaccard index (IoU) of hard predictions, from counts that add up over batches and ranks."""

from collections.abc import Sequence

import torch
from torch import Tensor

from evalgrad import _checks
from evalgrad._masking import valid_mask


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
    _checks.check_integer(
        function,
        "num_classes",
        num_classes,
        low=1,
        repair="Pass the number of classes, 2 for binary tasks.",
    )
    _checks.check_ignore_index(function, ignore_index)
    _checks.check_target(function, prediction, prediction, prediction.shape, argument="prediction")
    _checks.check_target(function, target, prediction, prediction.shape)
    mask = valid_mask(target, ignore_index)
    _checks.check_labels(function, target, num_classes, mask)
    _checks.check_labels(function, prediction, num_classes, mask, argument="prediction")
    predicted, true = prediction.long().flatten(1), target.long().flatten(1)
    behind = torch.full_like(true, num_classes)  # a class behind the last takes what does not count
    if mask is not None:
        predicted, true = (torch.where(mask.flatten(1), t, behind) for t in (predicted, true))
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
    _checks.check_option("jaccard_from_counts", "absent", absent, ("one", "skip"))
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
        _checks.check_option("jaccard_from_counts", "classes", classes, ("present", "all"))
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
    _checks.check_option("jaccard_index", "over", over, ("dataset", "batch", "image"))
    counts = jaccard_counts(prediction, target, num_classes=num_classes, ignore_index=ignore_index)
    if over == "batch":
        repair = 'Pass the number of images per batch together with over="batch".'
        _checks.check_integer("jaccard_index", "batch_size", batch_size, low=1, repair=repair)
        counts = torch.stack([chunk.sum(0) for chunk in counts.split(batch_size or 1)])
    elif over == "dataset":
        counts = counts.sum(0, keepdim=True)
    return jaccard_from_counts(counts, classes=classes, absent=absent)
