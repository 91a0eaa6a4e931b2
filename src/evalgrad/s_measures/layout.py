"""What the labels of the data are: two groups, several groups, or several tasks; and what each
solver sees of them.

Two groups are labels 0 and 1, in any dtype, and one score per item; p > 2 groups are one-vs-rest,
pooled or in pairs; labels (N, C) are C tasks of two groups.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, NoReturn

import torch
from torch import Tensor

from evalgrad._errors import describe, fail
from evalgrad._inputs import converted
from evalgrad._labels import binary_labels

Labels = Tensor | Sequence[int] | None
Average = Literal["macro", "micro", "pairwise"]


class Layout(NamedTuple):
    """What the labels of the data are: `size` 1, two groups; else exclusive groups or, where
    `columns`, as many tasks of their own.
    """

    size: int = 1
    columns: bool = False
    average: Average | None = None
    ignore_index: int | None = None
    items: int = 0  # labels that are known

    def others(self, group: int) -> list[int]:
        return [k for k in range(self.size) if k != group]


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
            must = f"given with average={average!r}"
            repair = (
                "Pass the labels of the training set: (N, C) for C tasks, or (N,) for C groups."
            )
            fail(ValueError, name, "labels", must, "None", repair)
        return Layout(average=average, ignore_index=ignore_index), [None]
    given = converted(name, "labels", labels)
    if given.ndim == 2 and given.shape[1] > 1:
        return _columns(name, given, average, ignore_index)
    given = given.flatten()
    counted = torch.ones_like(given, dtype=torch.bool)
    if ignore_index is not None:
        counted = given != ignore_index
    groups = given[counted].unique().tolist()
    if len(groups) <= 2 or given.is_floating_point():
        if average in ("macro", "pairwise"):
            repair = "Leave it out: there is one binary task."
            fail(ValueError, name, "average", "left out", repr(average), repair)
        layout = Layout(1, False, average, ignore_index, len(given))
        return layout, [_two_groups(name, given, ignore_index)]
    return _exclusive(name, given, groups, counted, Layout(1, False, average, ignore_index))


def _exclusive(
    name: str, given: Tensor, groups: list[int], counted: Tensor, layout: Layout
) -> tuple[Layout, list[Members | None]]:
    if groups != list(range(len(groups))):
        repair = (
            "Pass `ignore_index` for items to ignore, and number the groups:"
            " `labels.unique(return_inverse=True)[1]`."
        )
        got = f"labels from {groups[0]} to {groups[-1]}, {len(groups)} of them"
        fail(ValueError, name, "labels", "the groups 0, 1, 2, ... without a gap", got, repair)
    layout = layout._replace(size=len(groups), items=len(given))
    return layout, _seen(layout, torch.stack([given == c for c in groups], 1), counted)


def _columns(
    name: str, given: Tensor, average: Average | None, ignore_index: int | None
) -> tuple[Layout, list[Members | None]]:
    if average is None:
        fail_pooling(name, "labels", given)
    if average == "pairwise":
        repair = "Use 'macro': pairs are only for exclusive groups."
        fail(ValueError, name, "average", "'macro' or 'micro' of (N, C)", repr(average), repair)
    layout = Layout(given.shape[1], True, average, ignore_index, len(given))
    parts = [given.flatten()] if average == "micro" else list(given.unbind(1))
    return layout, [_two_groups(name, part, ignore_index) for part in parts]


def _seen(layout: Layout, member: Tensor, counted: Tensor) -> list[Members | None]:
    """What the solvers of exclusive groups see, as `batch` shows a batch to them."""
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


def fail_pooling(name: str, argument: str, given: Tensor) -> NoReturn:
    """Nothing is pooled silently."""
    repair = (
        "If its columns are tasks of their own, give the constructor `labels` (N, C) and"
        " average='macro'; to pool all decisions, average='micro'."
    )
    must = "one column, or `average` given"
    fail(ValueError, name, argument, must, describe(given), repair)
