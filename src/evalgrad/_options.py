"""Options: what each may be, in one table.

A name means the same in every loss and metric, so an option is checked by its name: `checked`
looks up the options that a call gives. A module checks its options once, in the constructor, and
then calls the function beneath (`_module`).
"""

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any, Literal, ParamSpec, TypeVar

import torch

from evalgrad._errors import describe, fail

Reduction = Literal["mean", "sum", "none"]
Classes = Literal["present", "all"] | Sequence[int]
Direction = Literal["positive", "negative"]
Axes = int | Sequence[int] | None

Check = Callable[[str, str, object], None]  # function, argument, value

# The first are the usual ones, and all that a compiler meets; NumPy's are among the last.
INTEGERS: Any = (int, torch.SymInt, Integral)
NUMBERS: Any = (int, float, Real)
NO_SCRIPT = (
    "{}: torch.jit.script cannot compile this loss. Use torch.export.export or torch.compile"
    " instead, or script the network alone."
)

P = ParamSpec("P")
R = TypeVar("R")


def checked(**own: Check) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a public function so that the options of a call are checked by their names.

    `own` are checks of this function that differ from the table's or are not in it. Defaults are
    right by definition and cost nothing. `check` does the same for a dict of options.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        checks = CHECKS | own

        @functools.wraps(function)
        def call(*args: P.args, **options: P.kwargs) -> R:
            for argument, value in options.items():
                if argument in checks:
                    checks[argument](function.__name__, argument, value)
            return function(*args, **options)

        # A code of its own: the compiler keeps a limited number of versions of each.
        own_code = call.__code__.replace(co_name=function.__name__)  # type: ignore[attr-defined]
        vars(call).update(
            checks=checks,
            arguments=tuple(inspect.signature(function).parameters),
            __script_unsupported=NO_SCRIPT.format(function.__name__),
        )
        call.__code__ = own_code  # type: ignore[attr-defined]
        return call

    return decorate


# ---- kinds of checks ---------------------------------------------------------------------------


def one_of(*options: str) -> Check:
    """One of several words."""

    def check(function: str, argument: str, value: object) -> None:
        if not isinstance(value, str) or value not in options:
            names = ", ".join(repr(option) for option in options)
            repair = "Check the spelling."
            fail(ValueError, function, argument, f"one of {names}", describe(value), repair)

    return check


def flag(function: str, argument: str, value: object) -> None:
    """True or False."""
    if not isinstance(value, bool):
        fail(TypeError, function, argument, "True or False", describe(value), "Pass a bool.")


def integer(
    low: int, high: int | None = None, *, most: int = 2**63 - 1, repair: str, none: bool = False
) -> Check:
    """An integer of a range; with `none` also None. `most` is what memory, or 64 bits, can hold."""

    def check(function: str, argument: str, value: Any) -> None:
        if none and value is None:
            return
        if isinstance(value, bool) or not isinstance(value, INTEGERS):
            fail(TypeError, function, argument, "an integer", describe(value), repair)
        if value < low or value > (most if high is None else high):
            bound = f"at least {low}" if value < low else f"at most {most}"
            must = bound if high is None else f"in [{low}, {high}]"
            fail(ValueError, function, argument, must, repr(value), repair)

    return check


def number(
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    below: float = math.inf,
    at_most: float = math.inf,
    repair: str,
    none: bool = False,
) -> Check:
    """A finite number between bounds; with `none` also None."""
    bounds = {"above": above, "at least": at_least, "below": below, "at most": at_most}
    words = [f"{word} {bound:g}" for word, bound in bounds.items() if not math.isinf(bound)]

    def check(function: str, argument: str, value: Any) -> None:
        if none and value is None:
            return
        if isinstance(value, bool) or not isinstance(value, NUMBERS):
            fail(TypeError, function, argument, "a number", describe(value), repair)
        # Comparisons alone, which compile can trace; NaN fails them.
        if not (above < value < below and at_least <= value <= at_most and abs(value) < math.inf):
            must = "finite" + "".join(f" and {word}" for word in words)
            fail(ValueError, function, argument, must, repr(value), repair)

    return check


