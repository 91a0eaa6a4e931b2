"""How the learning rate falls over a phase of the training."""

import math
from collections.abc import Callable

from evalgrad_lab.errors import UserError

Schedule = Callable[[float], float]


def poly(part: float, power: float = 0.9) -> float:
    """(1 - k / max_iter)^power, by which Lovász-Softmax and loss max-pooling were trained.

    >>> [round(poly(part), 3) for part in (0, 0.5, 1)]
    [1.0, 0.536, 0.0]
    """
    return (1 - part) ** power


def cosine(part: float) -> float:
    """Half a cosine from 1 to 0."""
    return (1 + math.cos(math.pi * part)) / 2


SCHEDULES: dict[str, Schedule] = {"cosine": cosine, "poly": poly, "constant": lambda part: 1.0}


def schedule_of(name: str) -> Schedule:
    """The factor of the learning rate by the part of a phase that is over; ``drops:0.5,0.75``
    divides it by ten at each of these parts, ``drops:0.5/5`` by five, ``exponential:0.01`` falls
    evenly in its logarithm to a hundredth.

    >>> [schedule_of("drops:0.5,0.75/5")(part) for part in (0.4, 0.5)]
    [1.0, 0.2]
    >>> [round(schedule_of("exponential:0.01")(part), 3) for part in (0, 0.5, 1)]
    [1.0, 0.1, 0.01]
    """
    kind, _, numbers = name.partition(":")
    try:
        if kind == "exponential" and 0 < (last := float(numbers)) <= 1:
            return lambda part: last**part
        if kind == "drops":
            places, _, by = numbers.partition("/")
            drops, divisor = [float(place) for place in places.split(",")], float(by or 10)
            if divisor > 0:
                return lambda part: (1 / divisor) ** sum(part >= place for place in drops)
    except ValueError:
        pass  # told below
    if name not in SCHEDULES:
        raise UserError(
            f"--schedule must be {', '.join(SCHEDULES)}, exponential:LAST or drops:PART,PART; got"
            f" {name!r}."
        )
    return SCHEDULES[name]
