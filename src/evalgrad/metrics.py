"""The exact metrics that the losses follow: the promise, executable. Plain torch, same hard cases as the losses."""

from collections.abc import Sequence

import torch
from torch import Tensor

from evalgrad import _checks
from evalgrad._masking import valid_mask
from evalgrad._ranking import against_the_model


def jaccard_counts(prediction: Tensor, target: Tensor, *, num_classes: int, ignore_index: int | None = None) -> Tensor:
    """Intersection, predicted and true pixels of every class in every image: ``(N, C, 3)`` integers.

    Counts of several batches or ranks add up (over the first axis) to those of the dataset; `jaccard_from_counts` does the rest.

    Args:
        prediction: ``(N, *)`` predicted class indices; for binary tasks `logits > 0`.
        target: the same shape, true class indices.
        num_classes: C.
        ignore_index: label of pixels that are as if absent.
    """
    function = "jaccard_counts"
    _checks.check_integer(function, "num_classes", num_classes, low=1, repair="Pass the number of classes, 2 for binary tasks.")
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
    counts = counts.scatter_add(2, torch.stack([hit, predicted, true]), torch.ones_like(true).expand(3, -1, -1))
    return counts[:, :, :-1].permute(1, 2, 0)


def jaccard_from_counts(counts: Tensor, *, classes: str | Sequence[int] = "present", absent: str = "one") -> Tensor:
    """Mean Jaccard index of groups from their counts ``(G, C, 3)``: over the classes of each group, then over the groups.

    Args:
        counts: intersection, predicted and true pixels, as `jaccard_counts` returns them, summed over whatever is one group.
        classes: ``"present"`` averages over the classes that occur in the group's target, ``"all"`` over all C, a list over those
            it names.
        absent: a class neither predicted nor true, 0/0: ``"one"`` counts it as 1, ``"skip"`` leaves it out.

    Returns:
        The mean as a float64 scalar; NaN if there is nothing to average.
    """
    _checks.check_option("jaccard_from_counts", "absent", absent, ("one", "skip"))
    hit, predicted, true = counts.double().unbind(-1)
    union = predicted + true - hit
    counted = _chosen(true > 0, classes) & (true.sum(1, keepdim=True) > 0)  # a void group is left out
    if absent == "skip":
        counted = counted & (union > 0)
    index = torch.where(union > 0, hit / union.clamp(min=1), 1.0)
    classes_counted = counted.sum(1)
    mean = torch.where(counted, index, 0.0).sum(1) / classes_counted
    return mean[classes_counted > 0].mean()


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
        prediction: ``(N, *)`` predicted class indices; for binary tasks `logits > 0` with ``num_classes=2, classes=[1]``.
        target: the same shape, true class indices.
        num_classes: C.
        over: ``"dataset"`` counts over all N images, ``"image"`` takes the mean over images, ``"batch"`` the mean over
            consecutive batches of `batch_size` images.
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


def topk_error(scores: Tensor, target: Tensor, *, k: int = 5, ignore_index: int | None = None) -> Tensor:
    """Share of the samples whose label is not among the k best scores.

    Ties count against the model: a sample is right if fewer than k of the other classes score at least as much as its label, so
    that constant scores are wrong, not perfect. A NaN score counts against the model too.

    Args:
        scores: ``(N, C)`` or ``(N, C, *)`` scores.
        target: ``(N,)`` or ``(N, *)`` class indices.
        k: number of guesses, 1 to C.
        ignore_index: label of samples that are as if absent.

    Returns:
        The share as a float64 scalar; NaN if there is nothing to average.

    Example:
        >>> topk_error(torch.tensor([[3.0, 2.0, 1.0], [1.0, 1.0, 1.0]]), torch.tensor([1, 0]), k=2)
        tensor(0.5000, dtype=torch.float64)
    """
    function = "topk_error"
    _checks.check_floating(function, "scores", scores, at_least=2)
    classes = scores.shape[1]
    _checks.check_integer(function, "k", k, low=1, high=classes, repair=f"There are {classes} classes on axis 1.")
    _checks.check_ignore_index(function, ignore_index)
    _checks.check_target(function, target, scores, (scores.shape[0], *scores.shape[2:]))
    mask = valid_mask(target, ignore_index)
    _checks.check_labels(function, target, classes, mask)
    label = target.long() if mask is None else target.long().where(mask, 0)
    own = scores.gather(1, label.unsqueeze(1))
    ahead = (~(scores < own)).sum(1) - 1  # without the label itself
    wrong = (ahead >= k) if mask is None else (ahead >= k)[mask]
    return wrong.double().mean()


