"""The phases of a training: creates losses by name with what they need from the training data,
calls them on batches, and mixes them with the baseline.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

import evalgrad as eg
from evalgrad_lab import losses
from evalgrad_lab.data.batches import Batch
from evalgrad_lab.data.dataset import Examples
from evalgrad_lab.errors import UserError
from evalgrad_lab.fit import Phase
from evalgrad_lab.given import Given, check_weight, class_weights
from evalgrad_lab.loss_factories import make
from evalgrad_lab.moving import MovingDirectLoss

FEW = 16  # items that options are checked on
# A mean over pixels or items: the mean over the ranks serves. Every other loss is computed on the
# batches of all ranks.
MEANS = ("cross_entropy", "weighted_cross_entropy", "bce", "hinge")
BASELINES = {
    "segmentation": "cross_entropy",
    "classification": "cross_entropy",
    "binary segmentation": "bce",
    "ranking": "bce",
    "multilabel": "bce",
}


def kind_of(loss: str, task: str, num_classes: int) -> str:
    """The kind of task that the loss sees; raises for a loss of another task."""
    kinds = losses.find(loss).kinds
    if task in kinds:
        return task
    if task == "segmentation" and "binary segmentation" in kinds:
        if num_classes != 2:
            raise UserError(
                f"--loss {loss} is for two classes; the data have {num_classes}. Use"
                " lovasz_softmax."
            )
        return "binary segmentation"
    raise UserError(
        f"--loss {loss} is for {' and '.join(kinds)}, and --task is {task}. `evalgrad losses` lists"
        " those for it."
    )


def shaped(output: Tensor, kind: str) -> Tensor:
    """One output in the shape of the target: pixels ``(N, H, W)``, items ``(N,)``."""
    if kind == "ranking" and output.ndim == 2 and output.shape[1] == 1:
        return output[:, 0]
    return output[:, 0] if kind == "binary segmentation" and output.ndim == 4 else output


class OnBatches(nn.Module):
    """A loss of the table as `fit` calls it: with what the network says and the batch.

    Where the batch holds lists, each is a ranking of its own, and the loss is their mean; but a
    loss that takes an index looks at the whole data set.
    """

    def __init__(self, loss: Callable[..., Tensor], kind: str, takes_index: bool) -> None:
        super().__init__()
        self.loss, self.kind, self.takes_index = loss, kind, takes_index

    def forward(self, output: Tensor, batch: Batch) -> Tensor:
        scores, target = shaped(output, self.kind), batch.target
        if self.takes_index:
            return self.loss(scores, target, index=batch.index)
        if batch.lists is None:
            return self.loss(scores, target)
        parts = (batch.lists == number for number in batch.lists.unique())
        return torch.stack([self.loss(scores[part], target[part]) for part in parts]).mean()


class Columns(nn.Module):
    """The mean over the columns of a multilabel task, each with a loss that keeps its totals."""

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, scores: Tensor, target: Tensor, *, index: Tensor | None = None) -> Tensor:
        columns = zip(self.parts, scores.unbind(1), target.unbind(1), strict=True)
        return torch.stack([loss(s.contiguous(), t, index=index) for loss, s, t in columns]).mean()


def on_batches(name: str, options: dict[str, Any], kind: str, given: Given) -> OnBatches:
    """The loss `name` for these data. Over ranks it is that of the batches of all of them; of
    lists each rank has its own.
    """
    takes_index, loss = losses.find(name).takes_index, _loss(name, options, kind, given)
    by_list = given.train.lists is not None and not takes_index
    if given.ranks > 1 and name not in MEANS and not by_list:
        loss = eg.distributed.global_batch(loss, once="index" if takes_index else None)
    return OnBatches(loss, kind, takes_index)


def check_on_batch(name: str, options: dict[str, Any], kind: str, given: Given) -> None:
    """Raise for options that only a batch shows to be wrong, such as the weights of too few
    classes. The loss is made for this alone, because a call may change its state.
    """
    loss = OnBatches(_loss(name, options, kind, given), kind, losses.find(name).takes_index)
    count = 1 if "segmentation" in kind else min(FEW, len(given.train))
    target = given.train.take(range(count)).labels()
    several = kind in ("segmentation", "classification")
    shape = (count, given.num_classes, *target.shape[1:]) if several else target.shape
    scores = torch.zeros(shape, requires_grad=True)
    try:
        loss(scores, Batch(scores, target, torch.arange(count)))
    except (TypeError, ValueError) as error:
        raise UserError(f"--loss-options do not fit {name}: {error}") from error


def _loss(name: str, options: dict[str, Any], kind: str, given: Given) -> Any:
    """The loss of one process; of a multilabel task each column may have one of its own."""
    if kind == "multilabel" and losses.find(name).takes_index:
        columns = (replace(given, train=_column(given.train, c)) for c in range(given.num_classes))
        return Columns([_made(name, options, "ranking", column) for column in columns])
    return _made(name, options, kind, given)


def _made(name: str, options: dict[str, Any], kind: str, given: Given) -> Any:
    return make(name, _with_data(name, options, kind, given))


def _column(examples: Examples, number: int) -> Examples:
    return replace(examples, target=examples.labels()[:, number])


def _with_data(name: str, options: dict[str, Any], kind: str, given: Given) -> dict[str, Any]:
    """The options with what the loss needs of the training data, where the user has not said it.
    `weight_power` makes class weights of the frequencies.
    """
    _check_options(name, options)
    if "+" in name:
        parts = name.split("+", 1)
        asked = {part: _with_data(part, options.get(part, {}), kind, given) for part in parts}
        return {**options, **asked}
    known: dict[str, Any] = dict(losses.find(name).columns) if kind == "multilabel" else {}
    if "segmentation" in kind and given.ignore_index is not None:
        known["ignore_index"] = given.ignore_index
    needs, rest = losses.find(name).needs, dict(options)
    if needs == "labels" and needs not in options:
        known["labels"] = given.train.labels()
    if needs == "weight" and needs not in options:
        known["weight"] = class_weights(given, rest.pop("weight_power", 1.0))
    if "weight" in rest and (losses.find(name).factory or name) == "cross_entropy":
        check_weight(rest["weight"], given.num_classes)
    return {**known, **rest}


def _check_options(name: str, options: dict[str, Any]) -> None:
    """What every loss would take, and training cannot use."""
    if options.get("solver") == "lagrangian":
        raise UserError(
            f"--loss-options: the solver of {name} must be ratio; lagrangian has steps of its own,"
            " see docs/s_measures.md."
        )
    if {"weight", "weight_power"} <= {*options}:
        raise UserError(
            f"--loss-options: weight of {name} is what weight_power computes from the training"
            " data. Drop one of them."
        )
    void = options.get("ignore_index")
    if void is not None and type(void) is not int:  # True is no label
        raise UserError(
            f"--loss-options: ignore_index of {name} must be an integer; got {void!r}."
            " Drop it; for label maps --ignore-index sets it for the loss and the metric."
        )
    if options.get("reduction") == "none":
        raise UserError(
            f"--loss-options: the reduction of {name} must be mean or sum; got 'none'. Training"
            " needs one number for a batch."
        )


@dataclass(frozen=True)
class Mix:
    """With "then" the baseline has the first `share` of the steps, with "sum" the loss has it."""

    order: str
    share: float


def parse_mix(text: str) -> Mix | None:
    """Read `--mix`: none, then:SHARE or sum:SHARE.

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


def plan(
    loss: str, options: dict[str, Any], kind: str, mix: Mix | None, steps: int, given: Given
) -> list[Phase]:
    """One phase, or two where the baseline comes first."""
    baseline = BASELINES[kind]
    if mix is None:
        return [_phase(loss, options, kind, given, steps)]
    if loss == baseline:
        raise UserError(
            f"--mix mixes the baseline {baseline} with another loss; --loss is {baseline} itself."
            " Drop --mix."
        )
    if mix.order == "sum":
        both = {loss: options, "share": mix.share}
        return [_phase(f"{baseline}+{loss}", both, kind, given, steps)]
    first = round(mix.share * steps)
    return [
        _phase(baseline, {}, kind, given, first),
        _phase(loss, options, kind, given, steps - first),
    ]


def _phase(loss: str, options: dict[str, Any], kind: str, given: Given, steps: int) -> Phase:
    if options:
        check_on_batch(loss, options, kind, given)
    made = on_batches(loss, options, kind, given)
    for part in made.modules():
        if isinstance(part, MovingDirectLoss):
            part.follow(made, steps)
    return Phase(made, steps, list(made.parameters()))
