"""The way in: from the tensors that users have to the canonical form that the operators take.

This file alone knows about shapes, dtypes and labels. Inside, every tensor is a plain one (tensor
subclasses are taken off here), labels are int64 or bool, and rows come first. A shape that can
mean one thing only is accepted, e.g. a mask (N, 1, *) beside logits (N, C, *); one that would
silently mean another is refused with its repair.

Labels are read where that costs no sync: on a CPU, in eager mode. Elsewhere (compile, vmap,
export, accelerators) a label that was not declared makes the loss of its group NaN: `invalid`
names the groups, and the factor of the reduction (`_rows`) carries the NaN into the value.
"""

from collections.abc import Sequence
from typing import NamedTuple, NoReturn

import torch
from torch import Tensor

from evalgrad._errors import describe, fail
from evalgrad._labels import (
    IGNORED,
    UNDECLARED,
    binary_labels,
    class_labels,
    fail_indices,
    readable,
    sample_labels,
)
from evalgrad._options import Axes, Classes
from evalgrad._repairs import class_target_repair, shape_repair

Weight = Tensor | Sequence[float] | None

# Half precision is computed, and its losses are returned, in float32, as cross-entropy's under
# autocast.
WORKING = {
    torch.float64: torch.float64,
    torch.float32: torch.float32,
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
}


# ---- tensors of any kind -----------------------------------------------------------------------


def plain(function: str, argument: str, x: object) -> Tensor:
    """`x` without its subclass (MetaTensor, TensorImage, Parameter), sharing memory and graph.

    Subclasses that live below autograd (FakeTensor, DTensor) hold no plain tensor and stay.
    """
    if type(x) is Tensor:
        return x
    if not isinstance(x, Tensor):
        repair = f"Convert it with `torch.as_tensor({argument})`."
        fail(TypeError, function, argument, "a tensor", describe(x), repair)
    if type(x).__torch_dispatch__ is not Tensor.__torch_dispatch__:
        return x
    return x.as_subclass(Tensor)


def floating(function: str, argument: str, x: object, *, at_least: int = 1) -> Tensor:
    """A plain floating-point tensor with at least so many axes."""
    x = x if type(x) is Tensor else plain(function, argument, x)
    if x.dtype not in WORKING:
        repair = f"Convert it with `{argument}.float()`."
        fail(TypeError, function, argument, "a floating-point tensor", describe(x), repair)
    if x.ndim < at_least:
        must = f"a tensor with at least {at_least} axes"
        repair = f"Add the missing axes with `{argument}.unsqueeze(...)`."
        fail(ValueError, function, argument, must, describe(x), repair)
    return x


def like(function: str, argument: str, x: object, other: Tensor, beside: str = "items") -> Tensor:
    """A plain tensor of the shape of `other`, on its device; an axis 1 of size 1 may be missing.

    `beside` is the name of the other, by which the message knows what it holds.
    """
    x = x if type(x) is Tensor else plain(function, argument, x)
    if x.device != other.device:
        _fail_device(function, argument, x, other)
    if x.shape == other.shape:
        return x
    # One channel with and without its axis: (N, 1, *) beside (N, *).
    if x.ndim == other.ndim + 1 and x.shape[1] == 1 and x.squeeze(1).shape == other.shape:
        return x.squeeze(1)
    if other.ndim == x.ndim + 1 and other.shape[1] == 1 and other.squeeze(1).shape == x.shape:
        return x.unsqueeze(1)
    repair = shape_repair(argument, tuple(x.shape), beside, tuple(other.shape))
    fail(ValueError, function, argument, f"of shape {tuple(other.shape)}", describe(x), repair)


def _fail_device(function: str, argument: str, x: Tensor, other: Tensor) -> NoReturn:
    repair = f"Move it: `{argument}.to({str(other.device)!r})`."
    must, got = f"on {other.device}", f"a tensor on {x.device}"
    fail(ValueError, function, argument, must, got, repair)


