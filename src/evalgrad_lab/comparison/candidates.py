"""The losses that are compared on the user's data, and their search spaces, of equal size."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from evalgrad_lab import losses
from evalgrad_lab.commands.train import TrainOptions
from evalgrad_lab.describing import MODELS
from evalgrad_lab.errors import UserError
from evalgrad_lab.phases import BASELINES, kind_of
from evalgrad_lab.ready import Ready
from evalgrad_lab.recipe import AUTO
from evalgrad_lab.tune import product

Axes = Mapping[str, Sequence[Any]]
FACTORS = (1.0, 0.3, 3.0, 0.1, 10.0)  # of the default learning rate
DECAYS = (0.0, 0.1, 1.0)
EPSILONS = {"epsilon": (1.0, 0.1, 10.0)}
# The class weights that --loss auto may start with; the first is none.
STARTS: dict[str, Axes] = {
    "cross_entropy": {"weight_power": (0.0, 1.0, 0.5, 0.25)},
    "bce": {"positive_weight": (1.0, 3.0, 10.0, 0.3)},
}


def _weighted(baseline: str) -> Axes:
    return {name: values[1:] for name, values in STARTS[baseline].items()}


# The own options of a loss that matter most; its first value is tried first.
OWN: dict[str, Axes] = {
    "weighted_cross_entropy": _weighted("cross_entropy"),
    "weighted_bce": _weighted("bce"),
    "smooth_topk": {"temperature": (0.1, 1.0)},
    "loss_max_pooling": {"p": (1.3, 1.7)},
    "direct_average_precision": EPSILONS,
    "direct_ndcg": EPSILONS,
    "direct_jaccard": EPSILONS,
}
MIXES = {"mix": ("sum:0.5", "sum:0.25", "sum:0.75")}
BASELINE_LOSSES = (
    *("cross_entropy", "weighted_cross_entropy", "bootstrapped_cross_entropy", "soft_jaccard"),
    *("bce", "weighted_bce", "hinge", "binary_soft_jaccard"),
)
OF_OPTIONS = ("learning_rate", "weight_decay", "mix")  # the rest are options of the loss


@dataclass(frozen=True)
class Entrant:
    """One row of the comparison: a loss, and the settings that are tried for it."""

    name: str
    role: Literal["baseline", "ours"]
    loss: str
    points: list[dict[str, Any]]
    starts: tuple[str, ...] = ()  # of the recipe: the baselines whose search serves it too


def entrants(ready: Ready, names: Sequence[str] | None, trials: int) -> list[Entrant]:
    """The losses asked for, the reference first; by default the baseline, the same with class
    weights, the loss of the metric, and the sum of baseline and loss.
    """
    metric, task, rate = ready.metric, ready.options.task, base_rate(ready)
    kind = kind_of(metric.loss, task, len(ready.data.classes))
    baseline = BASELINES[kind]
    if names is None:
        if metric.loss == baseline:
            known = [name for name, loss in losses.LOSSES.items() if kind in loss.kinds]
            other = next(name for name in known if name not in BASELINE_LOSSES)
            raise UserError(
                f"no loss here follows --metric {metric.name} more closely than {baseline}: there"
                f" is nothing to compare it with. Name what to compare, such as --losses {baseline}"
                f" {other}."
            )
        weighted = "weighted_cross_entropy" if baseline == "cross_entropy" else "weighted_bce"
        names = [baseline, weighted, metric.loss, f"{baseline}+{metric.loss}"]
    found = [entrant(name, baseline, rate, trials) for name in names]
    for one in found:
        kind_of(metric.loss if one.loss == AUTO else one.loss, task, len(ready.data.classes))
    if not any(one.role == "baseline" for one in found):
        raise UserError(f"--losses must name a baseline too, such as {baseline}.")
    if AUTO in names and baseline not in names:
        raise UserError(f"--losses must name {baseline} too: auto starts with its tuned settings.")
    return sorted(found, key=lambda one: one.name != baseline)


def entrant(name: str, baseline: str, rate: float, trials: int) -> Entrant:
    """A loss by its name; `baseline+loss` is what `--mix sum` trains, with its share tried."""
    if name == AUTO:
        weighted = f"weighted_{baseline}"
        return Entrant(AUTO, "ours", AUTO, points(rates(rate), 1), (baseline, weighted))
    first, _, second = name.partition("+")
    mixed = first == baseline and bool(second)
    loss = second if mixed else "bce" if name == "weighted_bce" else name
    losses.find(loss)
    role: Literal["baseline", "ours"] = "baseline" if name in BASELINE_LOSSES else "ours"
    axes = {**rates(rate), **(MIXES if mixed else OWN.get(name, {})), "weight_decay": DECAYS}
    return Entrant(name, role, loss, points(axes, trials))


def started(one: Entrant, point: Mapping[str, Any]) -> dict[str, Any]:
    """The point of the recipe `one` that starts as a baseline does at this point."""
    plain = {name: values[0] for name, values in STARTS[one.starts[0]].items()}
    return {**plain, **point}


def rates(rate: float) -> Axes:
    """Learning rates around the default."""
    return {"learning_rate": [float(f"{rate * factor:.3g}") for factor in FACTORS]}


def base_rate(ready: Ready) -> float:
    """The default learning rate."""
    return MODELS[ready.options.task, ready.data.train.inputs[0].ndim > 1][2]


def points(axes: Axes, count: int, option: str = "--trials") -> list[dict[str, Any]]:
    """`count` different points: first the first value of every axis, then the values of the first
    axis, the learning rate, in turn, with the others drawn. The same points every time.
    """
    first = next(iter(axes))
    default = {name: values[0] for name, values in axes.items()}
    groups = []
    for number, value in enumerate(axes[first]):
        group = [dict(point) for point in product({**axes, first: [value]}) if point != default]
        random.Random(number).shuffle(group)
        groups.append(group)
    groups[0].insert(0, default)
    found = [group[i] for i in range(max(map(len, groups))) for group in groups if i < len(group)]
    if count > len(found):
        raise UserError(f"{option} must be at most {len(found)}; got {count}.")
    return found[:count]


def with_point(options: TrainOptions, point: Mapping[str, Any]) -> TrainOptions:
    """The options of a training at a point of the search."""
    own = {name: value for name, value in point.items() if name not in OF_OPTIONS}
    of_options: dict[str, Any] = {name: point[name] for name in OF_OPTIONS if name in point}
    return replace(options, loss_options={**options.loss_options, **own}, **of_options)


def free_axes(ready: Ready) -> Axes:
    """What `train --tune` tries: all that the user has not said."""
    options = ready.options
    axes: dict[str, Sequence[Any]] = {**rates(base_rate(ready)), "weight_decay": DECAYS}
    loss = ready.description.loss
    axes |= STARTS[BASELINES[ready.description.kind]] if loss == AUTO else OWN.get(loss, {})
    both = ("learning_rate", "weight_decay")
    said = {name for name in both if getattr(options, name) is not None}
    left = {n: v for n, v in axes.items() if n not in said | options.loss_options.keys()}
    if not left:
        raise UserError("--tune has nothing to try: learning rate and weight decay are given.")
    return left
