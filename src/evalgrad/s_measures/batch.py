"""The way in of the S-measures: from a batch to what each solver sees of it.

A batch is a set of items, whatever its shape: scores and labels are flattened. Where there are
several groups or tasks (`layout`), the last axis of the scores has a column for each.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from evalgrad._errors import describe, fail
from evalgrad._inputs import floating, like, plain
from evalgrad._labels import binary_labels, class_labels, readable
from evalgrad._native import FLOATS
from evalgrad.s_measures.layout import Layout, fail_pooling


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
    item = target[..., 0] if layout.columns else target
    position = None if index is None else _positions(name, index, item, layout.items)
    valid = None if mask is None else _valid(name, mask, target, item).reshape(1, -1)
    wide = scores if scores.dtype in FLOATS else scores.float()
    if layout.size == 1:
        return [_one_task(name, wide, target, position, valid, layout)]
    wide = wide.reshape(-1, layout.size)
    read = _tasks if layout.columns else _groups
    member, invalid, valid = read(name, target.reshape(1, -1), valid, layout)
    valid = None if valid is None else valid.reshape(wide.shape)
    member = member.reshape(wide.shape)
    return _views(layout, _marked(wide, invalid), member, position, valid)


def _one_task(
    name: str,
    scores: Tensor,
    target: Tensor,
    position: Tensor | None,
    valid: Tensor | None,
    layout: Layout,
) -> Batch:
    """By far the commonest, and small batches pay for every reshape."""
    scores = scores if scores.ndim == 1 else scores.flatten()
    if target.dtype == torch.bool and valid is None:
        return Batch(scores, target if target.ndim == 1 else target.flatten(), position)
    member, invalid, valid = _tasks(name, target.reshape(1, -1), valid, layout)
    batch = Batch(_marked(scores, invalid), member[0], position)
    return batch if valid is None else batch._replace(mask=valid[0]).kept()


def _views(
    layout: Layout, scores: Tensor, member: Tensor, position: Tensor | None, mask: Tensor | None
) -> list[Batch]:
    """What each solver sees of scores (B, size), who belongs to what (B, size), where in the
    data (B,), and what counts (B, size).
    """
    if layout.average == "micro":
        if position is not None:
            columns = torch.arange(layout.size, device=scores.device)
            position = position.unsqueeze(1) * layout.size + columns
        flat = [None if x is None else x.flatten() for x in (position, mask)]
        return [Batch(scores.flatten(), member.flatten(), *flat).kept()]
    views = []
    for c in range(layout.size):
        valid = None if mask is None else mask[:, c]
        batch = Batch(scores[:, c], member[:, c], position, valid)
        if layout.average == "pairwise":
            views += [batch._replace(mask=_two(member, c, k, valid)) for k in layout.others(c)]
        else:
            views.append(batch)
    return [batch.kept() for batch in views]


def _two(member: Tensor, one: int, other: int, valid: Tensor | None) -> Tensor:
    """The items of two groups."""
    found = member[:, one] | member[:, other]
    return found if valid is None else found & valid


LEAVE_OUT = "pass ignore_index={value} to the constructor"
Read = tuple[Tensor, Tensor | None, Tensor | None]  # members, invalid, what counts


def _tasks(name: str, label: Tensor, valid: Tensor | None, layout: Layout) -> Read:
    """Labels 0 and 1."""
    found = binary_labels(name, label, "target", valid, layout.ignore_index, leave_out=LEAVE_OUT)
    return found.positive, found.invalid, found.mask


def _groups(name: str, label: Tensor, valid: Tensor | None, layout: Layout) -> Read:
    """Labels 0, 1, 2, ...; what a mask leaves out may have any label of their dtype."""
    label = label if valid is None else label.masked_fill(~valid, 0)
    found = class_labels(name, label, layout.size, layout.ignore_index, leave_out=LEAVE_OUT)
    kind = found.label[0].unsqueeze(1)
    member = kind == torch.arange(layout.size, device=kind.device)
    counted = None if found.complete else (kind >= 0).expand_as(member)
    if valid is not None:
        counted = valid[0].unsqueeze(1) & (kind >= 0).expand_as(member)
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
    target, axes = plain(name, "target", target), scores.shape
    if len(axes) > 1 and axes[1] > 1 and (*axes[:1], *axes[2:]) == tuple(target.shape):
        repair = "For two-class logits pass one score per item, `scores[:, 1] - scores[:, 0]`."
        if axes[1] > 2:
            repair = f"For {axes[1]} groups pass `labels=` with all of them to the constructor."
        must = f"of the shape of `target`, {tuple(target.shape)}"
        fail(ValueError, name, "scores", must, describe(scores), repair)
    target = like(name, "target", target, scores)
    if layout.columns and scores.shape[-1] != layout.size:
        must, repair = (
            f"of shape (*, {layout.size})",
            "Pass one column of scores per column of `labels`.",
        )
        fail(ValueError, name, "scores", must, describe(scores), repair)
    if layout.average is None and scores.ndim == 2 and scores.shape[1] > 1:
        fail_pooling(name, "target", target)
    return target


def _of_groups(name: str, scores: Tensor, target: object, layout: Layout) -> Tensor:
    """A plain tensor of the shape of `scores` without its last axis, that of the groups."""
    target, groups = plain(name, "target", target), layout.size
    if scores.shape[-1] != groups or scores.ndim == 1:
        repair = "Pass one column of scores per group."
        if scores.ndim > 2 and scores.shape[1] == groups:
            repair = "Put the groups last: `scores.movedim(1, -1)`."
        must = f"of shape (*, {groups}), one column per group"
        fail(ValueError, name, "scores", must, describe(scores), repair)
    if target.shape == scores.shape:
        repair = "It looks one-hot: pass `target.argmax(-1)`."
        must = f"of shape {tuple(scores.shape[:-1])}"
        fail(ValueError, name, "target", must, describe(target), repair)
    return like(name, "target", target, scores[..., 0])


def _positions(name: str, index: object, target: Tensor, items: int) -> Tensor:
    """(B,) where the items are in the data."""
    if items == 0:
        repair = "Pass `labels=` to the constructor."
        fail(ValueError, name, "index", "left out without `labels`", describe(index), repair)
    index = like(name, "index", index, target)
    if index.dtype == torch.bool or index.is_floating_point() or index.is_complex():
        repair = "Let the dataset return the position of each item."
        fail(TypeError, name, "index", "an integer tensor", describe(index), repair)
    return index.reshape(target.numel()).long()