def class_weight(
    function: str, weight: Tensor | Sequence[float], num_classes: int, other: Tensor
) -> Tensor:
    """One finite weight >= 0 per class, on the device of `other`."""
    if not isinstance(weight, Tensor):
        weight = weight_tensor(function, weight).to(other.device)
    weight = floating(function, "weight", weight, at_least=0)
    if tuple(weight.shape) != (num_classes,):
        must, repair = f"of shape ({num_classes},), one per class", "Give every class its weight."
        fail(ValueError, function, "weight", must, describe(weight), repair)
    if weight.device != other.device:
        _fail_device(function, "weight", weight, other)
    if readable(weight):
        _check_weight(function, weight)
    return weight


def weight_tensor(function: str, weight: object) -> Tensor:
    """Class weights as a tensor of their own, from a tensor or a sequence of numbers; how many
    there must be is seen with the scores.
    """
    try:
        own = (
            weight.detach().clone()
            if isinstance(weight, Tensor)
            else torch.as_tensor(weight, dtype=torch.float32)
        )
    except (TypeError, ValueError, RuntimeError):
        repair = "Pass one number per class, e.g. weight=[1.0, 2.0]."
        fail(TypeError, function, "weight", "a tensor or numbers", describe(weight), repair)
    own = floating(function, "weight", own, at_least=0)
    if own.ndim != 1:
        must, repair = "one number per class", "Pass e.g. weight=[1.0, 2.0]."
        fail(ValueError, function, "weight", must, describe(weight), repair)
    if readable(own):
        _check_weight(function, own)
    return own


def _check_weight(function: str, weight: Tensor) -> None:
    if not bool(((weight >= 0) & weight.isfinite()).all()):
        got, repair = repr(weight.tolist()), "Use 0 to leave a class out."
        fail(ValueError, function, "weight", "finite and at least 0", got, repair)


# ---- class maps and samples: one label among C classes ------------------------------------------


class ClassMaps(NamedTuple):
    """Logits of C classes with their labels, in groups of images that are judged together."""

    x: Tensor  # (G, M, C, S): G groups of M images with S pixels; the dtype as given
    label: Tensor  # (G, M, S) int64, -1 where ignored
    counts: Tensor  # (G, C) int64: pixels of each class
    weight: Tensor | None  # (C,)
    invalid: Tensor | None  # (G,) bool: groups with an undeclared label; None: the labels were read
    complete: bool  # whether every pixel is known to count

    def anything(self) -> Tensor:
        """Whether anything of a group counts, ``(G, 1)``."""
        return self.counts.sum(1, keepdim=True) > 0


def class_maps(
    function: str,
    logits: object,
    target: object,
    *,
    per_image: bool,
    ignore_index: int | None,
    weight: Weight,
    classes: Classes = "all",
) -> ClassMaps:
    """Logits ``(N, C, *)``, C >= 2, and labels ``(N, *)`` or ``(N, 1, *)``, in groups."""
    logits = floating(function, "logits", logits, at_least=2)
    if logits.shape[1] < 2:
        repair = (
            "One channel: use lovasz_hinge_loss or another binary loss, which takes (N, *)."
            if logits.shape[1]
            else "Put the classes on axis 1."
        )
        fail(ValueError, function, "logits", "(N, C, *) with C >= 2", describe(logits), repair)
    target = _class_target(function, target, logits, "logits")
    n, c = logits.shape[:2]
    if classes not in ("present", "all"):
        check_classes(function, classes, c)
    pixels = logits.shape[2:].numel()
    groups, images = (n, 1) if per_image else (1, n)
    labels = class_labels(function, target.reshape(groups, images * pixels), c, ignore_index)
    return ClassMaps(
        logits.reshape(groups, images, c, pixels),
        labels.label.reshape(groups, images, pixels),
        labels.counts,
        None if weight is None else class_weight(function, weight, c, logits),
        labels.invalid,
        labels.complete,
    )