def share_or_nan(function: str, argument: str, value: object) -> None:
    """A number in [0, 1], or NaN."""
    # Comparisons alone, as above: NaN alone differs from itself.
    if not (isinstance(value, float) and value != value):
        repair = "Pass 0.0 or 1.0, or NaN to leave it out of the mean."
        number(at_least=0, at_most=1, repair=repair)(function, argument, value)


def class_choice(function: str, argument: str, value: object) -> None:
    """``"present"``, ``"all"`` or class indices; whether they exist is seen with the logits."""
    if isinstance(value, str):
        one_of("present", "all")(function, argument, value)
        return
    repair = 'Pass "present", "all" or a list of class indices such as [1, 2].'
    if not isinstance(value, Sequence):
        fail(TypeError, function, argument, "a string or a list", describe(value), repair)
    if not len(value):
        fail(ValueError, function, argument, "at least one class", "none", repair)
    for c in value:
        integer(0, repair=repair)(function, argument, c)


def axes(function: str, argument: str, value: object) -> None:
    """An axis, several axes or None."""
    repair = "Pass e.g. dim=-1 or dim=(1, 2)."
    if value is not None and not isinstance(value, (*INTEGERS, Sequence)):
        must = "an integer, a tuple of integers or None"
        fail(TypeError, function, argument, must, describe(value), repair)
    for axis in () if value is None else value if isinstance(value, Sequence) else (value,):
        integer(-64, 63, repair="Pass an integer, a tuple of integers, or None.")(
            function, argument, axis
        )


def each_axis(dim: int | Sequence[int]) -> tuple[int, ...]:
    """One axis or several, as plain integers."""
    return tuple(map(int, dim)) if isinstance(dim, Sequence) else (int(dim),)


def check_guesses(function: str, k: int, classes: int) -> None:
    """k within the classes."""
    repair = (
        f"There are {classes} classes in dim 1, so {classes} guesses are always right: lower k."
    )
    integer(1, classes - 1, repair=repair)(function, "k", k)


# ---- the table ---------------------------------------------------------------------------------

# Beyond these, float32 would lose the smaller counts beside the larger.
OVERLAP_WEIGHT = number(
    at_least=1e-3, at_most=1e3, repair="It is relative to a hit; Dice has 0.5 for both."
)

CHECKS: dict[str, Check] = {
    "reduction": one_of("mean", "sum", "none"),
    "ignore_index": integer(
        -(2**63), 2**63 - 1, none=True, repair="Pass the label to ignore, or None."
    ),
    "classes": class_choice,
    "per_image": flag,
    "per_class": flag,
    "num_classes": integer(1, most=2**20, repair="Pass the number of classes, 2 for binary tasks."),
    "bins": integer(1, 2**20, none=True, repair="4096 is a good choice; None is exact."),
    "dim": integer(-64, 63, none=True, repair="Pass the dimension of the items, e.g. dim=0."),
    "k": integer(1, repair="k is the number of guesses allowed; 1 is ordinary classification."),
    "temperature": number(above=0, repair="1.0 is smooth, 0.1 is close to the top-k error."),
    "margin": number(at_least=0, repair="The paper uses 1; 0 is no margin."),
    "epsilon": number(
        above=0,
        repair="It is on the scale of the scores; `suggest_epsilon` returns a starting value.",
    ),
    "direction": one_of("positive", "negative"),
    "beta": number(above=0, at_most=1e6, repair="Use 1.0 for F1."),
    "misses": OVERLAP_WEIGHT,
    "false_alarms": OVERLAP_WEIGHT,
    "similarity": one_of("cosine", "dot"),
    "ties": one_of("standard", "worst"),
    "zero_division": share_or_nan,
}
