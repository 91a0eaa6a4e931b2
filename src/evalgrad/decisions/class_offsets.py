"""What to add to the logits of each class before argmax, chosen on labelled data for mean IoU."""

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
    best = _mean_iou(_counts(z + offsets, label))
    for _ in range(rounds):
        for c in range(z.shape[1]):
            offset, value = _best_offset(z + offsets, label, c)
            if value > best:
                offsets[c] += offset
                best = value
    return (offsets - offsets.mean()).masked_fill(z.isnan().any(), torch.nan).to(logits.dtype)


def _check_numbers(z: Tensor) -> None:
    if readable(z) and bool(z.isnan().any()):
        got = f"NaN in {int(z.isnan().any(1).sum())} pixels"
        repair = "Mark these pixels in `target`, and pass their label as ignore_index."
        fail(ValueError, "class_offsets", "logits", "without NaN", got, repair)


def _best_offset(z: Tensor, label: Tensor, c: int) -> tuple[Tensor, Tensor]:
    """What to add to class c, and the mean IoU it gives.

    Each pixel goes over to c at its own offset, from the best of the other classes. Pixels are
    counted by the interval of their offset, by that other class and by their label; sums over the
    intervals give the confusion matrix at every cut.
    """
    classes = z.shape[1]
    others = z.clone()
    others[:, c] = -torch.inf
    top, other = others.max(1)
    change = top - z[:, c]
    # Infinite ones are in c, or not, at every offset; of two that tie argmax takes the first.
    fixed = torch.where(z.argmax(1) == c, -torch.inf, torch.inf).to(z)
    change = torch.where(change.isnan(), fixed, change)
    finite = change[change.isfinite()]
    cuts = _quantiles(finite) if len(finite) else change.new_zeros(1)
    place = torch.searchsorted(cuts, change)  # the first cut that takes the pixel
    cell = (place * classes + other) * classes + label
    moved = torch.bincount(cell, minlength=len(cuts) * classes**2)[: len(cuts) * classes**2]
    moved = moved.reshape(len(cuts), classes, classes).cumsum(0).double()
    counts = _counts(others, label).expand(len(cuts), -1, -1) - moved
    counts[:, c] += moved.sum(1)
    values = _mean_iou(counts)
    k = values.argmax()
    # Above the cut, so that its pixels go over, and half way to the next pixel, which must not.
    behind = finite[finite > cuts[k]]
    step = (behind.min() - cuts[k]) / 2 if len(behind) else cuts.new_ones(())
    return cuts[k] + step, values[k]


def _quantiles(x: Tensor) -> Tensor:
    share = torch.linspace(0, 1, min(CUTS, len(x)), dtype=x.dtype, device=x.device)
    return x.sort().values[(share * (len(x) - 1)).long()].unique()


def _counts(z: Tensor, label: Tensor) -> Tensor:
    """Confusion matrix ``(predicted, true)``."""
    classes = z.shape[1]
    cells = torch.bincount(z.argmax(1) * classes + label, minlength=classes**2)
    return cells.reshape(classes, classes).double()


def _mean_iou(counts: Tensor) -> Tensor:
    """Over the classes that occur, from confusion matrices ``(*, C, C)``."""
    hits = counts.diagonal(dim1=-2, dim2=-1)
    true = counts.sum(-2)
    union = true + counts.sum(-1) - hits
    return (hits / union.clamp(min=1)).sum(-1) / (true > 0).sum(-1).clamp(min=1)
