"""Predicting k labels: the probability that a class is among the k, and its mean over several views
of a sample.

A softmax over the scores is grounded for one guess. For k of them, the probability of class i is
the share of the k-subsets that contain it, each subset weighing exp of the sum of its scores: d log
sigma_k / d s_i, which sum to k. Berrada, Zisserman, Kumar: Smooth loss functions for deep top-k
classification, ICLR 2018, section 5.2 and appendix C.
"""

from torch import Tensor

from evalgrad._errors import describe, fail
from evalgrad._inputs import WORKING, floating
from evalgrad._options import checked, integer
from evalgrad.smooth_topk.expansion import probabilities


@checked()
def topk_probabilities(scores: Tensor, *, k: int, temperature: float = 1.0) -> Tensor:
    """Probability that each class belongs to a random k-subset, drawn with probability proportional
    to exp(sum of its scores / temperature).

    Args:
        scores: ``(*, C)`` raw scores, with the classes in the last dimension.
        k: number of guesses, 1 to C.
        temperature: divides the scores. The loss with temperature tau uses subsets with
            ``temperature = k tau``.

    Returns:
        The shape of `scores`, values in [0, 1] that sum to k over the classes; differentiable. For
        k = 1 it is the softmax.

    Example:
        >>> topk_probabilities(torch.tensor([2.0, 1.0, 0.0]), k=2)
        tensor([0.9100, 0.7553, 0.3348])
    """
    scores = _scores("topk_probabilities", scores, k)
    rows = scores.reshape(scores.shape[:-1].numel(), scores.shape[-1]).to(WORKING[scores.dtype])
    found = probabilities(rows, k, 1 / temperature)
    return found.to(scores.dtype).reshape(scores.shape)


@checked(crop_dim=integer(-64, 63, none=True, repair="Pass the dimension of the crops, e.g. -2."))
def topk_predict(
    scores: Tensor, *, k: int, temperature: float = 1.0, crop_dim: int | None = None
) -> Tensor:
    """The k labels with the largest `topk_probabilities`, optionally averaged over several crops
    (views) of each sample.

    Args:
        scores: ``(*, C)`` raw scores, with the classes in the last dimension.
        k: number of labels, 1 to C.
        temperature: divides the scores. The loss with temperature tau uses subsets with
            ``temperature = k tau``.
        crop_dim: the dimension of the crops of a sample, -2 for ``(N, crops, C)``; None if there is
            one view of each sample.

    Returns:
        ``(*, k)`` labels, the most probable first, without the dimension of the crops.

    Example:
        >>> crops = torch.tensor([[3.0, 0.0, 1.0, 2.0], [3.0, 2.0, 0.0, 1.5]])
        >>> topk_predict(crops, k=2)  # two samples
        tensor([[0, 3],
                [0, 1]])
        >>> topk_predict(crops, k=2, crop_dim=0)  # two crops of one sample
        tensor([0, 3])
    """
    function = "topk_predict"
    scores = _scores(function, scores, k)
    mean = topk_probabilities(scores.detach(), k=k, temperature=temperature)
    mean = mean.to(WORKING[scores.dtype])
    if crop_dim is not None:
        _check_crops(function, scores, crop_dim)
        mean = mean.mean(crop_dim)
    return mean.topk(k, dim=-1).indices


def _check_crops(function: str, scores: Tensor, crop_dim: int) -> None:
    axes = scores.ndim - 1  # the last holds the classes
    if crop_dim == -1 or not -axes - 1 <= crop_dim < axes:
        must, repair = f"a dimension in [0, {axes - 1}]", "The last dimension has the classes."
        fail(ValueError, function, "crop_dim", must, repr(crop_dim), repair)
    if scores.shape[crop_dim] == 0:
        repair = "Pass at least one crop per sample."
        fail(ValueError, function, "scores", "one crop or more", describe(scores), repair)


def _scores(function: str, scores: Tensor, k: int) -> Tensor:
    scores = floating(function, "scores", scores)
    repair = f"There are {scores.shape[-1]} classes in the last dimension."
    integer(1, scores.shape[-1], repair=repair)(function, "k", k)
    return scores
