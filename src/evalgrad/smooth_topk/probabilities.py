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
    """Probability of every class to be in a random k-subset drawn in proportion to exp(sum of its
    scores/temperature).

    Args:
        scores: ``(*, C)`` raw scores, classes on the last axis.
        k: number of guesses, 1 to C.
        temperature: divides the scores. The loss with temperature tau looks at subsets with
            ``temperature = k tau``.

    Returns:
        The shape of `scores`, values in [0, 1] that sum to k over the classes; differentiable. For
        k = 1 it is the softmax.

    Example:
        >>> topk_probabilities(torch.tensor([2.0, 1.0, 0.0]), k=2)
        tensor([0.9100, 0.7553, 0.3348])
    """
    scores = _scores("topk_probabilities", scores, k, at_least=1)
    rows = scores.reshape(scores.shape[:-1].numel(), scores.shape[-1]).to(WORKING[scores.dtype])
    found = probabilities(rows, k, 1 / temperature)
    return found.to(scores.dtype).reshape(scores.shape)


@checked()
def topk_predict(scores: Tensor, *, k: int, temperature: float = 1.0) -> Tensor:
    """The k labels with the largest `topk_probabilities`, averaged over several crops (views) of
    each sample.

    Args:
        scores: ``(*, crops, C)`` raw scores of every crop; one view of a sample is
            `scores.unsqueeze(-2)`.
        k: number of labels, 1 to C.
        temperature: as `topk_probabilities`.

    Returns:
        ``(*, k)`` labels, the most probable first.

    Example:
        >>> crops = torch.tensor([[3.0, 0.0, 1.0, 2.0], [3.0, 2.0, 0.0, 1.5]])  # of one sample
        >>> topk_predict(crops, k=2)
        tensor([0, 3])
    """
    scores = _scores("topk_predict", scores, k, at_least=2)
    if scores.shape[-2] == 0:
        must, repair = "(*, crops, C) with crops >= 1", "Give at least one crop of every sample."
        fail(ValueError, "topk_predict", "scores", must, describe(scores), repair)
    mean = (
        topk_probabilities(scores.detach(), k=k, temperature=temperature)
        .to(WORKING[scores.dtype])
        .mean(-2)
    )
    return mean.topk(k, dim=-1).indices


def _scores(function: str, scores: Tensor, k: int, *, at_least: int) -> Tensor:
    scores = floating(function, "scores", scores, at_least=at_least)
    repair = f"There are {scores.shape[-1]} classes on the last axis."
    integer(1, scores.shape[-1], repair=repair)(function, "k", k)
    return scores
