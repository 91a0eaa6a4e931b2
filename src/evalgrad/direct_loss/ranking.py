"""Direct loss minimisation for rankings: the network is trained on 1 - AP or 1 - NDCG of its own
ranking.

A ranking y of positives (scores phi) and negatives (scores psi) has the score F(y) = (1/|P||N|)
sum_ij y_ij (phi_i - psi_j), which the model's own ranking y_w maximises. The gradient of the
expected task loss is the limit of (s/eps) (dF(y_direct) - dF(y_w)) with y_direct the maximiser of F
+ s eps Delta (General Loss Gradient Theorem). Both are computed exactly: y_direct by divide and
conquer for s = +1, by a chain of running maxima for s = -1 and for a cutoff (docs/maths.md,
"Rankings"). Song, Schwing, Zemel, Urtasun: Training deep neural networks via direct loss
minimization, ICML 2016.
"""

from torch import Tensor

from evalgrad._binary_inputs import Binary, lists
from evalgrad._module import LossModule
from evalgrad._options import Direction, Reduction, checked, integer
from evalgrad._rows import any_item, attach, row_factor, working
from evalgrad.direct_loss.operators import SIGNS, direct_ranking

CUTOFF = integer(
    1, none=True, repair="Pass the cutoff, the number of first items to use; None uses all."
)


