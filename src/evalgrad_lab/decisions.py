"""From scores to decisions: the threshold that validation chooses, for scores that one decides."""

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from evalgrad_lab.data.dataset import Examples
from evalgrad_lab.metrics import Measure, measured, thresholds

Scored = Iterable[tuple[Tensor, Tensor, Tensor | None]]  # scores, target, lists of each batch
CUTS = 100  # thresholds that are tried where one sweep measures all of them, else a fifth
SAMPLE = 1_000_000  # scores whose quantiles these are


def one_score(scores: Tensor, target_dims: int) -> Tensor:
    """Scores ``(N, 2, *)`` of two classes as one score ``(N, *)``, which is above 0 where the
    second is the larger; others as they are.
    """
    if scores.ndim == target_dims + 1 and scores.shape[1] == 2:
        return scores[:, 1] - scores[:, 0]
    return scores


def sample(examples: Examples, pixels: int) -> Examples:
    """Evenly spaced examples with about `SAMPLE` scores, of the same ones on every rank."""
    count = min(len(examples), max(1, SAMPLE // pixels))
    return examples.take([i * len(examples) // count for i in range(count)])


def choose_threshold(measure: Measure, scored: Scored, candidates: Tensor) -> tuple[float, float]:
    """The threshold with the best value on validation data, and that value; 0 wins a draw.

    Tried are 0 and quantiles of the scores that are `candidates`, in one pass over `scored`.
    """
    if measure.sweep is not None:
        cuts = thresholds(candidates, CUTS)
        scores, target, _ = measured(measure, scored).unbind(-1)
        values = measure.sweep(scores, target.long(), torch.tensor(cuts))
    else:
        cuts = thresholds(candidates, CUTS // 5)
        rows = measured(_at_each(measure, cuts), scored)
        values = torch.stack([measure.value(rows[:, k]) for k in range(len(cuts))])
    values = values.nan_to_num(0.0)
    best = int(values.argmax())
    return cuts[best], float(values[best])


def _at_each(measure: Measure, cuts: list[float]) -> Measure:
    """The rows at all thresholds, beside each other."""

    def rows(scores: Tensor, target: Tensor, _: float, lists: Tensor | None) -> Tensor:
        return torch.stack([measure.rows(scores, target, cut, lists) for cut in cuts], 1)

    return replace(measure, rows=rows)
