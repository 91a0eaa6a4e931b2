"""Top-k error. Ties count against the model."""

from torch import Tensor

from evalgrad import _checks
from evalgrad._masking import valid_mask


def topk_error(
    scores: Tensor, target: Tensor, *, k: int = 5, ignore_index: int | None = None
) -> Tensor:
    """Share of the samples whose label is not among the k best scores.

    Ties count against the model: a sample is right if fewer than k of the other classes score at
    least as much as its label, so that constant scores are wrong, not perfect. A NaN score counts
    against the model too.

    Args:
        scores: ``(N, C)`` or ``(N, C, *)`` scores.
        target: ``(N,)`` or ``(N, *)`` class indices.
        k: number of guesses, 1 to C.
        ignore_index: label of samples that are as if absent.

    Returns:
        The share as a float64 scalar; NaN if there is nothing to average.

    Example:
        >>> import torch
        >>> topk_error(torch.tensor([[3.0, 2.0, 1.0], [1.0, 1.0, 1.0]]), torch.tensor([1, 0]), k=2)
        tensor(0.5000, dtype=torch.float64)
    """
    function = "topk_error"
    _checks.check_floating(function, "scores", scores, at_least=2)
    classes = scores.shape[1]
    _checks.check_integer(
        function, "k", k, low=1, high=classes, repair=f"There are {classes} classes on axis 1."
    )
    _checks.check_ignore_index(function, ignore_index)
    _checks.check_target(function, target, scores, (scores.shape[0], *scores.shape[2:]))
    mask = valid_mask(target, ignore_index)
    _checks.check_labels(function, target, classes, mask)
    label = target.long() if mask is None else target.long().where(mask, 0)
    own = scores.gather(1, label.unsqueeze(1))
    ahead = (~(scores < own)).sum(1) - 1  # without the label itself
    wrong = (ahead >= k) if mask is None else (ahead >= k)[mask]
    return wrong.double().mean()
