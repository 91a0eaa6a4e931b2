"""The way in of the S-measures: from labels and a batch to what each group of the items sees.

A batch is a set of items, whatever its shape: scores and labels are flattened. Two groups are
labels 0 and 1, in any dtype, and one score per item; p > 2 groups are one-vs-rest, with a column
of scores for each on the last axis.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from evalgrad._errors import describe, fail
from evalgrad._inputs import WORKING, floating, like, plain
from evalgrad._labels import binary_labels, class_labels

Labels = Tensor | Sequence[int] | None


class Batch(NamedTuple):
    """The items of a batch as one group sees them."""

    scores: Tensor  # (B,) float32 or float64, with its graph
    positive: Tensor  # (B,) bool
    position: Tensor | None  # (B,) int64, in the data


def batches(
    name: str,
    scores: object,
    target: object,
    index: object,
    *,
    groups: int,
    items: int,
) -> list[Batch]:
    """The batch as each of the `groups` solvers sees it; `items` labels of the data are known.

    Where labels cannot be read (compile, accelerators), a batch with an undeclared one has NaN for
    scores: its loss shows it, and no total takes it in.
    """
    scores = floating(name, "scores", scores)
    target = (_two_groups if groups == 1 else _more_groups)(name, scores, target, groups)
    position = None if index is None else _positions(name, index, target, items)
    wide = scores.to(WORKING[scores.dtype])
    label = target.reshape(1, target.numel())
    leave_out = "keep the others, e.g. `scores[target != {value}]`"
    if groups == 1:
        labels = binary_labels(name, label, leave_out=leave_out)
        wide = _marked(wide.flatten(), labels.invalid)
        return [Batch(wide, labels.positive[0], position)]
    member = class_labels(name, label, groups, None, leave_out=leave_out)
    wide = _marked(wide.reshape(label.shape[1], groups), member.invalid)
    return [Batch(x, member.label[0] == c, position) for c, x in enumerate(wide.unbind(-1))]


def _marked(scores: Tensor, invalid: Tensor | None) -> Tensor:
    return scores if invalid is None else scores * torch.where(invalid, torch.nan, 1.0)


def _two_groups(name: str, scores: Tensor, target: object, _: int) -> Tensor:
    """A plain tensor of the shape of `scores`; an axis of one column may be missing in either."""
    target = plain(name, "target", target)
    axes = scores.shape
    if len(axes) > 1 and axes[1] > 1 and (*axes[:1], *axes[2:]) == tuple(target.shape):
        repair = "Two-class logits become one score per item by `scores[:, 1] - scores[:, 0]`."
        if axes[1] > 2:
            repair = f"For {axes[1]} groups give the constructor `labels=` that hold them all."
        must = f"of the shape of `target`, {tuple(target.shape)}"
        fail(ValueError, name, "scores", must, describe(scores), repair)
    return like(name, "target", target, scores)


def _more_groups(name: str, scores: Tensor, target: object, groups: int) -> Tensor:
    """A plain tensor of the shape of `scores` without its last axis, that of the groups."""
    target = plain(name, "target", target)
    if scores.shape[-1] != groups or scores.ndim == 1:
        repair = "Give every group its column of scores."
        if scores.ndim > 2 and scores.shape[1] == groups:
            repair = "Put the groups last: `scores.movedim(1, -1)`."
        must = f"of shape (*, {groups}), a column for each group"
        fail(ValueError, name, "scores", must, describe(scores), repair)
    if target.shape == scores.shape:
        repair = "It looks one-hot: pass `target.argmax(-1)`."
        must = f"of shape {tuple(scores.shape[:-1])}"
        fail(ValueError, name, "target", must, describe(target), repair)
    return like(name, "target", target, scores[..., 0])


def _positions(name: str, index: object, target: Tensor, items: int) -> Tensor:
    if items == 0:
        repair = "Give `labels=` to the constructor."
        fail(ValueError, name, "index", "left out without `labels`", describe(index), repair)
    index = like(name, "index", index, target)
    if index.dtype == torch.bool or index.is_floating_point() or index.is_complex():
        repair = "Let the dataset return the position of each item."
        fail(TypeError, name, "index", "an integer tensor", describe(index), repair)
    return index.reshape(target.numel()).long()


def members(name: str, labels: Labels) -> list[Tensor | None]:
    """Which items of the data belong to each group, on the CPU: of two the positives alone, of more
    all. [None] without labels.
    """
    if labels is None:
        return [None]
    given = plain(name, "labels", torch.as_tensor(labels)).flatten().cpu()
    groups = given.unique().tolist()
    if len(groups) > 2 and not given.is_floating_point():
        if groups != list(range(len(groups))):
            repair = (
                "Leave out what does not count, and number the rest:"
                " `labels.unique(return_inverse=True)[1]`."
            )
            got = f"labels from {groups[0]} to {groups[-1]}, {len(groups)} of them"
            fail(ValueError, name, "labels", "the groups 0, 1, 2, ... without a gap", got, repair)
        return [given == c for c in range(len(groups))]
    leave_out = "leave them out of the data"
    positive = binary_labels(name, given.unsqueeze(0), "labels", leave_out=leave_out).positive[0]
    found = int(positive.sum())
    if found in (0, len(given)):
        repair = (
            "A measure without positives or negatives is undefined: pass the labels of the whole"
            " training set."
        )
        got = f"{found} positives among {len(given)} items"
        fail(ValueError, name, "labels", "of both groups", got, repair)
    return [positive]
