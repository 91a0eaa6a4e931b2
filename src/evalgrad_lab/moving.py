"""Direct losses whose epsilon or cutoff changes during training: options of `train` in addition to
those of the losses.

``"epsilon": "suggest"`` calls `evalgrad.suggest_epsilon` once, on the first batch that can give a
gradient. ``"anneal": 0.1`` decreases epsilon exponentially to a tenth of its value at the last
step. ``"first_k": 100`` decreases the cutoff of NDCG@k from 100 to k during the first half: while
no positive is among the first k places the loss has no gradient (docs/direct_loss.md).
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

import evalgrad as eg
from evalgrad_lab.loss_factories import Loss, is_number

METRICS: dict[str, Any] = {
    "direct_average_precision": "average_precision",
    "direct_ndcg": "ndcg",
    "direct_jaccard": "jaccard",
    "direct_zero_one": "zero_one",
}
OWN = ("anneal", "first_k")
START = 0.1  # until a batch has something to move: such a batch has hardly a gradient


def is_moving(name: str, options: dict[str, Any]) -> bool:
    """Whether the options ask for one."""
    return name in METRICS and (
        options.get("epsilon") == "suggest" or not {*OWN}.isdisjoint(options)
    )


class MovingDirectLoss(nn.Module):
    """A direct loss of the table; `make` makes it of its name and options. Its state is the step,
    which `follow` moves on, and the epsilon that was suggested.
    """

    step: Tensor
    epsilon: Tensor

    def __init__(self, name: str, options: dict[str, Any], make: Any) -> None:
        super().__init__()
        self.name, self.make, self.steps = name, make, 1
        self.anneal, self.first_k = (options.get(key) for key in OWN)
        self.options = {key: value for key, value in options.items() if key not in OWN}
        self._check()
        epsilon = self.options.pop("epsilon", START)
        start = math.nan if epsilon == "suggest" else float(epsilon)
        self.agreed = not math.isnan(start)
        self.register_buffer("epsilon", torch.tensor(start, dtype=torch.double))
        self.register_buffer("step", torch.zeros((), dtype=torch.long))
        self.loss_at(START if math.isnan(start) else start)  # which checks the other options

    def _check(self) -> None:
        anneal, first_k, k = self.anneal, self.first_k, self.options.get("k")
        if anneal is not None and not (is_number(anneal) and 0 < anneal <= 1):
            raise ValueError(f"`anneal` must be above 0 and at most 1; got {anneal!r}.")
        if first_k is None:
            return
        if not is_number(k):
            raise ValueError("`first_k` decreases to `k`, the cutoff of NDCG; pass `k` too.")
        if not is_number(first_k) or first_k < k:
            raise ValueError(f"`first_k` must be at least `k`, {k}; got {first_k!r}.")

    def follow(self, whole: nn.Module, steps: int) -> None:
        """Move on with every call of `whole`, which is called `steps` times."""
        self.steps = steps
        whole.register_forward_hook(self._move_on)

    def _move_on(self, *_: object) -> None:
        self.step += 1
        if not self.agreed and torch.distributed.is_initialized():
            self._agree()

    def _agree(self) -> None:
        """Take the mean of what the ranks were suggested: of lists each rank has its own batch, and
        a resume gives all of them the state of rank 0. Not in `forward`, which a rank calls as
        often as it has lists.
        """
        known = ~self.epsilon.isnan()
        total = torch.stack([self.epsilon.nan_to_num(0.0), known.to(self.epsilon)])
        torch.distributed.all_reduce(total)
        self.agreed = bool(total[1] > 0)
        self.epsilon.copy_(total[0] / total[1])  # NaN as long as no rank has one

    def loss_at(self, epsilon: float) -> Loss:
        """The loss with the option values of this step."""
        part = min(self.step.item() / max(self.steps - 1, 1), 1.0)
        options = {**self.options, "epsilon": epsilon * (self.anneal or 1.0) ** part}
        if self.first_k is not None:
            wider = (self.first_k / options["k"]) ** max(1 - 2 * part, 0.0)
            options["k"] = round(options["k"] * wider)
        made: Loss = self.make(self.name, options)
        return made

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        if self.epsilon.isnan():
            self.epsilon.fill_(self._suggested(scores.detach(), target))
        epsilon = self.epsilon.item()
        return self.loss_at(START if math.isnan(epsilon) else epsilon)(scores, target)

    def _suggested(self, scores: Tensor, target: Tensor) -> float:
        """NaN where the batch has nothing to move, or one kind of items alone."""
        ignored = self.options.get("ignore_index")
        mask = None if ignored is None else target != ignored
        if self.name == "direct_jaccard":  # the pixels of an image are its list
            scores, target = scores.flatten(1), target.flatten(1)
            mask = None if mask is None else mask.flatten(1)
        labels = (target == 1) if mask is None else (target == 1) & mask
        if not labels.any() or labels.all():
            return math.nan
        asked = {key: x for key, x in self.options.items() if key in ("k", "direction", "dim")}
        try:
            return eg.suggest_epsilon(scores, labels, metric=METRICS[self.name], mask=mask, **asked)
        except ValueError:
            return math.nan
