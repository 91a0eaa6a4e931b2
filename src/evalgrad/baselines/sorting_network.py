"""Top-k cross-entropy through a differentiable sorting network. Ordinary autograd.

A network of comparators sorts the highest scores; a comparator of two neighbours swaps them with
the probability sigmoid((lower - upper) / temperature), and passes on their means. The product of
its layers says with what probability the label comes out at each place, and the loss is -log of
the probability of the first k. Petersen, Kuehne, Borgelt, Deussen: Differentiable top-k
classification learning, ICML 2022, with the odd-even network, logistic comparators and one k.
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from evalgrad._errors import fail
from evalgrad._inputs import Weight
from evalgrad._module import LossModule
from evalgrad._options import Reduction, checked, integer
from evalgrad.baselines.topk import finite_scores, of_samples

CANDIDATES = integer(2, repair="The paper sorts the 16 highest scores.")


@checked(candidates=CANDIDATES)
def sorting_network_topk_loss(
    scores: Tensor,
    target: Tensor,
    *,
    k: int = 5,
    temperature: float = 1.0,
    candidates: int = 16,
    ignore_index: int | None = None,
    weight: Weight = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """-log of the probability that a differentiable sorting network puts the label among the first
    k.

    Args:
        scores: ``(N, C)``, ``(N, C, *)`` or ``(C,)`` raw scores, as `F.cross_entropy` takes them.
        target: ``(N,)``, ``(N, *)`` or ``()`` class indices, of any integer dtype.
        k: number of guesses, 1 to C - 1.
        temperature: temperature of the comparators; towards 0 the network sorts exactly.
        candidates: how many scores are sorted, the label's and the highest of the others; more than
            `k`. The others have no gradient.
        ignore_index: label of samples to ignore.
        weight: C class weights, a tensor or a sequence.
        reduction: ``"mean"``: the weighted mean over the samples that are not ignored; ``"sum"``;
            ``"none"``: the shape of `target`, 0 for ignored samples.

    Example:
        >>> sorting_network_topk_loss(torch.tensor([[3.0, 3.0]]), torch.tensor([0]), k=1)  # log 2
        tensor(0.6931)
    """
    _check_candidates(candidates, k)

    def core(x: Tensor, y: Tensor) -> Tensor:
        ranked, place = _candidates(x, y, min(candidates, x.shape[1]))
        return -_log_places(ranked, place, temperature)[:, :k].logsumexp(1)

    given = {"ignore_index": ignore_index, "weight": weight}
    return of_samples("sorting_network_topk_loss", core, scores, target, k, reduction, **given)


class SortingNetworkTopKLoss(LossModule):
    """`sorting_network_topk_loss` as an `nn.Module`: ``loss(scores, target)``.

    Args:
        k: number of guesses, 1 to C - 1.
        temperature: temperature of the comparators; towards 0 the network sorts exactly.
        candidates: how many scores are sorted, the label's and the highest of the others; more than
            `k`. The others have no gradient.
        ignore_index: label of samples to ignore.
        weight: C class weights, a tensor or a sequence.
        reduction: ``"mean"``: the weighted mean over the samples that are not ignored; ``"sum"``;
            ``"none"``: the shape of `target`, 0 for ignored samples.

    Example:
        >>> loss = SortingNetworkTopKLoss(k=3)
        >>> scores = torch.randn(8, 100, requires_grad=True)
        >>> loss(scores, torch.randint(100, (8,))).backward()
    """

    function = staticmethod(sorting_network_topk_loss)

    def __init__(
        self,
        *,
        k: int = 5,
        temperature: float = 1.0,
        candidates: int = 16,
        ignore_index: int | None = None,
        weight: Weight = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(locals())

    def _check_together(self, options: Mapping[str, Any]) -> None:
        _check_candidates(options["candidates"], options["k"])


def _check_candidates(candidates: int, k: int) -> None:
    if candidates <= k:
        must, repair = f"above k = {k}", "Sort more scores than k."
        fail(ValueError, "sorting_network_topk_loss", "candidates", must, repr(candidates), repair)


def _candidates(x: Tensor, y: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The label's score and the highest of the others in decreasing order, ``(R, count)``, and the
    label's column ``(R, 1)``, behind those that it ties with.
    """
    x = finite_scores(x)
    others = x.scatter(1, y, -torch.inf).topk(count - 1, dim=1).values
    own = x.gather(1, y)
    place = (others >= own).sum(1, keepdim=True)
    column = torch.arange(count, device=x.device)
    shifted = torch.cat([others, own], 1).gather(1, (column - (column > place).long()))
    return torch.where(column == place, own, shifted), place


def _log_places(ranked: Tensor, place: Tensor, temperature: float) -> Tensor:
    """Log-probabilities ``(R, m)`` of the label's places behind the network.

    Of the product of the layers it needs one column, which each layer multiplies. In logarithms,
    from a lowest number instead of -inf, whose sums have no slope.
    """
    column = torch.full_like(ranked, torch.finfo(ranked.dtype).min / 8).scatter(1, place, 0.0)
    for layer in range(ranked.shape[1]):
        ranked, column = _layer(ranked, column, layer % 2, temperature)
    return column


def _layer(ranked: Tensor, column: Tensor, start: int, temperature: float) -> tuple[Tensor, Tensor]:
    """Comparators of the neighbours (start, start + 1), (start + 2, start + 3), ..."""
    end = start + (ranked.shape[1] - start) // 2 * 2
    upper, lower = ranked[:, start:end].unflatten(1, (-1, 2)).unbind(2)
    kept = F.logsigmoid((upper - lower) / temperature)
    swapped = F.logsigmoid((lower - upper) / temperature)
    stays, goes = kept.exp(), swapped.exp()
    means = torch.stack([upper * stays + lower * goes, upper * goes + lower * stays], 2)
    here, below = column[:, start:end].unflatten(1, (-1, 2)).unbind(2)
    logs = torch.stack(
        [
            torch.logaddexp(here + kept, below + swapped),
            torch.logaddexp(here + swapped, below + kept),
        ],
        2,
    )
    return _replaced(ranked, means, start, end), _replaced(column, logs, start, end)


def _replaced(x: Tensor, pairs: Tensor, start: int, end: int) -> Tensor:
    """`x` with the columns of the comparators, ``(R, pairs, 2)``, in their places."""
    return torch.cat([x[:, :start], pairs.flatten(1), x[:, end:]], 1)
