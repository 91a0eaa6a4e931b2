"""Factories of the losses that are not classes of evalgrad. Each takes options and returns a loss
with evalgrad's conventions: the mean over valid items, and 0 if there are none.

Multi-class losses take scores ``(N, C, *)`` and class indices ``(N, *)``; binary losses take scores
and 0/1 labels of the same shape.
"""

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import evalgrad as eg
from evalgrad.s_measures.module import Options
from evalgrad_lab.errors import UserError
from evalgrad_lab.losses import find

Loss = Callable[..., Tensor]
SOLVED = 1e-6  # a loss of the metric below it has nothing left to move, and no gradient


def cross_entropy(
    *, weight: Sequence[float] | None = None, ignore_index: int | None = None
) -> Loss:
    """Mean cross-entropy; with `weight` each item counts as much as its class weighs."""

    def loss(scores: Tensor, target: Tensor) -> Tensor:
        label = target.long()
        weights = torch.as_tensor([1.0] * scores.shape[1] if weight is None else weight).to(scores)
        void = torch.zeros_like(label, dtype=torch.bool)
        if ignore_index is not None:
            void = label == ignore_index
        shares = weights[label.masked_fill(void, 0)].masked_fill(void, 0.0)
        label = label.masked_fill(void, -100)
        total = F.cross_entropy(scores, label, weight=weights, reduction="sum")
        return total / shares.sum().clamp(min=torch.finfo(scores.dtype).tiny)

    return loss


def bce(*, positive_weight: float = 1.0, ignore_index: int | None = None) -> Loss:
    """Mean logistic loss; a positive counts `positive_weight` times."""
    if not (is_number(positive_weight) and 0 < positive_weight < math.inf):
        raise ValueError(
            f"`positive_weight` must be a finite number above 0; got {positive_weight!r}. With 1"
            " positives count like negatives."
        )

    def loss(scores: Tensor, target: Tensor) -> Tensor:
        items = logistic(scores, target, torch.as_tensor(positive_weight).to(scores))
        return mean_of_valid(items, target, ignore_index)

    return loss


