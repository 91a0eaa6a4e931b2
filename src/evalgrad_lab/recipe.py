"""`--loss auto`: trains with cross-entropy, forks a second branch that adds the loss of the metric,
and returns the better of the two on validation data.

No loss and no fixed mixture is best on all data. The first branch trains with cross-entropy to the
end, as without the recipe, with class weights if classes are rare and the metric is a mean over
classes. The second branch forks from it after `SHARED` of the steps and trains for the remaining
number of steps on the weighted sum of cross-entropy and the loss of the metric, with its own
learning-rate schedule. Both are measured on validation data, each with its best decision rule; the
second is returned only if it is better by more than the standard error of the difference. The
result is therefore as good as cross-entropy, up to the noise of this choice, or better.

A second branch that collapses is restarted once with less of the metric's loss. If the validation
data are too few for a choice, there is no second branch.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from evalgrad_lab.data.dataset import Examples
from evalgrad_lab.errors import UserError
from evalgrad_lab.fit import Hook, Training
from evalgrad_lab.given import Given
from evalgrad_lab.loss_factories import from_data, is_number, option_names
from evalgrad_lab.metrics import Metric
from evalgrad_lab.phases import BASELINES, check_on_batch

AUTO = "auto"
SHARED = 0.7  # of the steps come before the fork: the second branch costs 0.3 of a training
SHARES = (0.5, 0.1)  # of the metric's loss in the second branch; the latter after a collapse
GROUPS = 20  # of validation examples, each left out once for the standard error
LEAST = 20  # examples, and positives, without which validation cannot choose
FALLEN = 0.5  # of the first branch's metric: a second one below it has collapsed
RARE = 0.2  # a class with less than this share of its even share of the items is rare
OF_CLASSES = ("miou", "image-miou", "dice", "f1")  # means over classes, in which a rare one counts
OF_FOREGROUND = ("image-iou", "image-dice")
# what suits a second branch better than the defaults of a loss alone
OPTIONS: dict[str, dict[str, Any]] = {
    "smooth_topk": {"temperature": 0.1},
    "direct_average_precision": {"epsilon": "suggest"},
    "direct_ndcg": {"epsilon": "suggest"},
    "direct_jaccard": {"epsilon": "suggest"},
}


@dataclass(frozen=True)
class Recipe:
    """The recipe for given data: the loss of the first branch, that of the metric (None if there is
    no second branch, for the reason `why`), and the options of both.
    """

    first: str
    first_options: dict[str, Any]
    second: str | None
    second_options: dict[str, Any]
    why: str
    shares: tuple[float, ...] = SHARES

    def branch(self, attempt: int) -> tuple[str, dict[str, Any]]:
        """The sum that the second branch trains on, and its options."""
        assert self.second is not None
        if not self.shares[attempt]:
            return self.first, self.first_options
        options = {self.first: self.first_options, self.second: self.second_options}
        return f"{self.first}+{self.second}", {**options, "share": self.shares[attempt]}


def recipe_for(
    metric: Metric, kind: str, given: Given, validation: Examples, options: dict[str, Any]
) -> Recipe:
    """The recipe for these data. `options` are the user's for the loss of the metric."""
    baseline = BASELINES[kind]
    _check_options(metric, baseline, options)
    own = {**metric.options, **OPTIONS.get(metric.loss, {}), **options}
    shares = _shares(own.pop("share", None))
    first, first_options = _start(baseline, metric, given, own)
    for loss, its in ((first, first_options), (metric.loss, own)):
        check_on_batch(loss, its, kind, given)  # raises now, and not after the first branch
    if metric.loss == baseline:
        why = f"no loss here follows {metric.name} more closely"
        return Recipe(first, {**first_options, **own}, None, {}, why)
    if few := _too_few(kind, metric, given, validation):
        return Recipe(first, first_options, None, own, few)
    return Recipe(first, first_options, metric.loss, own, "", shares)


def _check_options(metric: Metric, baseline: str, options: dict[str, Any]) -> None:
    """Raise for options that the recipe does not take, or would ignore."""
    weight = "weight_power" if baseline == "cross_entropy" else "positive_weight"
    own = option_names(metric.loss)
    share = ["share"] if metric.loss != baseline else []
    takes = [*share, weight, *(name for name in own if name != weight)]
    unknown = sorted(set(options) - {*takes, *from_data(metric.loss)})
    if not unknown or "**" in own:
        return
    branch = " and has no second branch" if not share else ""
    raise UserError(
        f"--loss-options: --loss auto for {metric.name} trains with {metric.loss}{branch}; it takes"
        f" {', '.join(takes)}. Got {', '.join(unknown)}."
    )


