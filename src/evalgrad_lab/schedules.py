"""How the learning rate falls, and which loss trains when.

A schedule maps the part of the phase that is over, in [0, 1], to a factor of the learning rate. A
mixed objective has two phases: cross-entropy first, then the metric's loss, each with the whole
schedule: on one schedule without a restart the second loss gets only the small steps, and does
poorly.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evalgrad_lab.errors import UserError


def poly(part: float, power: float = 0.9) -> float:
    """(1 - k / max_iter)^power: equation 16 of the Lovász paper, and the schedule of loss
    max-pooling.

    Example:
        >>> [round(poly(part), 3) for part in (0, 0.5, 1)]
        [1.0, 0.536, 0.0]
    """
    return (1 - part) ** power


def cosine(part: float) -> float:
    """Half a cosine from 1 to 0."""
    return (1 + math.cos(math.pi * part)) / 2


def constant(part: float) -> float:
    """1."""
    return 1.0


SCHEDULES: dict[str, Callable[[float], float]] = {
    "cosine": cosine,
    "poly": poly,
    "constant": constant,
}


def factor(schedule: str, step: int, lengths: Sequence[int]) -> float:
    """Factor of the learning rate at `step` of phases of the given lengths; each phase runs the
    whole schedule.

    Example:
        >>> [round(factor("cosine", step, (2, 4)), 2) for step in range(6)]
        [1.0, 0.5, 1.0, 0.85, 0.5, 0.15]
    """
    for length in lengths[:-1]:
        if step < length:
            return SCHEDULES[schedule](step / length)
        step -= length
    return SCHEDULES[schedule](min(step / max(lengths[-1], 1), 1.0))


@dataclass(frozen=True)
class Mix:
    """How the baseline joins the metric's loss: "then", it has the first `share` of the steps;
    "sum", the loss has that `share`.
    """

    order: str
    share: float

    def lengths(self, steps: int) -> tuple[int, ...]:
        """The phases of a training of that many steps."""
        first = round(self.share * steps)
        return (first, steps - first) if self.order == "then" else (steps,)


def parse_mix(text: str) -> Mix | None:
    """Read `--mix`: none, then:SHARE or sum:SHARE.

    Example:
        >>> parse_mix("then:0.25")
        Mix(order='then', share=0.25)
    """
    if text == "none":
        return None
    order, _, share = text.partition(":")
    try:
        mix = Mix(order, float(share))
    except ValueError:
        mix = Mix(order, math.nan)
    if order not in ("then", "sum") or not 0 < mix.share < 1:
        raise UserError(
            "--mix must be none, then:SHARE or sum:SHARE with a share between 0 and 1; got"
            f" {text!r}. then:0.5 trains the first half on the baseline, sum:0.5 trains on the mean"
            " of both."
        )
    return mix
