"""What the losses over lists of scored items share: the checks of their arguments, and lists of any
shape as rows.
"""

from torch import Tensor

from evalgrad import _checks
from evalgrad._masking import reduce

SIGNS = {"positive": 1, "negative": -1}  # s of y_direct = argmax F + s eps Delta


def check_options(function: str, epsilon: float, direction: str, reduction: str) -> None:
    """The options of a direct loss over lists."""
    check_step(function, epsilon, direction)
    _checks.check_option(function, "reduction", reduction, _checks.REDUCTIONS)


def check_step(function: str, epsilon: float, direction: str) -> None:
    """The two options that define y_direct."""
    repair = (
        "It acts on the scale of the scores; `suggest_epsilon` finds a first value from a batch."
    )
    _checks.check_number(function, "epsilon", epsilon, above=0, repair=repair)
    _checks.check_option(function, "direction", direction, tuple(SIGNS))


def check_lists(function: str, scores: Tensor, target: Tensor, mask: Tensor | None) -> None:
    """Scores, labels 0 or 1 and perhaps a mask, all of shape (*, n)."""
    _checks.check_floating(function, "scores", scores)
    _checks.check_target(function, target, scores, scores.shape)
    _checks.check_bool(function, "mask", mask, scores)
    _checks.check_binary(function, target, mask)


def as_rows(x: Tensor) -> Tensor:
    """Canonical form (rows, n)."""
    return x.reshape(x.shape[:-1].numel(), x.shape[-1])


def counts_of(target: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Which items of a bool `target` are positives that count, and which are negatives that
    count.
    """
    return (target, ~target) if mask is None else (target & mask, ~target & mask)


def reduce_lists(value: Tensor, counted: Tensor, like: Tensor, reduction: str) -> Tensor:
    """Row values back in the leading axes and the dtype of the scores, reduced over the lists that
    count.
    """
    shape = like.shape[:-1]
    return reduce(value.reshape(shape), counted.reshape(shape), reduction).to(like.dtype)


def describe_options(options: dict[str, object]) -> str:
    """What `extra_repr` shows."""
    return ", ".join(f"{name}={value!r}" for name, value in options.items())
