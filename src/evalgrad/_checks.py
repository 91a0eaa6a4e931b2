"""Checks of arguments. Every message is a sentence: function, `argument`, what it must be, what
came, the usual repair.

TypeError for the kind or dtype of an argument, ValueError for its shape, option or range.
"""

import math
from collections.abc import Collection, Sequence
from typing import NoReturn

import torch
from torch import Tensor

from evalgrad._masking import valid_mask

REDUCTIONS = ("mean", "sum", "none")


def readable(x: Tensor) -> bool:
    """Whether the values of `x` can be looked at without a sync: a plain CPU tensor, in eager mode,
    outside of vmap.
    """
    return (
        not torch.compiler.is_compiling()
        and type(x) in (Tensor, torch.nn.Parameter)
        and x.is_cpu
        and not torch._C._functorch.is_functorch_wrapped_tensor(x)
    )


def describe(x: object) -> str:
    if isinstance(x, Tensor):
        return f"a {str(x.dtype).removeprefix('torch.')} tensor of shape {tuple(x.shape)}"
    return repr(x)


def fail(
    error: type[Exception], function: str, argument: str, must: str, got: str, repair: str
) -> NoReturn:
    raise error(f"{function}: `{argument}` must be {must}; got {got}. {repair}")


def check_floating(function: str, argument: str, x: Tensor, *, at_least: int = 1) -> None:
    """A floating-point tensor with at least so many axes."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        fail(
            TypeError,
            function,
            argument,
            "a floating-point tensor",
            describe(x),
            f"Convert it with `{argument}.float()`.",
        )
    if x.ndim < at_least:
        shape = f"a tensor with at least {at_least} axes"
        fail(
            ValueError,
            function,
            argument,
            shape,
            describe(x),
            f"Add the missing axes with `{argument}.unsqueeze(...)`.",
        )


def check_target(
    function: str, target: Tensor, like: Tensor, shape: Sequence[int], *, argument: str = "target"
) -> None:
    """Integer or bool labels of the given shape, on the device of `like`."""
    if not isinstance(target, Tensor) or target.is_floating_point() or target.is_complex():
        repair = "Convert class indices with `.long()`; soft targets are not defined for this loss."
        fail(
            TypeError,
            function,
            argument,
            "an integer or bool tensor of labels",
            describe(target),
            repair,
        )
    if tuple(target.shape) != tuple(shape):
        repair = (
            "Labels have the shape of the input without the axis of its classes: reshape or"
            f" squeeze `{argument}`."
        )
        fail(ValueError, function, argument, f"of shape {tuple(shape)}", describe(target), repair)
    check_device(function, argument, target, like)


def check_class_maps(
    function: str, logits: Tensor, target: Tensor, ignore_index: int | None, weight: Tensor | None
) -> None:
    """Scores ``(N, C, *)`` with C >= 1, labels ``(N, *)`` in range, and one weight per class or
    None.
    """
    check_floating(function, "logits", logits, at_least=2)
    if logits.shape[1] == 0:
        fail(
            ValueError,
            function,
            "logits",
            "(N, C, *) with C >= 1",
            describe(logits),
            "Put the classes on axis 1.",
        )
    check_target(function, target, logits, (logits.shape[0], *logits.shape[2:]))
    check_labels(function, target, logits.shape[1], valid_mask(target, ignore_index))
    check_weight(function, weight, logits.shape[1], logits)


def check_device(function: str, argument: str, x: Tensor, like: Tensor) -> None:
    if x.device != like.device:
        fail(
            ValueError,
            function,
            argument,
            f"on {like.device}",
            f"a tensor on {x.device}",
            f"Move it: `{argument}.to({str(like.device)!r})`.",
        )


def check_labels(
    function: str,
    target: Tensor,
    num_classes: int,
    mask: Tensor | None,
    *,
    argument: str = "target",
) -> None:
    """Labels that count lie in [0, num_classes); looked at only where that costs no sync."""
    if not readable(target) or (target.dtype == torch.bool and num_classes >= 2):
        return
    if target.numel() == 0:
        return
    # where, not indexing: that takes many times as long
    counted = target if mask is None else torch.where(mask, target, 0)
    # for which torch has no aminmax
    if counted.dtype in (torch.uint16, torch.uint32, torch.uint64):
        counted = counted.long()
    low, high = (int(x) for x in counted.aminmax())
    if low < 0 or high >= num_classes:
        wrong = low if low < 0 else high
        repair = f"If {wrong} marks pixels or samples to leave out, pass ignore_index={wrong}."
        fail(
            ValueError,
            function,
            argument,
            f"labels in [0, {num_classes - 1}]",
            f"the label {wrong}",
            repair,
        )


def check_binary(function: str, target: Tensor, mask: Tensor | None) -> None:
    """Labels that count are 0 or 1; looked at only where that costs no sync."""
    if not readable(target) or target.dtype == torch.bool:
        return
    counted = target if mask is None else torch.where(mask, target, 0)
    wrong = (counted != 0) & (counted != 1)
    if bool(wrong.any()):
        repair = (
            "Graded relevance is not supported: choose a grade, e.g. `target >= 2`. Items to leave"
            " out go through `mask`."
        )
        fail(
            ValueError,
            function,
            "target",
            "0 or 1, or bool",
            f"the label {int(counted[wrong][0])}",
            repair,
        )


def check_bool(function: str, argument: str, x: Tensor | None, like: Tensor) -> None:
    """None, or a bool tensor of the shape of `like`, on its device."""
    if x is None:
        return
    if not isinstance(x, Tensor) or x.dtype != torch.bool:
        fail(
            TypeError,
            function,
            argument,
            "a bool tensor",
            describe(x),
            f"Compare explicitly, e.g. `{argument} > 0`.",
        )
    if x.shape != like.shape:
        repair = f"Expand it to the input: `{argument}.expand_as(...)`."
        fail(ValueError, function, argument, f"of shape {tuple(like.shape)}", describe(x), repair)
    check_device(function, argument, x, like)


def check_option(function: str, argument: str, value: object, options: Collection[str]) -> None:
    if not isinstance(value, str) or value not in options:
        names = ", ".join(repr(option) for option in options)
        fail(
            ValueError, function, argument, f"one of {names}", repr(value), "Correct the spelling."
        )


def check_classes(
    function: str, classes: str | Sequence[int], num_classes: int | None = None
) -> None:
    """``"present"``, ``"all"`` or a list of class indices, looked at once their number is known."""
    if isinstance(classes, str):
        check_option(function, "classes", classes, ("present", "all"))
    elif num_classes is not None:
        for c in classes:
            check_integer(
                function,
                "classes",
                c,
                low=0,
                high=num_classes - 1,
                repair="List indices of existing classes.",
            )


def check_flag(function: str, argument: str, value: object) -> None:
    if not isinstance(value, bool):
        fail(TypeError, function, argument, "True or False", repr(value), "Pass a bool.")


def check_integer(
    function: str, argument: str, value: object, *, low: int, high: int | None = None, repair: str
) -> None:
    if isinstance(value, bool) or not isinstance(value, int | torch.SymInt):
        fail(TypeError, function, argument, "an integer", repr(value), repair)
    if value < low or (high is not None and value > high):
        must = f"at least {low}" if high is None else f"in [{low}, {high}]"
        fail(ValueError, function, argument, must, repr(value), repair)


def check_number(
    function: str,
    argument: str,
    value: object,
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    repair: str,
) -> None:
    """A finite number, above or at least a bound."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        fail(TypeError, function, argument, "a number", repr(value), repair)
    # comparisons alone, which compile can trace; NaN fails them
    if not (above < value < math.inf and value >= at_least):
        bound = f"above {above:g}" if above > -math.inf else f"at least {at_least:g}"
        fail(ValueError, function, argument, f"finite and {bound}", repr(value), repair)


def check_ignore_index(function: str, ignore_index: object) -> None:
    if ignore_index is not None:
        check_integer(
            function,
            "ignore_index",
            ignore_index,
            low=-(2**63),
            repair="Pass the label to leave out, or None.",
        )


def check_weight(function: str, weight: Tensor | None, num_classes: int, like: Tensor) -> None:
    """None, or one finite weight >= 0 per class."""
    if weight is None:
        return
    check_floating(function, "weight", weight)
    if tuple(weight.shape) != (num_classes,):
        fail(
            ValueError,
            function,
            "weight",
            f"of shape ({num_classes},), one per class",
            describe(weight),
            "Give every class its weight.",
        )
    check_device(function, "weight", weight, like)
    if readable(weight) and not bool(((weight >= 0) & weight.isfinite()).all()):
        fail(
            ValueError,
            function,
            "weight",
            "finite and at least 0",
            repr(weight.tolist()),
            "Use 0 to leave a class out.",
        )
