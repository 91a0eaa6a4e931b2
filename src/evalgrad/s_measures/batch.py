"""The way in of the S-measures: from labels and a batch to what each group of the items sees.

A batch is a set of items, whatever its shape: scores and labels are flattened. Two groups are
labels 0 and 1, in any dtype, and one score per item; p > 2 groups are one-vs-rest, pooled or in
pairs, with a column of scores for each on the last axis; labels (N, C) are C tasks of two groups.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, NoReturn

import torch
from torch import Tensor

from evalgrad._errors import describe, fail
from evalgrad._inputs import WORKING, floating, like, plain
from evalgrad._labels import binary_labels, class_labels, readable

Labels = Tensor | Sequence[int] | None


Average = Literal["macro", "micro", "pairwise"]


class Batch(NamedTuple):
    """The items of a batch as one group sees them."""

    scores: Tensor  # (B,) float32 or float64, with its graph
    positive: Tensor  # (B,) bool
    position: Tensor | None  # (B,) int64, in the data
    mask: Tensor | None = None  # (B,) bool, True = counts; None: all do

    def kept(self) -> "Batch":
        """Without the items that do not count, where looking for them costs no sync."""
        if self.mask is None or not readable(self.mask):
            return self
        place = self.mask.nonzero().squeeze(1)
        position = None if self.position is None else self.position[place]
        return Batch(self.scores[place], self.positive[place], position)


class Layout(NamedTuple):
    """What the labels of the data are: `size` 1, two groups; else exclusive groups or, where
    `columns`, as many tasks of their own.
    """

    size: int = 1
    columns: bool = False
    average: Average | None = None
    ignore_index: int | None = None
    items: int = 0  # labels that are known

    def views(
        self, scores: Tensor, member: Tensor, position: Tensor | None, mask: Tensor | None
    ) -> list[Batch]:
        """What each solver sees of scores (B, size), who belongs to what (B, size), where in the
        data (B,), and what counts (B, size).
        """
        if self.average == "micro" or self.size == 1:
            if position is not None and self.size > 1:
                position = position.unsqueeze(1) * self.size + _range(scores)
            flat = [None if x is None else x.flatten() for x in (position, mask)]
            return [Batch(scores.flatten(), member.flatten(), *flat).kept()]
        views = []
        for c in range(self.size):
            valid = None if mask is None else mask[:, c]
            batch = Batch(scores[:, c], member[:, c], position, valid)
            if self.average == "pairwise":
                views += [batch._replace(mask=_two(member, c, k, valid)) for k in self.others(c)]
            else:
                views.append(batch)
        return [batch.kept() for batch in views]

    def others(self, group: int) -> list[int]:
        return [k for k in range(self.size) if k != group]


def _two(member: Tensor, one: int, other: int, valid: Tensor | None) -> Tensor:
    """The items of two groups."""
    found = member[:, one] | member[:, other]
    return found if valid is None else found & valid


def _range(scores: Tensor) -> Tensor:
    return torch.arange(scores.shape[1], device=scores.device)


def batches(
    name: str, scores: object, target: object, index: object, mask: object, layout: Layout
) -> list[Batch]:
    """The batch as each solver sees it.

    Where labels cannot be read (compile, accelerators), a batch with an undeclared one has NaN for
    scores: its loss shows it, and no total takes it in.
    """
    scores = floating(name, "scores", scores)
    shaped = _of_groups if layout.size > 1 and not layout.columns else _of_items
    target = shaped(name, scores, target, layout)
    size = layout.size if layout.columns else 1
    rows = target.numel() // size
    item = target[..., 0] if layout.columns else target
    position = None if index is None else _positions(name, index, item, layout.items)
    valid = None if mask is None else _valid(name, mask, target, item).reshape(1, -1)
    if layout.size == 1:  # by far the commonest, and small batches pay for every reshape
        found = _tasks(name, target.reshape(1, -1), valid, layout)
        return [_one_task(scores.to(WORKING[scores.dtype]).flatten(), position, *found)]
    wide = scores.to(WORKING[scores.dtype]).reshape(rows, layout.size)
    read = _tasks if layout.columns else _groups
    member, invalid, valid = read(name, target.reshape(1, -1), valid, layout)
    valid = None if valid is None else valid.reshape(rows, layout.size)
    member = member.reshape(rows, layout.size)
    return layout.views(_marked(wide, invalid), member, position, valid)


def _one_task(
    scores: Tensor,
    position: Tensor | None,
    member: Tensor,
    invalid: Tensor | None,
    valid: Tensor | None,
) -> Batch:
    batch = Batch(_marked(scores, invalid), member[0], position)
    return batch if valid is None else batch._replace(mask=valid[0]).kept()


LEAVE_OUT = "pass ignore_index={value} to the constructor"
Read = tuple[Tensor, Tensor | None, Tensor | None]  # members, invalid, what counts


def _tasks(name: str, label: Tensor, valid: Tensor | None, layout: Layout) -> Read:
    """Labels 0 and 1."""
    found = binary_labels(name, label, "target", valid, layout.ignore_index, leave_out=LEAVE_OUT)
    return found.positive, found.invalid, found.mask


def _groups(name: str, label: Tensor, valid: Tensor | None, layout: Layout) -> Read:
    """Labels 0, 1, 2, ...; what a mask leaves out is as if ignored."""
    ignored = layout.ignore_index
    if valid is not None:
        ignored = -1 if ignored is None else ignored
        label = label.long().masked_fill(~valid, ignored)
    found = class_labels(name, label, layout.size, ignored, leave_out=LEAVE_OUT)
    kind = found.label[0].unsqueeze(1)
    member = kind == torch.arange(layout.size, device=kind.device)
    counted = None if found.complete else (kind >= 0).expand_as(member)
    return member, found.invalid, counted


def _valid(name: str, mask: object, target: Tensor, item: Tensor) -> Tensor:
    """A mask of the shape of the labels, or of the items."""
    given = plain(name, "mask", mask)
    if item is not target and given.shape == item.shape:
        given = given.unsqueeze(-1).expand_as(target)
    given = like(name, "mask", given, target)
    return binary_labels(name, given.reshape(1, -1), "mask").positive


def _marked(scores: Tensor, invalid: Tensor | None) -> Tensor:
    return scores if invalid is None else scores * torch.where(invalid, torch.nan, 1.0)


def _of_items(name: str, scores: Tensor, target: object, layout: Layout) -> Tensor:
    """A plain tensor of the shape of `scores`; an axis of one column may be missing in either."""
    target = plain(name, "target", target)
    axes = scores.shape
    if len(axes) > 1 and axes[1] > 1 and (*axes[:1], *axes[2:]) == tuple(target.shape):
        repair = "Two-class logits become one score per item by `scores[:, 1] - scores[:, 0]`."
        if axes[1] > 2:
            repair = f"For {axes[1]} groups give the constructor `labels=` that hold them all."
        must = f"of the shape of `target`, {tuple(target.shape)}"
        fail(ValueError, name, "scores", must, describe(scores), repair)
    target = like(name, "target", target, scores)
    if layout.columns and scores.shape[-1] != layout.size:
        must, repair = f"of shape (*, {layout.size})", "Give every column of `labels` its scores."
        fail(ValueError, name, "scores", must, describe(scores), repair)
    if layout.average is None and scores.ndim == 2 and scores.shape[1] > 1:
        _fail_pooling(name, "target", target)
    return target


def _fail_pooling(name: str, argument: str, given: Tensor) -> NoReturn:
    repair = (
        "If its columns are tasks of their own, give the constructor `labels` (N, C) and"
        " average='macro'; to pool all decisions, average='micro'."
    )
    must = "one column, or `average` given"
    fail(ValueError, name, argument, must, describe(given), repair)


def _of_groups(name: str, scores: Tensor, target: object, layout: Layout) -> Tensor:
    """A plain tensor of the shape of `scores` without its last axis, that of the groups."""
    target, groups = plain(name, "target", target), layout.size
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
    """(B,) where the items are in the data."""
    if items == 0:
        repair = "Give `labels=` to the constructor."
        fail(ValueError, name, "index", "left out without `labels`", describe(index), repair)
    index = like(name, "index", index, target)
    if index.dtype == torch.bool or index.is_floating_point() or index.is_complex():
        repair = "Let the dataset return the position of each item."
        fail(TypeError, name, "index", "an integer tensor", describe(index), repair)
    return index.reshape(target.numel()).long()


class Members(NamedTuple):
    """Which items of the data belong to a group, on the CPU, and which of them count."""

    positive: Tensor
    counted: Tensor


def members(
    name: str, labels: Labels, average: Average | None, ignore_index: int | None
) -> tuple[Layout, list[Members | None]]:
    """The layout of the labels, and what each solver sees of them: of two groups the positives
    alone. [None] without labels.
    """
    if labels is None:
        if average in ("macro", "pairwise"):
            repair = "Pass those of the training set: (N, C) of C tasks, or (N,) of C groups."
            must = f"given with average={average!r}"
            fail(ValueError, name, "labels", must, "None", repair)
        return Layout(average=average, ignore_index=ignore_index), [None]
    given = plain(name, "labels", torch.as_tensor(labels)).cpu()
    if given.ndim == 2 and given.shape[1] > 1:
        return _columns(name, given, average, ignore_index)
    given = given.flatten()
    counted = torch.ones_like(given, dtype=torch.bool)
    if ignore_index is not None:
        counted = given != ignore_index
    groups = given[counted].unique().tolist()
    if len(groups) <= 2 or given.is_floating_point():
        if average in ("macro", "pairwise"):
            repair = "Leave it out: there is one task of two groups."
            must = "left out"
            fail(ValueError, name, "average", must, repr(average), repair)
        layout = Layout(1, False, average, ignore_index, len(given))
        return layout, [_two_groups(name, given, ignore_index)]
    if groups != list(range(len(groups))):
        repair = (
            "Leave out what does not count by `ignore_index`, and number the rest:"
            " `labels.unique(return_inverse=True)[1]`."
        )
        got = f"labels from {groups[0]} to {groups[-1]}, {len(groups)} of them"
        fail(ValueError, name, "labels", "the groups 0, 1, 2, ... without a gap", got, repair)
    layout = Layout(len(groups), False, average, ignore_index, len(given))
    return layout, _seen(layout, torch.stack([given == c for c in groups], 1), counted)


def _columns(
    name: str, given: Tensor, average: Average | None, ignore_index: int | None
) -> tuple[Layout, list[Members | None]]:
    if average is None:
        _fail_pooling(name, "labels", given)
    if average == "pairwise":
        repair = "Take 'macro': pairs are of exclusive groups."
        fail(ValueError, name, "average", "'macro' or 'micro' of (N, C)", repr(average), repair)
    layout = Layout(given.shape[1], True, average, ignore_index, len(given))
    parts = [given.flatten()] if average == "micro" else list(given.unbind(1))
    return layout, [_two_groups(name, part, ignore_index) for part in parts]


def _seen(layout: Layout, member: Tensor, counted: Tensor) -> list[Members | None]:
    """What the solvers of exclusive groups see, as `Layout.views` of a batch."""
    if layout.average == "micro":
        return [Members(member.flatten(), counted.repeat_interleave(layout.size))]
    if layout.average == "pairwise":
        return [
            Members(member[:, c], member[:, c] | member[:, k])
            for c in range(layout.size)
            for k in layout.others(c)
        ]
    return [Members(member[:, c], counted) for c in range(layout.size)]


def _two_groups(name: str, given: Tensor, ignore_index: int | None) -> Members:
    leave_out = "pass ignore_index={value}"
    found = binary_labels(
        name, given.unsqueeze(0), "labels", ignore_index=ignore_index, leave_out=leave_out
    )
    counted = torch.ones_like(given, dtype=torch.bool) if found.mask is None else found.mask[0]
    positive = found.positive[0] & counted
    hits, items = int(positive.sum()), int(counted.sum())
    if hits in (0, items):
        repair = (
            "A measure without positives or negatives is undefined: pass the labels of the whole"
            " training set."
        )
        got = f"{hits} positives among {items} items"
        fail(ValueError, name, "labels", "of both groups", got, repair)
    return Members(positive, counted)
