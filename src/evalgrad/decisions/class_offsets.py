"""What to add to the logits of each class before argmax, chosen on labelled data for mean IoU."""

from typing import NamedTuple

import torch
from torch import Tensor

from evalgrad._errors import fail
from evalgrad._inputs import class_maps
from evalgrad._labels import readable
from evalgrad._options import checked, integer

ROUNDS = integer(1, repair="A few are enough.")
CUTS = (
    255  # values tried for one class: quantiles of the offsets at which pixels change their class
)


@checked(rounds=ROUNDS)
def class_offsets(
    logits: Tensor, target: Tensor, *, ignore_index: int | None = None, rounds: int = 3
) -> Tensor:
    """Offsets ``(C,)`` that raise the mean IoU of ``(logits + offsets).argmax(1)`` on the given
    data.

    Class by class, with the others fixed, it tries 255 quantiles of the offsets at which pixels
    change to the class and keeps the best, so the mean IoU on these data never falls, up to the
    rounding of ``logits + offsets``. Call it on validation data. The mean is over the classes that
    occur in the target.

    Args:
        logits: ``(N, C, *)`` raw scores, of all validation images or a sample of their pixels; -inf
            excludes a class, inf makes it certain.
        target: ``(N, *)`` class indices.
        ignore_index: label of pixels to ignore.
        rounds: number of passes over the classes.

    Returns:
        ``(C,)`` of the dtype of the logits; ``logits + offsets.view(-1, 1, 1)`` for images.

    Example:
        >>> logits = torch.tensor([[[1.0, 1.0, 1.0, 0.0], [0.0, 0.8, 0.9, 0.0]]])
        >>> offsets = class_offsets(logits, torch.tensor([[0, 1, 1, 1]]))
        >>> (logits + offsets.view(-1, 1)).argmax(1)
        tensor([[0, 1, 1, 1]])
    """
    maps = class_maps(
        "class_offsets", logits, target, per_image=False, ignore_index=ignore_index, weight=None
    )
    label = maps.label.flatten()
    z = maps.x[0].detach().movedim(1, -1).flatten(0, 1).double()[label >= 0]
    label = label[label >= 0]
    _check_numbers(z)
    offsets = z.new_zeros(z.shape[1])
    if not len(z):
        return offsets.to(logits.dtype)
    two = _top_two(z)
    best = _start(two.classes[0], label, z.shape[1])
    for _ in range(rounds):
        for c in range(z.shape[1]):
            offset, value = _best_offset(z, two, label, c)
            if value > best:
                best = value
                offsets[c] += offset
                z[:, c] += offset
                # Only where c was, or now is, one of the two: else 150 classes take a minute.
                rows = ((two.classes == c).any(0) | (z[:, c] >= two.values[1])).nonzero()[:, 0]
                there = _top_two(z[rows])
                two.values[:, rows], two.classes[:, rows] = there.values, there.classes
    return (offsets - offsets.mean()).masked_fill(z.isnan().any(), torch.nan).to(logits.dtype)


def _check_numbers(z: Tensor) -> None:
    if readable(z) and bool(z.isnan().any()):
        got = f"NaN in {int(z.isnan().any(1).sum())} pixels"
        repair = "Mark these pixels in `target`, and pass their label as ignore_index."
        fail(ValueError, "class_offsets", "logits", "without NaN", got, repair)


class _TopTwo(NamedTuple):
    """The highest score of each pixel and that of the other classes, ``(2, n)``."""

    values: Tensor
    classes: Tensor


def _top_two(z: Tensor) -> _TopTwo:
    top, first = z.max(1)
    other, second = z.scatter(1, first[:, None], -torch.inf).max(1)
    return _TopTwo(torch.stack([top, other]), torch.stack([first, second]))


def _best_offset(z: Tensor, two: _TopTwo, label: Tensor, c: int) -> tuple[Tensor, Tensor]:
    """What to add to class c, and the mean IoU it gives.

    Each pixel goes over to c at its own offset, from the best of the other classes. Pixels are
    counted by the interval of their offset; sums over the intervals give the counts at every cut.
    """
    classes = z.shape[1]
    in_c = two.classes[0] == c
    other = torch.where(in_c, two.classes[1], two.classes[0])
    change = torch.where(in_c, two.values[1], two.values[0]) - z[:, c]
    # Infinite ones are in c, or not, at every offset; of two that tie argmax takes the first.
    fixed = torch.where(in_c, -torch.inf, torch.inf).to(z)
    change = torch.where(change.isnan(), fixed, change)
    finite = change[change.isfinite()]
    cuts = _quantiles(finite) if len(finite) else change.new_zeros(1)
    place = torch.searchsorted(cuts, change)  # the first cut that takes the pixel
    shape = (len(cuts), classes)
    right = other == label
    # (cut, class): how many pixels, and how many right ones, the class has lost to c by then
    lost = _cumulated(place * classes + other, shape)
    missed = _cumulated((place * classes + other)[right], shape)
    predicted, hits = _counts(other, classes) - lost, _counts(other[right], classes) - missed
    predicted[:, c] += lost.sum(1)
    hits[:, c] += _cumulated(place[label == c], (len(cuts), 1))[:, 0]
    values = _mean_iou(hits, predicted, _counts(label, classes))
    k = values.argmax()
    # Above the cut, so that its pixels go over, and half way to the next pixel, which must not.
    behind = finite[finite > cuts[k]]
    step = (behind.min() - cuts[k]) / 2 if len(behind) else cuts.new_ones(())
    return cuts[k] + step, values[k]


def _quantiles(x: Tensor) -> Tensor:
    share = torch.linspace(0, 1, min(CUTS, len(x)), dtype=x.dtype, device=x.device)
    return x.sort().values[(share * (len(x) - 1)).long()].unique()


def _start(chosen: Tensor, label: Tensor, classes: int) -> Tensor:
    """Mean IoU without offsets."""
    hits = _counts(label[chosen == label], classes)
    return _mean_iou(hits, _counts(chosen, classes), _counts(label, classes))


def _counts(classes: Tensor, count: int) -> Tensor:
    return torch.bincount(classes, minlength=count).double()


def _cumulated(cells: Tensor, shape: tuple[int, int]) -> Tensor:
    """How many of the cells are in each column up to each row; those below the last row are not
    counted.
    """
    size = shape[0] * shape[1]
    return torch.bincount(cells, minlength=size)[:size].reshape(shape).cumsum(0).double()


def _mean_iou(hits: Tensor, predicted: Tensor, true: Tensor) -> Tensor:
    """Over the classes that occur, from pixels ``(*, C)`` per class."""
    union = true + predicted - hits
    return (hits / union.clamp(min=1)).sum(-1) / (true > 0).sum(-1).clamp(min=1)
