"""How a comparison is fitted into a time budget: fewer seeds and trials first, then shorter
trainings.

The rule, as in docs/lab.md: the time of the comparison is estimated from timed steps. While it
exceeds the budget, the search is reduced to one seed, then to 4 trials, then the results to 3
seeds; then the trainings are shortened, down to one epoch; then 2 trials and 2 seeds are used.
After the search, the time it took determines how many seeds fit into the remaining time.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from evalgrad_lab.errors import UserError

UNITS = {"s": 1, "min": 60, "h": 3600}
MARGIN = 0.85  # of the time is planned for: other programs run too


def seconds_of(text: str) -> float:
    """A time in words.

    >>> seconds_of("1.5h")
    5400.0
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|min|h)", text)
    if not match or float(match[1]) == 0:
        raise UserError(f"--budget must be a time such as 90s, 30min or 2h; got {text!r}.")
    return float(match[1]) * UNITS[match[2]]


@dataclass(frozen=True)
class Plan:
    """The number of trials, seeds and iterations for each loss."""

    trials: int
    search_seeds: int
    seeds: int
    iterations: int


@dataclass(frozen=True)
class Costs:
    """Seconds of a step, of a look at validation, of getting ready; steps between two looks."""

    step: float
    look: float
    ready: float
    per_epoch: int

    def run(self, iterations: int) -> float:
        looks = -(-iterations // self.per_epoch) + 2  # and the test
        return self.ready + iterations * self.step + looks * self.look


def estimated(plan: Plan, losses: int, costs: Costs, jobs: int) -> float:
    """The seconds of the search, of both panels, and of the model that is left."""
    runs = losses * (plan.trials * plan.search_seeds + 2 * plan.seeds)
    return costs.run(plan.iterations) * (runs / jobs + 1)


def fitted(plan: Plan, losses: int, costs: Costs, jobs: int, seconds: float) -> Plan:
    """The first of the smaller and smaller plans that fits, else the smallest."""
    smallest = plan
    for smaller in _smaller(plan, costs.per_epoch):
        smallest = smaller
        if estimated(smaller, losses, costs, jobs) <= MARGIN * seconds:
            break
    return smallest


def _smaller(plan: Plan, per_epoch: int) -> Iterator[Plan]:
    yield plan
    for name, least in (("search_seeds", 1), ("trials", 4), ("seeds", 3)):
        while getattr(plan, name) > least:
            plan = replace(plan, **{name: getattr(plan, name) - 1})
            yield plan
    while plan.iterations > per_epoch:
        plan = replace(plan, iterations=max(per_epoch, int(plan.iterations * 0.9)))
        yield plan
    for name, least in (("trials", 2), ("seeds", 2)):
        while getattr(plan, name) > least:
            plan = replace(plan, **{name: getattr(plan, name) - 1})
            yield plan


def seeds_left(plan: Plan, run: float, losses: int, jobs: int, seconds: float) -> int:
    """How many seeds fit into the seconds that are left, at `run` seconds each; at least 2."""
    each = 2 * losses * run / jobs
    return max(min(plan.seeds, 2), min(plan.seeds, int((MARGIN * seconds - run) / each)))
