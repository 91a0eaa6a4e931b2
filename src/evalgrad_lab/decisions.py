"""Decision rules, which turn scores into labels, and how they are fitted on validation data.

`metrics` lists the rules that are tried for a metric besides argmax and a threshold of 0; `judging`
chooses the best one on validation data, for every loss in the same way. docs/decisions.md explains
why.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from evalgrad import decisions
from evalgrad_lab.options import fits

CUTS = 20  # thresholds that are tried where the best one cannot be computed
Rule = Literal["argmax", "class_offsets", "threshold", "jaccard_mask", "dice_mask"]


@dataclass(frozen=True)
class Decision:
    """A decision rule. For class scores ``(N, C, *)``: argmax after adding offsets. For one score
    per item, pixel or label: a threshold, or the mask of each image with the highest expected IoU
    or Dice.

    `numbers` are the offsets or the threshold, one per label in multilabel tasks. For a mask rule
    they hold the best threshold, for exported programs, which cannot compute masks.
    """

    rule: Rule
    numbers: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, values: dict[str, Any] | None) -> "Decision | None":
        """What `dataclasses.asdict` gave, as a decision again."""
        if values is None:
            return None
        known = cls(**values)
        if not (fits(known.rule, Rule) and fits(known.numbers, list[float])):
            raise ValueError(f"{values} is not a decision.")
        return known

    @property
    def of_one_score(self) -> bool:
        return self.rule not in ("argmax", "class_offsets")

    def __str__(self) -> str:
        return " ".join([self.rule, *(f"{number:.4g}" for number in self.numbers)])

    def __call__(self, scores: Tensor) -> Tensor:
        if self.rule == "threshold":  # in float64: it lies between two neighbouring scores
            return (scores.double() > torch.tensor(self.numbers).double().to(scores.device)).long()
        if not self.of_one_score:
            return self.shifted(scores).max(1).indices  # argmax takes five times as long
        mask = decisions.dice_mask if self.rule == "dice_mask" else decisions.jaccard_mask
        return mask(scores.sigmoid().nan_to_num(0.0)).long()

    def shifted(self, scores: Tensor) -> Tensor:
        """Class scores of which the largest decides."""
        if self.rule != "class_offsets":
            return scores
        offsets = torch.tensor(self.numbers, dtype=scores.dtype, device=scores.device)
        return scores + offsets.view(-1, *[1] * (scores.ndim - 2))


def plain(of_one_score: bool) -> Decision:
    """What decides where nothing was chosen."""
    return Decision("threshold", [0.0]) if of_one_score else Decision("argmax")


def one_score(scores: Tensor, target_dims: int) -> Tensor:
    """Scores ``(N, 2, *)`` of two classes as one score ``(N, *)``, which is above 0 where the
    second is the larger; others as they are.
    """
    if scores.ndim == target_dims + 1 and scores.shape[1] == 2:
        return scores[:, 1] - scores[:, 0]
    return scores


# (scores, target, ignore_index) of validation items -> decisions to try. Scores are (items,),
# (items, labels) with a target of that shape, or (items, classes) with a target (items,).
Fit = Callable[[Tensor, Tensor, int], list[Decision]]


def offsets(scores: Tensor, target: Tensor, ignore_index: int) -> list[Decision]:
    """What to add to the scores of each class for the highest mean IoU."""
    found = decisions.class_offsets(scores, target, ignore_index=ignore_index)
    return [Decision("class_offsets", found.tolist())]


def quantiles(scores: Tensor, target: Tensor, ignore_index: int) -> list[Decision]:
    """Thresholds at quantiles of the scores, for metrics of images."""
    return [Decision("threshold", [cut]) for cut in thresholds(scores, CUTS)]


def mask(rule: Rule) -> Fit:
    """The masks of a rule, which needs nothing of validation."""
    return lambda *_: [Decision(rule)]


def best_threshold(metric: Any, **options: Any) -> Fit:
    """The threshold that is best for a metric of items, of every label by itself."""

    def fit(scores: Tensor, target: Tensor, ignore_index: int) -> list[Decision]:
        found = []
        for some, label in zip(_columns(scores), _columns(target), strict=True):
            cut = decisions.best_threshold(some, label, metric=metric, **options)
            # not infinite, which JSON lacks: everything, or nothing, is above it all the same
            found.append(float(cut.clamp(float(some.min()) - 1, float(some.max()))))
        return [Decision("threshold", found)]

    return fit


def _columns(values: Tensor) -> list[Tensor]:
    return list(values.T.contiguous() if values.ndim == 2 else values[None])


def thresholds(scores: Tensor, count: int) -> list[float]:
    """Quantiles of the scores, the ends left out."""
    flat = scores.flatten()
    flat = flat[:: max(1, len(flat) // 10_000)].sort().values
    places = torch.linspace(0, len(flat) - 1, count + 2)[1:-1].long()
    return flat[places].tolist()