def is_number(value: Any) -> bool:
    """Whether an option, which comes from JSON, is one."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def hinge(*, ignore_index: int | None = None) -> Loss:
    """Mean hinge loss max(0, 1 - y s) with y = -1 or 1."""

    def loss(scores: Tensor, target: Tensor) -> Tensor:
        items = (1 - torch.where(target == 1, scores, -scores)).clamp(min=0)
        return mean_of_valid(items, target, ignore_index)

    return loss


def binary_soft_jaccard(*, per_image: bool = True, ignore_index: int | None = None) -> Loss:
    """The soft Jaccard loss of the foreground, also of images without any."""
    how: Any = {"per_image": per_image, "ignore_index": ignore_index}
    return eg.SoftJaccardLoss(mode="binary", classes="all", **how)


def loss_max_pooling(
    *, p: float = 1.3, support: float = 0.25, ignore_index: int | None = None
) -> Loss:
    """Loss max-pooling of the cross-entropy of the pixels."""
    void = -100 if ignore_index is None else ignore_index
    criterion = torch.nn.CrossEntropyLoss(reduction="none", ignore_index=void)
    pool = eg.LossMaxPooling(criterion, p=p, support=support)
    return lambda scores, target: pool(scores, target.long())


def binary_loss_max_pooling(
    *, p: float = 1.3, support: float = 0.25, ignore_index: int | None = None
) -> Loss:
    """Loss max-pooling of the logistic loss of the pixels."""

    def loss(scores: Tensor, target: Tensor) -> Tensor:
        mask = None if ignore_index is None else target != ignore_index
        return eg.loss_max_pooling(logistic(scores, target), p=p, support=support, mask=mask)

    return loss


def direct_jaccard(
    *,
    epsilon: float = 0.1,
    direction: Literal["positive", "negative"] = "positive",
    ignore_index: int | None = None,
) -> Loss:
    """The direct loss of the IoU of each image, its pixels in one list."""

    direct = eg.DirectJaccardLoss(epsilon=epsilon, direction=direction)

    def loss(scores: Tensor, target: Tensor) -> Tensor:
        mask = None if ignore_index is None else (target != ignore_index).flatten(1)
        return direct(scores.flatten(1), (target == 1).flatten(1), mask=mask)

    return loss


def logistic(scores: Tensor, target: Tensor, pos_weight: Tensor | None = None) -> Tensor:
    """The logistic loss of every item."""
    how: Any = {"pos_weight": pos_weight, "reduction": "none"}
    return F.binary_cross_entropy_with_logits(scores, (target == 1).to(scores), **how)


def mean_of_valid(items: Tensor, target: Tensor, ignore_index: int | None) -> Tensor:
    """Mean of the items whose label is not `ignore_index`; 0 if there is none."""
    if ignore_index is None:
        return items.sum() / max(items.numel(), 1)
    valid = target != ignore_index
    return torch.where(valid, items, 0.0).sum() / valid.sum().clamp(min=1)


def make(name: str, options: dict[str, Any]) -> Loss:
    """The loss of the table called `name`, with the user's `options`; raises with a sentence if
    one does not fit. A sum takes `share` and the options of each of its losses by its name.
    """
    from evalgrad_lab.moving import MovingDirectLoss, is_moving  # which makes losses by this

    find(name)  # raises for a wrong name
    try:
        if "+" in name:
            return WeightedSum(*name.split("+", 1), **options)
        if is_moving(name, options):
            return MovingDirectLoss(name, options, make)
        return _factory(name)(**options)
    except (TypeError, ValueError) as error:
        raise UserError(_refused(name, options, error)) from error


def _factory(name: str) -> Any:
    factory = find(name).factory or name
    return globals().get(factory) or getattr(eg, factory)


def option_names(name: str) -> list[str]:
    """The options that a user may give to a loss, without those that come from the data; "**" if it
    takes any.
    """
    from evalgrad_lab.moving import METRICS, OWN

    parameters = inspect.signature(_factory(name)).parameters
    names, taken = [*parameters], [one.kind for one in parameters.values()]
    if inspect.Parameter.VAR_KEYWORD in taken:
        if not find(name).takes_index:
            return ["**"]
        names[-1:] = Options.__annotations__  # which all S-measures share
    moving = list(OWN if name == "direct_ndcg" else OWN[:1]) if name in METRICS else []
    weights = ["weight_power"] if find(name).needs == "weight" else []
    return [*(one for one in names if one not in from_data(name)), *moving, *weights]


def from_data(name: str) -> set[str]:
    """The options that the training data give, or the task."""
    return {"ignore_index", find(name).needs, *find(name).columns} - {""}


def _refused(name: str, options: dict[str, Any], error: Exception) -> str:
    """Why options do not fit, by those that the user gave."""
    if "+" in name:
        return f"the loss {name} does not take its options: {error}"
    own = {key: value for key, value in options.items() if key not in from_data(name)}
    known = option_names(name)
    if "**" not in known and (unknown := sorted(set(own) - {*known})):
        takes = f"it takes {', '.join(known)}" if known else "it takes none"
        return f"the loss {name} does not take the options {', '.join(unknown)}; {takes}."
    return f"the loss {name} does not take the options {own}: {error}"


class WeightedSum(nn.Module):
    """(1 - share) * first + share * second; `index` goes to those that take it.

    The gradient of the sum hides that the second has none: `is_dead` says whether it had none in
    all calls since `look_again`, without being solved.
    """

    def __init__(
        self, first: str, second: str, *, share: float = 0.5, **options: dict[str, Any]
    ) -> None:
        super().__init__()
        if not 0 <= share <= 1:
            raise ValueError(
                f"`share` must be in [0, 1]; got {share}. It is the share of {second}."
            )
        if unknown := sorted(set(options) - {first, second}):
            names = f"{first} or {second}"
            raise TypeError(f"options of a sum are given by loss; got {unknown}. Name {names}.")
        self.losses = [make(name, options.get(name, {})) for name in (first, second)]
        self.takes_index = [find(name).takes_index for name in (first, second)]
        self.names, self.shares = (first, second), (1 - share, share)
        self.look_again()
        # their state is saved
        self.parts = nn.ModuleList(loss for loss in self.losses if isinstance(loss, nn.Module))

    def forward(self, scores: Tensor, target: Tensor, *, index: Tensor | None = None) -> Tensor:
        first, second = (
            loss(scores, target, index=index) if takes else loss(scores, target)
            for loss, takes in zip(self.losses, self.takes_index, strict=True)
        )
        self._look(second, scores)
        return self.shares[0] * first + self.shares[1] * second

    @property
    def is_dead(self) -> bool:
        return self.unsolved and not self.moved

    def look_again(self) -> None:
        """Begin anew, with the next epoch."""
        self.moved = self.unsolved = False

    def _look(self, second: Tensor, scores: Tensor) -> None:
        """A gradient that was seen once is not looked for again: that costs a backward pass. An
        S-measure (which takes the index) has none only where all items are beyond the margin: it is
        solved, though its value is not 0.
        """
        if self.moved or self.takes_index[1]:
            return
        if not (scores.requires_grad and torch.is_grad_enabled()):
            return
        self.unsolved |= bool(second.detach() > SOLVED)
        if second.requires_grad:
            (own,) = torch.autograd.grad(second, scores, retain_graph=True, allow_unused=True)
            self.moved = own is not None and bool((own != 0).any())