def _start(
    baseline: str, metric: Metric, given: Given, own: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """The loss of the start and its options: class weights as `own` says, from which they are
    taken, else where classes are rare and the metric is a mean over classes.
    """
    if baseline != "cross_entropy":
        weight = own.pop("positive_weight", 1.0)
        return baseline, {} if weight == 1.0 else {"positive_weight": weight}
    rare = metric.name in OF_CLASSES and _has_rare(given)
    power = own.pop("weight_power", 0.5 if rare else 0.0)
    return (baseline, {}) if power == 0 else ("weighted_cross_entropy", {"weight_power": power})


def _shares(asked: Any) -> tuple[float, ...]:
    """The share of the metric's loss in the second branch, and that after a collapse; 0 has
    nothing of it, which shows what the schedule that begins again does alone.
    """
    if asked is None:
        return SHARES
    if not is_number(asked) or not 0 <= asked < 1:
        raise UserError(
            "--loss-options: the share of --loss auto must be at least 0 and below 1; got"
            f" {asked!r}. 0.5 trains on the mean of both losses."
        )
    return asked, asked * SHARES[1] / SHARES[0]


def _has_rare(given: Given) -> bool:
    counts = given.class_counts[given.class_counts > 0]
    return bool((counts < RARE * counts.mean()).any())


def _too_few(kind: str, metric: Metric, given: Given, validation: Examples) -> str:
    """Why validation cannot choose between two branches; "" if it can."""
    if len(validation) < LEAST:
        return _few(len(validation), "example")
    if validation.lists is not None and len(set(validation.lists)) < LEAST:
        return _few(len(set(validation.lists)), "list")
    if kind in ("ranking", "multilabel"):
        return _too_few_labels(validation.labels())
    # of more classes a rare one is but a part of the mean
    of_two = given.num_classes == 2 and metric.name in (*OF_CLASSES, *OF_FOREGROUND)
    return _too_few_of_two(kind, validation) if of_two else ""


def _few(count: int, what: str, of: str = "") -> str:
    many = "" if count == 1 else "s"
    return f"validation has {count} {what}{many}{of}, too few to choose a branch (at least {LEAST})"


def _too_few_labels(labels: Tensor) -> str:
    """Of the 0/1 labels of items, or of each column of them."""
    columns = labels[:, None] if labels.ndim == 1 else labels
    counts = torch.stack([(columns == 1).sum(0), (columns == 0).sum(0)])
    rarest = int(counts.min())
    if rarest >= LEAST:
        return ""
    what = "positive" if (counts[0] == rarest).any() else "negative"
    return _few(rarest, what, " of a label" if labels.ndim == 2 else "")


def _too_few_of_two(kind: str, validation: Examples) -> str:
    """Of two classes: examples of each, or images that hold it."""
    held, target = [0, 0], validation.target
    assert target is not None
    for i in range(len(target)):
        for label in (0, 1):
            held[label] += bool((target[i] == label).any())
        if min(held) >= LEAST:  # masks are read from files
            return ""
    label, maps = held.index(min(held)), "segmentation" in kind
    of = f" with pixels of class {label}" if maps else f" of class {label}"
    return _few(held[label], "image" if maps else "example", of)


def fork_step(steps: int) -> int:
    """After which of the steps the second branch leaves."""
    return min(math.ceil(SHARED * steps), steps - 1)


def branch_steps(taken: int, steps: int, forked: bool) -> int:
    """How long the second branch is: the rest of the steps, or where the first branch stopped
    before the fork, as large a share of those it has taken.
    """
    if steps < 2:
        return 0
    return steps - fork_step(steps) if forked else math.floor(taken * (1 - SHARED) / SHARED)


class Fork(Hook):
    """Saves the weights of the network at the fork; they are part of the checkpoints. They are
    `taken_at` a later step than `step` by a run that is continued from beyond it.
    """

    def __init__(self, step: int) -> None:
        self.step, self.taken_at = step, 0
        self.weights: dict[str, Tensor] = {}

    def after_step(self, training: Training) -> None:
        if training.step >= self.step and not self.weights:
            state = training.network.state_dict()
            self.weights = {name: tensor.detach().clone() for name, tensor in state.items()}
            self.taken_at = training.step

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step, "weights": self.weights, "taken_at": self.taken_at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        # a run that is continued for longer forks again, later
        if state["step"] == self.step:
            self.weights, self.taken_at = state["weights"], state["taken_at"]


def better_by(
    value: Callable[[Tensor], float], first: Tensor, second: Tensor, groups: Tensor
) -> tuple[float, float]:
    """How much higher the metric of the rows `second` is than that of `first`, and the standard
    error of this difference, from leaving out each group of examples once (the jackknife).
    """
    difference = value(second) - value(first)
    numbers = groups.unique()
    kept = [groups != number for number in numbers]
    left = torch.tensor([value(second[rows]) - value(first[rows]) for rows in kept])
    count = len(numbers)
    if count < 2:
        return difference, math.inf
    spread = (left - left.mean()).square().sum() * (count - 1) / count
    return difference, float(spread.sqrt())


def groups_of(rows: Tensor, lists: Tensor | None) -> Tensor:
    """The group of every row: the items of a list are in one, neighbouring lists, or items without
    lists, in different ones. That is right if the examples are independent; neighbours that are
    alike, such as the frames of a film, are spread over all groups, and the standard error is too
    small (docs/train.md, Limitations).
    """
    if lists is None:
        return torch.arange(len(rows)) % GROUPS
    numbers = lists.unique(return_inverse=True)[1]
    return numbers % GROUPS
