"""Labels: read where that costs no sync, canonical everywhere.

`class_labels` gives int64 labels, negative where they do not count, and the number of items of
each class; `binary_labels` gives bool ones and what counts. A label that is neither declared nor
ignored raises where labels can be read. Elsewhere it is left out, and its row is `invalid`.
"""

from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from evalgrad import _native
from evalgrad._errors import describe, fail
from evalgrad._repairs import SOFT_TARGETS, binary_label_repair, class_label_repair

IGNORED, UNDECLARED = -1, -2


def readable(x: Tensor) -> bool:
    """Whether the values of `x` can be looked at without a sync: on a CPU, in eager mode."""
    return (
        type(x) is Tensor  # not a FakeTensor, which has no values
        and x.is_cpu
        and not torch.compiler.is_compiling()
        and not transformed(x)
    )


def transformed(x: Tensor) -> bool:
    """Whether `x` is one that vmap or grad works on; torch has no public name for this question."""
    return torch._C._functorch.is_functorch_wrapped_tensor(x)


# ---- one label among C classes -------------------------------------------------------------------


class ClassLabels(NamedTuple):
    """Labels ``(R, n)`` of R rows."""

    label: Tensor  # (R, n) int64: a class, or IGNORED, or UNDECLARED
    counts: Tensor  # (R, C) int64: items of each class
    invalid: Tensor | None  # (R,) bool: rows with an undeclared label; None: all were read
    complete: bool  # whether all are known to be classes


def class_labels(
    function: str,
    target: Tensor,
    num_classes: int,
    ignore_index: int | None,
    *,
    argument: str = "target",
    leave_out: str = "pass ignore_index={value}",
    more: str = "the scores need {number} classes",
) -> ClassLabels:
    """Canonical labels of ``target (R, n)``, bool or of any integer dtype.

    `leave_out` and `more` are how a caller leaves items out, and has more classes, for the message.
    """
    if target.is_floating_point() or target.is_complex():
        fail_indices(function, argument, target)
    # Cast before anything is compared: a uint8 would wrap ignore_index=-100 to 156.
    label = target.long()
    if not readable(label):
        return _traced(label, num_classes, ignore_index)
    read = _read_native if _native.library is not None else _read_pure
    labels, undeclared = read(label, num_classes, ignore_index)
    if undeclared:
        counted = label if ignore_index is None else label[label != ignore_index]
        _fail_class(function, argument, counted, num_classes, leave_out, more)
    return labels


def sample_labels(
    function: str, target: Tensor, num_classes: int, ignore_index: int | None
) -> Tensor:
    """The labels alone, ``(n,)`` integers: where they are not read, nothing is counted."""
    if not readable(target):
        return _canonical(target.long(), num_classes, ignore_index)
    return class_labels(function, target.unsqueeze(0), num_classes, ignore_index).label[0]


def _canonical(label: Tensor, num_classes: int, ignore_index: int | None) -> Tensor:
    """A class, or IGNORED, or UNDECLARED."""
    kind = label.masked_fill(label != label.clamp(0, num_classes - 1), UNDECLARED)
    return kind if ignore_index is None else kind.masked_fill(label == ignore_index, IGNORED)


def fail_indices(function: str, argument: str, target: Tensor) -> NoReturn:
    """Class indices are bool or integers."""
    must = "an integer or bool tensor of labels"
    repair = f"Convert class indices with `.long()`; {SOFT_TARGETS}."
    fail(TypeError, function, argument, must, describe(target), repair)


def _read_native(
    label: Tensor, num_classes: int, ignore_index: int | None
) -> tuple[ClassLabels, bool]:
    """The labels, and whether any is undeclared; by one pass of the kernel."""
    counts = label.new_empty(label.shape[0], num_classes)
    left_out = label.new_empty(2)  # ignored, undeclared
    given = (0, 0) if ignore_index is None else (1, ignore_index)
    sizes = (*label.shape, num_classes)
    _native.call("class_counts", label.contiguous(), *sizes, *given, counts, left_out)
    ignored, undeclared = left_out.tolist()
    # Usual labels, of which nothing is ignored, are canonical as they are: nothing is copied.
    if ignore_index is not None and ignored and ignore_index != IGNORED:
        label = label.masked_fill(label == ignore_index, IGNORED)
    return ClassLabels(label, counts, None, complete=not ignored), undeclared > 0