def average_precision(scores: Tensor, target: Tensor, *, mask: Tensor | None = None, reduction: str = "mean") -> Tensor:
    """Average precision of rankings: the mean over the positives of the precision at their place.

    Ties count against the model: a negative tied with a positive ranks above it. (scikit-learn puts a threshold behind the tied
    group instead; without ties both agree.)

    Args:
        scores: ``(*, n)``, what ranks the n items of each list.
        target: the same shape, 1 or True for positives.
        mask: bool, the same shape, True = counts; items left out are as if absent.
        reduction: over lists ``"mean"``; ``"none"``: the leading axes.

    Returns:
        float64. A list without a positive or without a negative is left out of the mean and is NaN under "none"; so is the mean of
        nothing. A NaN score that counts makes its list NaN.

    Example:
        >>> average_precision(torch.tensor([0.9, 0.8, 0.7]), torch.tensor([1, 0, 1]))
        tensor(0.8333, dtype=torch.float64)
    """
    function = "average_precision"
    hits, live = _ranked_hits(function, scores, target, mask, reduction)
    rank = torch.arange(1, hits.shape[-1] + 1, device=hits.device, dtype=hits.dtype)
    return _mean_over_lists((hits * hits.cumsum(-1) / rank).sum(-1) / hits.sum(-1), live, reduction)


def ndcg(scores: Tensor, target: Tensor, *, k: int | None = None, mask: Tensor | None = None, reduction: str = "mean") -> Tensor:
    """Normalised discounted cumulative gain of rankings, for binary relevance: gain 1/log2(1 + rank).

    Ties count against the model: an irrelevant item tied with a relevant one ranks above it. (scikit-learn averages over the
    orders of tied items; without ties both agree.)

    Args:
        scores: ``(*, n)``, what ranks the n items of each list.
        target: the same shape, 1 or True for relevant items.
        k: count the first k places only, in the gain and in the ideal gain; None counts all.
        mask: as `average_precision`.
        reduction: as `average_precision`.

    Returns:
        As `average_precision`.

    Example:
        >>> ndcg(torch.tensor([0.9, 0.8, 0.7]), torch.tensor([0, 1, 0]))
        tensor(0.6309, dtype=torch.float64)
    """
    function = "ndcg"
    if k is not None:
        _checks.check_integer(function, "k", k, low=1, repair="Pass the number of places that count; None counts all.")
    hits, live = _ranked_hits(function, scores, target, mask, reduction)
    discount = 1 / torch.log2(torch.arange(2, hits.shape[-1] + 2, device=hits.device, dtype=hits.dtype))
    ideal = hits.sort(dim=-1, descending=True).values
    gain, best = ((x * discount)[..., :k].sum(-1) for x in (hits, ideal))
    return _mean_over_lists(gain / best, live, reduction)


def _ranked_hits(function: str, scores: Tensor, target: Tensor, mask: Tensor | None, reduction: str) -> tuple[Tensor, Tensor]:
    """Which places of the ranking hold positives, 1.0 or 0.0, all NaN after a NaN score; and which lists are not void."""
    _checks.check_option(function, "reduction", reduction, ("mean", "none"))
    _checks.check_floating(function, "scores", scores)
    _checks.check_target(function, target, scores, scores.shape)
    _checks.check_bool(function, "mask", mask, scores)
    _checks.check_binary(function, target, mask)
    positive, negative, nan = target == 1, target != 1, scores.isnan()
    if mask is not None:
        positive, negative, nan = positive & mask, negative & mask, nan & mask
    _, order = against_the_model(scores, positive, mask)
    hits = positive.gather(-1, order).to(torch.float64)
    return hits.masked_fill(nan.any(-1, keepdim=True), torch.nan), positive.any(-1) & negative.any(-1)


def _mean_over_lists(values: Tensor, live: Tensor, reduction: str) -> Tensor:
    return values.masked_fill(~live, torch.nan) if reduction == "none" else values[live].mean()
