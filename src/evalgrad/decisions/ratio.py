"""Labels with the highest mean IoU over a whole dataset, by the ratio of expectations."""

from typing import NamedTuple

import torch
from torch import Tensor

from evalgrad._errors import describe, fail
from evalgrad._inputs import like, with_values
from evalgrad._labels import read_mask
from evalgrad._options import checked, integer
from evalgrad.decisions.masks import check_shares, read_probabilities

STEPS = integer(1, repair="Some twenty are enough.")
TINY = 1e-12  # below the expected pixels of any class that matters
PARTS = 64  # how finely the pixels that gain are cut


@checked(steps=STEPS)
def dataset_jaccard_labels(
    probabilities: Tensor, *, mask: Tensor | None = None, steps: int = 20
) -> Tensor:
    """Labels that raise the mean over classes of E[intersection] / E[union] over all images.

    Approximate: with exclusive classes no exact algorithm is known. Over many pixels intersections
    and unions are close to their expectations, whose ratios are raised from the labels of argmax
    on: the pixels that gain most by another label, to first order, change it, as many of them as
    raise the mean, until none do.

    Args:
        probabilities: ``(N, C, *)`` calibrated class probabilities of all images that are judged
            together.
        mask: bool ``(N, *)``, True = keep; the other pixels keep the label of argmax.
        steps: maximum number of steps.

    Returns:
        ``(N, *)`` int64 labels.

    Example:
        >>> p = torch.tensor([[[0.9, 0.6, 0.55], [0.1, 0.4, 0.45]]])
        >>> dataset_jaccard_labels(p)  # argmax would never say 1
        tensor([[0, 0, 1]])
    """
    pixels = pixels_of("dataset_jaccard_labels", probabilities, mask)
    label = pixels.label
    for _ in range(steps):
        changed = _step(pixels.rows, label)
        if changed is None:
            break
        label = changed
    return pixels.with_labels(label)


@checked()
def greedy_jaccard_labels(probabilities: Tensor, *, mask: Tensor | None = None) -> Tensor:
    """Labels that raise the objective of `dataset_jaccard_labels` one pixel at a time, until no
    single change does.

    Approximate: a local maximum of the ratio of expectations, from the labels of argmax on. Each
    change is the best over all pixels and classes, and its cost is proportional to their number, so
    this is for batches of images, not for whole datasets; `dataset_jaccard_labels` changes many
    pixels at a time, and stops earlier. The objective is that of Nowozin: Optimal decisions from
    probabilistic models: the intersection-over-union case, CVPR 2014, whose own algorithm is a
    linear program.

    Args:
        probabilities: ``(N, C, *)`` calibrated class probabilities of all images that are judged
            together.
        mask: bool ``(N, *)``, True = keep; the other pixels keep the label of argmax.

    Returns:
        ``(N, *)`` int64 labels.

    Example:
        >>> p = torch.tensor([[[0.9, 0.6, 0.55], [0.1, 0.4, 0.45]]])
        >>> greedy_jaccard_labels(p)
        tensor([[0, 0, 1]])
    """
    pixels = pixels_of("greedy_jaccard_labels", probabilities, mask)
    rows, label = pixels.rows, pixels.label.clone()
    while len(label):
        gains = _exact_gains(rows, label)
        best = int(gains.argmax())
        if not gains.flatten()[best] > TINY:
            break
        label[best // rows.shape[1]] = best % rows.shape[1]
    return pixels.with_labels(label)


class Pixels(NamedTuple):
    """The pixels that count, with the labels of argmax."""

    rows: Tensor  # (pixels, C) float64 probabilities
    label: Tensor  # (pixels,)
    counts: Tensor  # (all pixels,) bool
    chosen: Tensor  # (all pixels,) argmax
    shape: tuple[int, ...]  # of the result

    def with_labels(self, label: Tensor) -> Tensor:
        """The labels of all pixels, those that do not count as argmax has them."""
        return self.chosen.masked_scatter(self.counts, label).reshape(self.shape)


def pixels_of(function: str, probabilities: object, mask: object) -> Pixels:
    """Probabilities ``(N, C, *)``, C >= 2, and perhaps a mask ``(N, *)``."""
    p = with_values(
        function, "probabilities", read_probabilities(function, probabilities, at_least=2)
    )
    if p.shape[1] < 2:
        repair, must = "For one class use jaccard_mask.", "(N, C, *) with C >= 2"
        fail(ValueError, function, "probabilities", must, describe(p), repair)
    rows = p.movedim(1, -1).flatten(0, -2).double()
    chosen = rows.argmax(1)
    counts = torch.ones_like(chosen, dtype=torch.bool)
    if mask is not None:
        counts = read_mask(function, like(function, "mask", mask, p[:, 0]).flatten())
    counted = rows[counts]
    check_shares(function, counted, "Pass `logits.softmax(1)`.")
    return Pixels(counted, chosen[counts], counts, chosen, (p.shape[0], *p.shape[2:]))


def _exact_gains(rows: Tensor, label: Tensor) -> Tensor:
    """What the sum of the ratios gains if one pixel goes over to a class, ``(pixels, C)``."""
    hits, union = _expected(rows, label)
    before = hits / union.clamp(min=TINY)
    there = (hits + rows) / (union + 1 - rows).clamp(min=TINY) - before
    own = label[:, None]
    left = ((hits - rows) / (union - 1 + rows).clamp(min=TINY) - before).gather(1, own)
    return (there + left).scatter(1, own, 0.0)


def _step(rows: Tensor, label: Tensor) -> Tensor | None:
    """Labels with a higher mean ratio, or None."""
    hits, union = _expected(rows, label)
    union = union.clamp(min=TINY)
    # d(I/U) by one more pixel of a class: (p - (1 - p) I/U) / U
    slope = (rows - (1 - rows) * hits / union) / union
    gain, other = slope.max(1)
    gain = gain - slope.gather(1, label[:, None])[:, 0]
    order = gain.argsort(descending=True)[: int((gain > 0).sum())]
    if not len(order):
        return None
    # What the first 64th of them, the first two 64ths, .. would change in each class.
    part = torch.arange(len(order), device=rows.device) * PARTS // len(order)
    more_hits, more_pixels = rows.new_zeros(2, PARTS * rows.shape[1]).unbind()
    for sign, classes in ((-1.0, label[order]), (1.0, other[order])):
        cell = part * rows.shape[1] + classes
        p = rows[order].gather(1, classes[:, None])[:, 0]
        more_hits.scatter_add_(0, cell, sign * p)
        more_pixels.scatter_add_(0, cell, torch.full_like(p, sign))
    more = torch.stack([more_hits, more_pixels]).reshape(2, PARTS, -1).cumsum(1)
    values = _mean_ratio(hits + more[0], union + more[1] - more[0])
    best = values.argmax()
    if not values[best] > _mean_ratio(hits, union) + TINY:
        return None
    taken = order[part <= best]
    return label.index_copy(0, taken, other[taken])


def _expected(rows: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """Expected intersection and union of each class."""
    own = rows.gather(1, label[:, None])[:, 0]
    zeros = rows.new_zeros(rows.shape[1])
    hits = zeros.scatter_add(0, label, own)
    return hits, rows.sum(0) + zeros.scatter_add(0, label, torch.ones_like(own)) - hits


def _mean_ratio(hits: Tensor, union: Tensor) -> Tensor:
    return (hits / union.clamp(min=TINY)).mean(-1)