@checked()
def direct_average_precision_loss(
    scores: Tensor,
    target: Tensor,
    *,
    epsilon: float = 0.1,
    direction: Direction = "positive",
    mask: Tensor | None = None,
    dim: int | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """1 - average precision of the scores, with the direct loss gradient.

    The loss only ranks: the trained scores have no natural threshold; choose one on validation
    data.

    Args:
        scores: ``(*, n)``, the scores by which the n items of each list are ranked; the leading
            dimensions are queries or classes. ``(N, 1)``, N lists of one item, raises an error
            unless `dim` is given.
        target: the same shape, 1 or True for positives and 0 for negatives. Lists may have
            different numbers of positives; a list without a positive or without a negative is
            skipped: value 0, gradient 0, left out of the mean.
        epsilon: how far y_direct may be from the model's ranking. It acts on F, which scales with
            the scores and with 1/(|P||N|). With small values the gradient is nearly unbiased, but
            zero for most lists and noisy for the others; large values regularise. Choose it on
            validation data; `suggest_epsilon` returns a starting value.
        direction: ``"positive"`` moves away from a worse ranking, ``"negative"`` towards a better
            one. "positive" is cheaper, and better in the paper's experiments with noisy data.
        mask: bool, the same shape, True = keep; the other items are ignored. Use it for padding.
        dim: the dimension of the items; None is the last one. Pass ``dim=0`` to rank the scores
            ``(batch, classes)`` of a multilabel task per class, as scikit-learn and torchmetrics
            do.
        reduction: over lists ``"mean"`` | ``"sum"`` | ``"none"``: one value per list.

    A negative tied with a positive ranks above it, in value and gradient.

    Example:
        >>> import torch
        >>> scores = torch.tensor([0.3, 0.1, 0.2], requires_grad=True)
        >>> loss = direct_average_precision_loss(scores, torch.tensor([1, 1, 0]), epsilon=0.5)
        >>> loss.backward()
        >>> # the ranking + - + has precisions 1 and 2/3; y_direct = - + +
        >>> round(loss.item(), 4), scores.grad
        (0.1667, tensor([-2.,  0.,  2.]))
    """
    batch = lists("direct_average_precision_loss", scores, target, mask, dim=dim)
    return direct_lists(batch, epsilon, direction, ndcg=False, k=0, reduction=reduction)


class DirectLossModule(LossModule):
    """The options of a direct loss over lists; the modules differ in their function alone."""

    def __init__(
        self,
        *,
        epsilon: float = 0.1,
        direction: Direction = "positive",
        dim: int | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(locals())


class DirectAveragePrecisionLoss(DirectLossModule):
    """`direct_average_precision_loss` as an `nn.Module`: ``loss(scores, target, mask)``.

    Args:
        epsilon: how far y_direct may be from the model's ranking. It acts on F, which scales with
            the scores and with 1/(|P||N|). With small values the gradient is nearly unbiased, but
            zero for most lists and noisy for the others; large values regularise. Choose it on
            validation data; `suggest_epsilon` returns a starting value.
        direction: ``"positive"`` moves away from a worse ranking, ``"negative"`` towards a better
            one. "positive" is cheaper, and better in the paper's experiments with noisy data.
        dim: the dimension of the items; None is the last one. Pass ``dim=0`` to rank the scores
            ``(batch, classes)`` of a multilabel task per class, as scikit-learn and torchmetrics
            do.
        reduction: over lists ``"mean"`` | ``"sum"`` | ``"none"``: one value per list.

    Example:
        >>> loss = DirectAveragePrecisionLoss(epsilon=0.5)
        >>> scores, target = torch.randn(4, 50, requires_grad=True), torch.rand(4, 50) < 0.2
        >>> loss(scores, target).backward()
    """

    function = staticmethod(direct_average_precision_loss)


@checked(k=CUTOFF)
def direct_ndcg_loss(
    scores: Tensor,
    target: Tensor,
    *,
    k: int | None = None,
    epsilon: float = 0.1,
    direction: Direction = "positive",
    mask: Tensor | None = None,
    dim: int | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """1 - NDCG of the scores, for binary relevance, with the direct loss gradient.

    Args:
        scores: ``(*, n)``, the scores by which the n items of each list are ranked; the leading
            dimensions are queries or classes. ``(N, 1)``, N lists of one item, raises an error
            unless `dim` is given.
        target: the same shape, 1 or True for relevant items. Grades: `direct_graded_ndcg_loss`.
        k: use only the first k items (NDCG@k); None uses all. In the positive direction a list
            without a positive among the first k items has no gradient: start with a larger k or
            with another loss, or use ``direction="negative"`` (docs/direct_loss.md).
        epsilon: how far y_direct may be from the model's ranking. It acts on F, which scales with
            the scores and with 1/(|P||N|). With small values the gradient is nearly unbiased, but
            zero for most lists and noisy for the others; large values regularise. Choose it on
            validation data; `suggest_epsilon` returns a starting value.
        direction: ``"positive"`` moves away from a worse ranking, ``"negative"`` towards a better
            one. "positive" is cheaper, and better in the paper's experiments with noisy data.
        mask: bool, the same shape, True = keep; the other items are ignored. Use it for padding.
        dim: the dimension of the items; None is the last one. Pass ``dim=0`` to rank the scores
            ``(batch, classes)`` of a multilabel task per class, as scikit-learn and torchmetrics
            do.
        reduction: over lists ``"mean"`` | ``"sum"`` | ``"none"``: one value per list.

    Example:
        >>> import torch
        >>> scores = torch.randn(4, 50, requires_grad=True)
        >>> direct_ndcg_loss(scores, torch.rand(4, 50) > 0.8, k=10).backward()
    """
    batch = lists("direct_ndcg_loss", scores, target, mask, dim=dim)
    places = 0 if k is None else k
    return direct_lists(batch, epsilon, direction, ndcg=True, k=places, reduction=reduction)


class DirectNDCGLoss(LossModule):
    """`direct_ndcg_loss` as an `nn.Module`: ``loss(scores, target, mask)``.

    Args:
        k: use only the first k items (NDCG@k); None uses all. In the positive direction a list
            without a positive among the first k items has no gradient: start with a larger k or
            with another loss, or use ``direction="negative"`` (docs/direct_loss.md).
        epsilon: how far y_direct may be from the model's ranking. It acts on F, which scales with
            the scores and with 1/(|P||N|). With small values the gradient is nearly unbiased, but
            zero for most lists and noisy for the others; large values regularise. Choose it on
            validation data; `suggest_epsilon` returns a starting value.
        direction: ``"positive"`` moves away from a worse ranking, ``"negative"`` towards a better
            one. "positive" is cheaper, and better in the paper's experiments with noisy data.
        dim: the dimension of the items; None is the last one. Pass ``dim=0`` to rank the scores
            ``(batch, classes)`` of a multilabel task per class, as scikit-learn and torchmetrics
            do.
        reduction: over lists ``"mean"`` | ``"sum"`` | ``"none"``: one value per list.

    Example:
        >>> loss = DirectNDCGLoss(k=10, epsilon=0.5)
        >>> scores, target = torch.randn(4, 50, requires_grad=True), torch.rand(4, 50) < 0.2
        >>> loss(scores, target).backward()
    """

    function = staticmethod(direct_ndcg_loss)

    def __init__(
        self,
        *,
        k: int | None = None,
        epsilon: float = 0.1,
        direction: Direction = "positive",
        dim: int | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(locals())


def direct_lists(
    batch: Binary, epsilon: float, direction: Direction, *, ndcg: bool, k: int, reduction: Reduction
) -> Tensor:
    """The direct loss of rankings, of the lists of a batch."""
    value, _, gradient = direct_ranking(
        working(batch.rows), batch.positive, batch.mask, float(epsilon), SIGNS[direction], ndcg, k
    )
    factor = row_factor(batch.rows, live_lists(batch), reduction, batch.invalid)
    return attach(batch.rows, value, gradient, reduction, factor=factor, shape=batch.shape)


def live_lists(batch: Binary) -> Tensor:
    """Which lists have a positive and a negative that count; the others are void."""
    positive, negative = batch.counted()
    return any_item(positive) & any_item(negative)