def _read_pure(
    label: Tensor, num_classes: int, ignore_index: int | None
) -> tuple[ClassLabels, bool]:
    labels = _traced(label, num_classes, ignore_index)
    undeclared = bool((labels.label == UNDECLARED).any())
    return labels._replace(invalid=None), undeclared


def _traced(label: Tensor, num_classes: int, ignore_index: int | None) -> ClassLabels:
    """On every device, without a look at the values."""
    kind = _canonical(label, num_classes, ignore_index)
    # A class behind the last takes what does not count.
    place = torch.where(kind >= 0, kind, num_classes)
    counts = label.new_zeros(label.shape[0], num_classes + 1)
    counts = counts.scatter_add(1, place, torch.ones_like(place))[:, :-1]
    return ClassLabels(kind, counts, (kind == UNDECLARED).any(1), complete=False)


def different(labels: Tensor) -> list[Any]:
    """The labels that there are; torch does not sort the smallest of its floats."""
    return (labels.double() if labels.is_floating_point() else labels).unique().tolist()


def _fail_class(
    function: str, argument: str, counted: Tensor, num_classes: int, leave_out: str, more: str
) -> NoReturn:
    values = different(counted)
    wrong, repair = class_label_repair(argument, values, num_classes, leave_out, more)
    must, got = f"labels in [0, {num_classes - 1}]", f"the label {wrong}"
    fail(ValueError, function, argument, must, got, repair)


# ---- labels 0 and 1 ------------------------------------------------------------------------------


class BinaryLabels(NamedTuple):
    """Labels ``(R, n)`` of R rows."""

    positive: Tensor  # (R, n) bool; what it holds where the mask is False means nothing
    mask: Tensor | None  # (R, n) bool, True = counts; None: everything does
    invalid: Tensor | None  # (R,) bool: rows with an undeclared label; None: all were read


def binary_labels(
    function: str,
    target: Tensor,
    argument: str = "target",
    mask: Tensor | None = None,
    ignore_index: int | None = None,
    leave_out: str = "pass a `mask`",
) -> BinaryLabels:
    """Which of the labels 0 and 1, bool or of any dtype, are 1; float masks may hold 0. and 1.

    `leave_out` is how a caller leaves items out, for the message.
    """
    if target.is_complex():
        fail(TypeError, function, argument, "labels 0 and 1", describe(target), "Pass real labels.")
    if target.dtype == torch.bool:
        return BinaryLabels(target, mask, None)
    label = target if target.is_floating_point() else target.long()
    if label.dtype == torch.int64 and _native.library is not None and readable(label):
        narrow = _narrowed(label.contiguous(), ignore_index)
        if narrow is not None:
            return narrow._replace(mask=_both(narrow.mask, mask))
    positive = label == 1
    mask = _both(None if ignore_index is None else label != ignore_index, mask)
    wrong = ~positive & (label != 0)
    wrong = wrong if mask is None else wrong & mask
    if not readable(label):
        return BinaryLabels(positive, mask, wrong.any(1))
    if bool(wrong.any()):
        _fail_binary(function, argument, label if mask is None else label[mask], leave_out)
    return BinaryLabels(positive, mask, None)


def read_mask(function: str, mask: Tensor) -> Tensor:
    """A mask as bool, for functions whose results have no NaN to say that its values were wrong:
    one that cannot be read has to be bool.
    """
    if mask.dtype != torch.bool and not readable(mask):
        must, repair = "bool if its values cannot be read", "Compare explicitly, e.g. `mask > 0`."
        fail(TypeError, function, "mask", must, describe(mask), repair)
    return binary_labels(function, mask.unsqueeze(0), "mask").positive[0]


def _both(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    return one if other is None else other if one is None else one & other


def _narrowed(label: Tensor, ignore_index: int | None) -> BinaryLabels | None:
    """By one pass of the kernel; None where a label is wrong, perhaps under a mask."""
    positive = torch.empty(label.shape, dtype=torch.bool)
    mask = None if ignore_index is None else torch.empty_like(positive)
    flags = positive.new_empty(2)  # all are 0, 1 or ignored; some are ignored
    ignore = 0 if ignore_index is None else ignore_index
    _native.call("binary_labels", label, label.numel(), ignore, positive, mask, flags)
    binary, ignored = flags.tolist()
    return BinaryLabels(positive, mask if ignored else None, None) if binary else None


def _fail_binary(function: str, argument: str, counted: Tensor, leave_out: str) -> NoReturn:
    wrong, repair = binary_label_repair(argument, different(counted), leave_out)
    fail(ValueError, function, argument, "0 or 1, or bool", f"the label {wrong}", repair)
