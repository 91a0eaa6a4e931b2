"""The way in for labels 0 and 1: lists of items, binary maps, and sets.

Rows come first, and the items of a list or the pixels of an image lie along the last axis
(`Binary`). What holds for all tensors and labels is in `_inputs` and `_labels`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from evalgrad._errors import describe, fail
from evalgrad._inputs import floating, like
from evalgrad._labels import binary_labels
from evalgrad._options import Axes, each_axis


class Binary(NamedTuple):
    """Scores with labels 0 and 1: items of a list, or pixels of an image, along the last axis."""

    rows: Tensor  # (R, n), the dtype as given
    positive: Tensor  # (R, n) bool
    mask: Tensor | None  # (R, n) bool, True = counts; None: everything does
    invalid: Tensor | None  # (R,) bool: rows with an undeclared label; None: the labels were read
    shape: torch.Size  # of the leading axes that the rows came from

    def counted(self) -> tuple[Tensor, Tensor]:
        """Which items are positives that count, and which are negatives that count."""
        if self.mask is None:
            return self.positive, ~self.positive
        return self.positive & self.mask, ~self.positive & self.mask


def binary_maps(
    function: str,
    logits: object,
    target: object,
    *,
    per_image: bool | None,
    per_class: bool,
    ignore_index: int | None,
) -> Binary:
    """Logits and labels ``(N, *)``, or with `per_class` ``(N, C, *)``: a row per group (and class).

    The shape is that of the groups: ``(N,)``, or ``(1,)`` for the batch, with `per_class` and C.
    """
    logits = floating(function, "logits", logits, at_least=2 if per_class else 1)
    target = like(function, "target", target, logits, "logits")
    lead = logits.shape[: 2 if per_class else 1]
    pixels = logits.shape[len(lead) :].numel()
    if per_image is None and pixels == 1 and lead[0] > 1:
        repair = (
            f"That is {lead[0]} images of one pixel. For one group of {lead[0]} items pass"
            " per_image=False; for groups of one item pass per_image=True."
        )
        fail(ValueError, function, "logits", "maps of pixels", describe(logits), repair)
    x, label = (t.reshape(*lead, pixels) for t in (logits, target))
    if per_image is False:  # (N, C, *) -> (1, C, N *)
        x, label = (t.movedim(0, -2).flatten(-2).unsqueeze(0) for t in (x, label))
    return binary_rows(function, x, label, ignore_index=ignore_index, by_mask=False)


def lists(
    function: str, scores: object, target: object, mask: object = None, *, dim: Axes = None
) -> Binary:
    """Scores, labels 0 or 1 and perhaps a mask, all of one shape; the items along axis `dim`."""
    scores, axes = list_axes(function, scores, dim)
    target = like(function, "target", target, scores, "scores")
    if mask is not None:
        mask = items_last(like(function, "mask", mask, scores, "scores"), axes)
    return binary_rows(function, items_last(scores, axes), items_last(target, axes), mask)


def list_axes(function: str, scores: object, dim: Axes) -> tuple[Tensor, tuple[int, ...]]:
    """Plain floating-point scores, and the axes of the items of their lists."""
    scores = floating(function, "scores", scores)
    if dim is None and scores.shape[-1] == 1 and scores.numel() > 1:
        fail(ValueError, function, "scores", "lists of items", describe(scores), _axes(scores))
    axes = (-1,) if dim is None else each_axis(dim)
    inside = all(-scores.ndim <= axis < scores.ndim for axis in axes)
    if not inside or len({axis % scores.ndim for axis in axes}) != max(len(axes), 1):
        several = "one or more different dimensions, each " if isinstance(dim, Sequence) else ""
        must = f"{several}a dimension in [{-scores.ndim}, {scores.ndim - 1}]"
        fail(ValueError, function, "dim", must, repr(dim), "It is the dimension of the items.")
    return scores, axes


def _axes(scores: Tensor) -> str:
    """The repair for scores ``(*, 1)``, with nothing said about their axes."""
    n, items = scores.shape[:-1].numel(), scores.shape[-2]
    repair = f"These are {n} lists of one item; if that is meant, pass dim=-1. To rank"
    if scores.ndim == 2:
        return f"{repair} the {n} items as one list pass dim=0."
    whole = f"to rank all {n} as one list, flatten them"
    return f"{repair} the {items} items in dim -2 pass dim=-2; {whole}."


def items_last(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """`x` with the items, which lie on these axes, along the last one."""
    if len(axes) == 1:
        return x.movedim(axes[0], -1)
    return x.movedim(axes, tuple(range(-len(axes), 0))).flatten(-len(axes))


def set_rows(function: str, errors: object, foreground: object, mask: object) -> Binary:
    """Errors ``(*, n)``, which of the items belong to the true set, and perhaps a mask."""
    errors = floating(function, "errors", errors)
    front = like(function, "foreground", foreground, errors, "errors")
    valid = None if mask is None else like(function, "mask", mask, errors, "errors")
    return binary_rows(function, errors, front, valid, argument="foreground")


def binary_rows(
    function: str,
    scores: Tensor,
    target: Tensor,
    mask: Tensor | None = None,
    ignore_index: int | None = None,
    argument: str = "target",
    by_mask: bool = True,
) -> Binary:
    """Plain tensors of one shape as rows: the last axis holds the items."""
    shape = scores.shape[:-1]
    flat = (shape.numel(), scores.shape[-1])
    x, label = scores.reshape(flat), target.reshape(flat)
    counts = None if mask is None else binary_labels(function, mask.reshape(flat), "mask")
    leave_out = "pass a `mask`" if by_mask else "pass ignore_index={value}"
    valid = None if counts is None else counts.positive
    labels = binary_labels(function, label, argument, valid, ignore_index, leave_out)
    invalid = labels.invalid
    if counts is not None and counts.invalid is not None:
        invalid = counts.invalid if invalid is None else invalid | counts.invalid
    return Binary(x, labels.positive, labels.mask, invalid, shape)
