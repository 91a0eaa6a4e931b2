"""Top-k error. Ties count against the model, always."""

import torch
from torch import Tensor

from evalgrad._inputs import samples
from evalgrad._labels import IGNORED, UNDECLARED
from evalgrad._options import checked, integer


@checked()
def topk_error(
    scores: Tensor, target: Tensor, *, k: int = 5, ignore_index: int | None = None
) -> Tensor:
    """Fraction of the samples whose label is not among the k highest scores.

    Ties count against the model: a sample is right if fewer than k of the other classes score at
    least as much as its label, so that constant scores are wrong. A NaN score counts against the
    model too.

    Args:
        scores: ``(N, C)``, ``(N, C, *)`` or ``(C,)`` scores.
        target: ``(N,)``, ``(N, *)`` or ``()`` class indices.
        k: number of guesses, 1 to C.
        ignore_index: label of samples to ignore.

    Returns:
        The fraction as a float64 scalar; NaN if there is nothing to average.

    Example:
        >>> topk_error(torch.tensor([[3.0, 2.0, 1.0], [1.0, 1.0, 1.0]]), torch.tensor([1, 0]), k=2)
        tensor(0.5000, dtype=torch.float64)
    """
    function = "topk_error"
    given = samples(function, scores, target, ignore_index=ignore_index, weight=None)
    classes = given.rows.shape[1]
    integer(1, classes, repair=f"There are {classes} classes in dim 1.")(function, "k", k)
    own = given.rows.gather(1, given.label.clamp(min=0).unsqueeze(1))
    ahead = (~(given.rows < own)).sum(1) - 1  # without the label itself
    counted = given.label != IGNORED
    wrong = torch.where(given.label == UNDECLARED, torch.nan, (ahead >= k).double())
    return torch.where(counted, wrong, 0.0).sum() / counted.sum()  # nothing: 0/0 is NaN
