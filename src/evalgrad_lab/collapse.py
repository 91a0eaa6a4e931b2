"""Detects a training that has collapsed, and says what may help."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from evalgrad_lab.fit import Hook, Training, phase_at
from evalgrad_lab.loss_factories import SOLVED, WeightedSum
from evalgrad_lab.phases import BASELINES
from evalgrad_lab.terminal import say
from evalgrad_lab.validation import Validation

CONSTANT = 8  # items of a batch that must be told apart; a few may be equal
REPAIR = "Train with --loss auto, or mix in the baseline: --mix sum:0.5."
# there is nothing to mix in
OF_BASELINE = "Choose a smaller --learning-rate, or inputs that tell the items apart."


class Collapse(Hook):
    """Detects a collapsed training: the loss is not finite, all gradients of an epoch are zero
    though not all is learnt, or those of the metric's loss in a sum, the network gives the same
    output for all items of the last batch, or the metric on validation is below `least`. `why` is
    the reason, which is printed once if there is a `repair`; with `stops` the training ends.
    """

    def __init__(
        self, validation: Validation, stops: bool, least: float = -math.inf, repair: str = ""
    ) -> None:
        self.validation, self.stops, self.least, self.why = validation, stops, least, ""
        self.repair = repair
        self.largest: Tensor | None = None  # norm of a gradient, and loss

    def after_step(self, training: Training) -> None:
        # kept where it is and looked at once in an epoch, not to wait for a GPU
        parameters = training.network.parameters()
        norm = get_total_norm([p.grad.detach() for p in parameters if p.grad is not None])
        seen = torch.stack([norm, training.loss.to(norm)])
        self.largest = seen if self.largest is None else torch.maximum(self.largest, seen)

    def after_epoch(self, training: Training) -> None:
        why = self._reason(training)
        # what is looked at may differ from rank to rank, and all must stop together
        agreed: Any = training.fabric.all_reduce(torch.tensor(float(bool(why))), reduce_op="mean")
        if float(agreed) == 1:
            self._found(training, why)
        self.largest = None
        for one in _sums(training):
            one.look_again()

    def _reason(self, training: Training) -> str:
        if not training.loss.isfinite():
            return "the loss was not finite"
        if self._stood_still(training):
            return "all gradients of an epoch were zero"
        sums = _sums(training)
        if sums and all(one.is_dead for one in sums):  # of a multilabel task there are several
            return _no_gradient(sums[0].names[1])
        if _is_constant(training.output):
            return "the network gives the same output for all items"
        metric = self.validation.curve[-1]["metric"]
        half = f"below {self.least:.3f}, half of the first branch's"
        return f"the metric fell to {metric:.3f} on validation, {half}" * (metric < self.least)

    def _stood_still(self, training: Training) -> bool:
        """Whether no step of the epoch had a gradient. A loss that is solved has none, rightly; an
        S-measure, which takes the index, has none only then, though its value is not 0.
        """
        if self.largest is None or getattr(_loss(training), "takes_index", False):
            return False
        norm, loss = self.largest.tolist()
        return norm == 0 and loss > SOLVED

    def _found(self, training: Training, why: str) -> None:
        if self.repair and not self.why and training.fabric.is_global_zero:
            say(f"epoch {training.epoch}: {why}. {self.repair}")
        self.why = why
        training.stopped |= self.stops

    def state_dict(self) -> dict[str, Any]:
        return {"why": self.why}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.why = state["why"]


def _loss(training: Training) -> Any:
    """What was trained on in the last step."""
    return phase_at(training.phases, training.step - 1)[0].loss


def _sums(training: Training) -> list[WeightedSum]:
    """The sums of two losses that are trained on now."""
    loss = _loss(training)
    parts = loss.modules() if isinstance(loss, nn.Module) else ()
    return [part for part in parts if isinstance(part, WeightedSum)]


def _no_gradient(loss: str) -> str:
    """That the metric's loss had none, and what may give it one."""
    said = f"{loss} had no gradient in a whole epoch"
    if not loss.startswith("direct_"):
        return said
    first = '"first_k", ' if loss == "direct_ndcg" else ""
    options = f'{first}"direction": "negative" or a larger "epsilon"'
    return f"{said} ({options} in --loss-options may help)"


def repair_of(loss: str, mix: str) -> str:
    """What helps a training with this loss that has collapsed."""
    if loss in ("auto", "weighted_cross_entropy", *BASELINES.values()):
        return OF_BASELINE
    return REPAIR if mix == "none" else "Train with --loss auto."


def _is_constant(output: Any) -> bool:
    """Whether all items of a batch have the same output; of few images, all pixels."""
    if not isinstance(output, Tensor):
        return False
    items = output.detach()
    if len(items) < CONSTANT and items.ndim == 4:  # (N, C, H, W)
        items = items.movedim(1, -1).flatten(0, -2)
    if len(items) < CONSTANT:
        return False
    return not bool((items - items[:1]).abs().amax() > 1e-6 * items.abs().amax())