def check_classes(function: str, classes: Classes, num_classes: int) -> None:
    """Whether a choice of classes names existing ones."""
    if not isinstance(classes, str) and max(classes, default=0) >= num_classes:
        must, repair = f"in [0, {num_classes - 1}]", "List indices of existing classes."
        fail(ValueError, function, "classes", must, repr(max(classes)), repair)


class Samples(NamedTuple):
    """Scores of C classes with their labels, a row each."""

    rows: Tensor  # (R, C), the dtype as given
    label: Tensor  # (R,) int64; negative: ignored, or undeclared, which makes a row NaN
    weight: Tensor | None  # (R,) float64, 0 where ignored; None: every row counts as one
    shape: torch.Size  # of the target


def samples(
    function: str, scores: object, target: object, *, ignore_index: int | None, weight: Weight
) -> Samples:
    """Scores ``(N, C)``, ``(N, C, *)`` or ``(C,)``, C >= 2, and labels without the class axis."""
    scores = floating(function, "scores", scores)
    axis = 1 if scores.ndim > 1 else 0
    if scores.shape[axis] < 2:
        repair = "Put the classes on axis 1; one class leaves nothing to rank."
        fail(ValueError, function, "scores", "(N, C, *) with C >= 2", describe(scores), repair)
    target = _class_target(function, target, scores, "scores")
    c, shape = scores.shape[axis], target.shape
    label = sample_labels(function, target.reshape(shape.numel()), c, ignore_index)
    if scores.ndim != 2:
        scores = scores.movedim(axis, -1).reshape(shape.numel(), c)
    by_class = None if weight is None else class_weight(function, weight, c, scores)
    if by_class is None and ignore_index is None:
        return Samples(scores, label, None, shape)
    rows = torch.ones_like(label) if by_class is None else by_class[label.clamp(min=0)]
    rows = torch.where(label == IGNORED, 0.0, rows.double())
    # Not the weight of class 0, which may be 0 and leave the row out.
    return Samples(scores, label, torch.where(label == UNDECLARED, 1.0, rows), shape)


def _class_target(function: str, target: object, scores: Tensor, beside: str) -> Tensor:
    """Integer or bool labels of the shape of `scores`, called `beside`, without its classes."""
    target = target if type(target) is Tensor else plain(function, "target", target)
    shape = (*scores.shape[:1], *scores.shape[2:]) if scores.ndim > 1 else ()
    given = target
    if target.ndim == scores.ndim > 1 and target.shape[1] == 1:
        target = target.squeeze(1)
    if target.shape != shape:
        repair = class_target_repair(given, beside, tuple(scores.shape), readable(given))
        fail(ValueError, function, "target", f"of shape {shape}", describe(given), repair)
    if target.is_floating_point() or target.is_complex():
        fail_indices(function, "target", given)  # before its shape becomes that of rows
    if target.device != scores.device:
        _fail_device(function, "target", target, scores)
    return target


# ---- lists and binary maps: labels 0 and 1 -------------------------------------------------------


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
    axes = (-1,) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    inside = all(-scores.ndim <= axis < scores.ndim for axis in axes)
    if not inside or len({axis % scores.ndim for axis in axes}) != max(len(axes), 1):
        several = "" if dim is None or isinstance(dim, int) else "one or more different axes, each "
        must = f"{several}an axis in [{-scores.ndim}, {scores.ndim - 1}]"
        fail(ValueError, function, "dim", must, repr(dim), "It is the axis of the items.")
    return scores, axes


def _axes(scores: Tensor) -> str:
    """The repair for scores ``(*, 1)``, with nothing said about their axes."""
    n, items = scores.shape[:-1].numel(), scores.shape[-2]
    repair = f"That is {n} lists of one item, for which pass dim=-1. To rank"
    if scores.ndim == 2:
        return f"{repair} the {n} items as one list pass dim=0."
    return f"{repair} the {items} items on axis -2 pass dim=-2; all {n} as one list, flatten them."


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
