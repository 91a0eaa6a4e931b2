"""Which optimisers step the variables of the Lagrangian solver: its projection is exact for those
of a plain SGD alone.

A hook that torch calls after the steps of all optimisers sees them, however they came to hold the
variables: with a model that the measure is part of, or after a `load_state_dict`, which replaces
the options of an optimiser. What an optimiser is to be told from before its first step are the
dicts of `primal_groups`, which it keeps and adds its own options to.
"""

import weakref
from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from evalgrad._errors import fail

PLAIN = {"momentum": 0.0, "weight_decay": 0.0}
SIGNS = {
    "betas",
    "alpha",
    "lr_decay",
    "rho",
    "etas",
    "momentum_decay",
}  # of torch's other optimisers


class _Variable:
    """What stepped a variable since the last look."""

    def __init__(self, variable: Tensor) -> None:
        number = id(variable)
        # an id may be that of another tensor later
        self.alive = weakref.ref(variable, lambda _: _watched.pop(number, None))
        self.stepped = self.ever = False  # and ever before
        self.wrong: str | None = None


_watched: dict[int, _Variable] = {}
_hooks: list[Any] = []  # one for all variables, from the first on


def watch(variables: Iterable[Tensor]) -> list[_Variable]:
    """From now on steps of the variables are seen."""
    if not _hooks:
        _hooks.append(register_optimizer_step_post_hook(_after_step))
    found = []
    for variable in variables:
        known = _watched.get(id(variable))
        if known is None or known.alive() is not variable:
            known = _watched[id(variable)] = _Variable(variable)
        found.append(known)
    return found


Groups = list[dict[str, Any]]


def taken(groups: Groups) -> Groups:
    """Those of `primal_groups` that an optimiser added its options to."""
    return [group for group in groups if group.keys() - {"params", "lr", *PLAIN}]


def check_optimisers(variables: Iterable[Tensor], given: list[Groups] | None) -> None:
    """Raise unless a plain `torch.optim.SGD` took the last of `given` that were taken, what
    `primal_groups` gave at each call, and such a one alone stepped the variables since the last
    look. None: of a copy, whose optimiser, copied with it, shows only once it steps.
    """
    known = watch(variables)
    stepped = any(variable.stepped for variable in known)
    found = next((variable.wrong for variable in known if variable.wrong), None)
    for variable in known:
        variable.stepped, variable.wrong = False, None
    if given is not None or not any(variable.ever for variable in known):
        found = found or _wrong_groups(given or [], known, stepped)
    if found:
        must = "variables of a plain torch.optim.SGD alone"
        repair = (
            "Give `primal_groups(lr)` to torch.optim.SGD, without momentum or weight decay, and"
            " leave these variables out of every other optimiser: the projection is exact for such"
            " steps alone."
        )
        fail(ValueError, "project_", "primal_groups", must, found, repair)


def _after_step(optimiser: Optimizer, *_: object) -> None:
    """At every step of every optimiser: ids alone, so that a large model costs little."""
    if not _watched:
        return
    for group in optimiser.param_groups:
        for number in _watched.keys() & map(id, group["params"]):
            variable = _watched[number]
            tensor = variable.alive()
            if tensor is not None and tensor.grad is not None:
                variable.stepped = variable.ever = True
                variable.wrong = variable.wrong or _wrong(group, type(optimiser).__name__)


def _wrong(group: dict[str, Any], name: str) -> str | None:
    """What speaks against an optimiser with this group."""
    if not {"dampening", "nesterov"} <= group.keys():
        return name
    if group["momentum"] or group["weight_decay"] or group["maximize"]:
        return "SGD with momentum, weight decay or maximize"
    return None


def _wrong_groups(given: list[Groups], known: list[_Variable], stepped: bool) -> str | None:
    """By the options that an optimiser added; of one that steps they may no longer be its own."""
    groups = next(filter(None, map(taken, reversed(given))), [])
    held = {id(variable) for group in groups for variable in group["params"]}
    missing = [variable for variable in known if id(variable.alive()) not in held]
    if len(missing) == len(known):  # also after a load_state_dict(assign=True)
        return "no optimiser that was given them"
    if missing:
        return "an optimiser that was given only some of them"
    if stepped:
        return None
    names = (
        f"one with {', '.join(sorted(group.keys() & SIGNS)) or 'other options'}" for group in groups
    )
    return next(filter(None, map(_wrong, groups, names)), None)
