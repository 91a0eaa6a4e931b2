"""Error messages: function, `argument`, what it must be, what was passed, and a repair.

TypeError for the kind or dtype of an argument, ValueError for its shape, option or range.
"""

from typing import NoReturn

from torch import Tensor

LONGEST = 80  # characters of a value that a message shows


def fail(
    error: type[Exception], function: str, argument: str, must: str, got: str, repair: str
) -> NoReturn:
    """Raise `error` with a sentence of the form that all messages of the library have."""
    raise error(f"{function}: `{argument}` must be {must}; got {got}. {repair}")


def describe(x: object) -> str:
    """What was passed, in short: a tensor or an array by its dtype and shape, not by its values."""
    if hasattr(x, "shape") and hasattr(x, "dtype"):
        dtype = str(x.dtype).removeprefix("torch.")
        kind = "tensor"
        if not isinstance(x, Tensor):
            kind = f"{type(x).__module__}.{type(x).__name__}"
        return f"{'an' if dtype.startswith('i') else 'a'} {dtype} {kind} of shape {tuple(x.shape)}"
    words = repr(x)
    return words if len(words) <= LONGEST else f"{words[:LONGEST]}... ({type(x).__name__})"
