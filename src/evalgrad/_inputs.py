"""The way in: from the tensors that users have to the canonical form that the operators take.

Here are tensors of any kind, and those with one label among C classes; `_binary_inputs`,
`_soft_targets` and `_grades` have the other targets. Inside, every tensor is a plain one (tensor
subclasses are taken off here), labels are int64 or bool, and rows come first. A shape that can
mean one thing only is accepted, e.g. a mask (N, 1, *) beside logits (N, C, *); one that would
silently mean another is refused with its repair (`_repairs`).

Labels are read where that costs no sync: on a CPU, in eager mode. Elsewhere (compile, vmap,
export, accelerators) a label that was not declared makes the loss of its group NaN: `invalid`
names the groups, and `_rows` makes them NaN.
"""

from collections.abc import Sequence
from typing import NamedTuple, NoReturn

import torch
from torch import Tensor

from evalgrad._errors import describe, fail
from evalgrad._labels import (
    IGNORED,
    UNDECLARED,
    class_labels,
    fail_indices,
    readable,
    sample_labels,
)
from evalgrad._options import Classes
from evalgrad._repairs import class_target_repair, few_classes_repair, shape_repair

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
    if not isinstance(x, Tensor):
        repair = f"Convert it with `torch.as_tensor({argument})`."
        fail(TypeError, function, argument, "a tensor", describe(x), repair)
    if x.is_nested:
        repair = f"Pad it: `{argument}.to_padded_tensor(...)`, and mask the padding."
        fail(TypeError, function, argument, "a regular tensor", "a nested tensor", repair)
    if x.layout is not torch.strided:
        repair = f"Convert it with `{argument}.to_dense()`."
        fail(TypeError, function, argument, "a dense tensor", f"a {x.layout} one", repair)
    if x.is_quantized:
        repair = f"Convert it with `{argument}.dequantize()`."
        fail(TypeError, function, argument, "a tensor of plain numbers", describe(x), repair)
    if type(x) is Tensor or type(x).__torch_dispatch__ is not Tensor.__torch_dispatch__:
        return x
    return x.as_subclass(Tensor)


def converted(function: str, argument: str, x: object, dtype: torch.dtype | None = None) -> Tensor:
    """A plain tensor on the CPU, of a tensor, an array or numbers."""
    try:
        given = torch.as_tensor(x, dtype=dtype)
    except (TypeError, ValueError, RuntimeError):
        must, repair = "a tensor, an array or numbers", "Convert it with `torch.tensor(...)`."
        fail(TypeError, function, argument, must, describe(x), repair)
    return with_values(function, argument, plain(function, argument, given)).cpu()


def with_values(function: str, argument: str, x: Tensor) -> Tensor:
    """`x`, which has values to look at."""
    if x.is_meta:
        must, repair = "a tensor with values", "Pass one that is not on the meta device."
        fail(ValueError, function, argument, must, "one on meta", repair)
    return x


def floating(function: str, argument: str, x: object, *, at_least: int = 1) -> Tensor:
    """A plain floating-point tensor with at least so many axes."""
    if type(x) is not Tensor or x.layout is not torch.strided or x.is_nested or x.is_quantized:
        x = plain(function, argument, x)
    if x.dtype not in WORKING:
        repair = f"Convert it with `{argument}.float()`."
        fail(TypeError, function, argument, "a floating-point tensor", describe(x), repair)
    if x.ndim < at_least:
        must = f"a tensor with at least {at_least} dimension{'s' * (at_least > 1)}"
        repair = f"Add the missing dimensions with `{argument}.unsqueeze(...)`."
        fail(ValueError, function, argument, must, describe(x), repair)
    return x


def like(function: str, argument: str, x: object, other: Tensor, beside: str = "items") -> Tensor:
    """A plain tensor of the shape of `other`, on its device; an axis 1 of size 1 may be missing.

    `beside` is the name of the other, by which the message knows what it holds.
    """
    if type(x) is not Tensor or x.layout is not torch.strided or x.is_nested or x.is_quantized:
        x = plain(function, argument, x)
    if x.device != other.device:
        fail_device(function, argument, x, other)
    if x.shape == other.shape:
        return x
    # One channel with and without its axis: (N, 1, *) beside (N, *).
    if x.ndim == other.ndim + 1 > 1 and x.shape[1] == 1 and x.squeeze(1).shape == other.shape:
        return x.squeeze(1)
    if other.ndim == x.ndim + 1 > 1 and other.shape[1] == 1 and other.squeeze(1).shape == x.shape:
        return x.unsqueeze(1)
    repair = shape_repair(argument, tuple(x.shape), beside, tuple(other.shape))
    fail(ValueError, function, argument, f"of shape {tuple(other.shape)}", describe(x), repair)


def fail_device(function: str, argument: str, x: Tensor, other: Tensor) -> NoReturn:
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
        must, repair = f"of shape ({num_classes},), one per class", "Pass one weight per class."
        fail(ValueError, function, "weight", must, describe(weight), repair)
    if weight.device != other.device:
        fail_device(function, "weight", weight, other)
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
        got, repair = repr(weight.tolist()), "Use 0 to leave out a class."
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
    has_mode: bool = False,
) -> ClassMaps:
    """Logits ``(N, C, *)``, C >= 2, and labels ``(N, *)`` or ``(N, 1, *)``, in groups."""
    logits = floating(function, "logits", logits, at_least=2)
    if logits.shape[1] < 2:
        repair = few_classes_repair("logits", logits.shape[1], has_mode)
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
        repair = few_classes_repair("scores", scores.shape[axis])
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
    if (
        type(target) is not Tensor
        or target.layout is not torch.strided
        or target.is_nested
        or target.is_quantized
    ):
        target = plain(function, "target", target)
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
        fail_device(function, "target", target, scores)
    return target
