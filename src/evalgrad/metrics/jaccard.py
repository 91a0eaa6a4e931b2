"""The Jaccard index (IoU) of hard predictions, from counts that add up over batches and ranks."""

from torch import Tensor

from evalgrad._options import Classes, checked
from evalgrad.metrics.overlap import (
    BATCH_SIZE,
    Over,
    given_counts,
    in_groups,
    mean_index,
    over_choice,
    pixel_counts,
)


@checked()
def jaccard_counts(
    prediction: Tensor, target: Tensor, *, num_classes: int, ignore_index: int | None = None
) -> Tensor:
    """Intersection, predicted and true pixels of every class in every image: ``(N, C, 3)``
    integers.

    Counts of several batches or ranks can be summed (over dim 0) to those of the dataset;
    `jaccard_from_counts` computes the index from them.

    Args:
        prediction: ``(N, *)`` predicted class indices; for binary tasks `logits > 0`.
        target: ``(N, *)`` or ``(N, 1, *)``, true class indices. With two classes both may be
            floating-point masks of 0 and 1.
        num_classes: C.
        ignore_index: label of pixels to ignore.

    Returns:
        int64. With `torch.compile` or `vmap` and on a GPU, where labels are not read, an image with
        an invalid label has negative counts, and the index of every group that contains it is NaN.

    Example:
        >>> prediction, target = torch.tensor([[0, 1, 1]]), torch.tensor([[0, 0, 1]])
        >>> jaccard_counts(prediction, target, num_classes=2)
        tensor([[[1, 1, 2],
                 [1, 2, 1]]])
    """
    return pixel_counts("jaccard_counts", prediction, target, num_classes, ignore_index)


@checked()
def jaccard_from_counts(
    counts: Tensor, *, classes: Classes = "present", zero_division: float = 1.0
) -> Tensor:
    """Mean Jaccard index of groups from their counts ``(G, C, 3)``: over the classes of each group,
    then over the groups.

    Args:
        counts: intersection, predicted and true pixels, as returned by `jaccard_counts`, summed
            over each group.
        classes: ``"present"`` averages over the classes in the group's target, ``"all"`` over all
            C, a list over the classes in it.
        zero_division: value of 0/0, a class neither predicted nor true; NaN leaves it out.

    Returns:
        The mean as a float64 scalar. A group that is entirely ignored is left out; the mean of no
        group is NaN.

    Example:
        >>> counts = torch.tensor([[[1, 1, 2], [1, 2, 1], [0, 0, 0]]])
        >>> jaccard_from_counts(counts, classes="all")
        tensor(0.6667, dtype=torch.float64)
        >>> jaccard_from_counts(counts, classes="all", zero_division=float("nan"))
        tensor(0.5000, dtype=torch.float64)
    """
    function = "jaccard_from_counts"
    return mean_index(function, given_counts(function, counts), classes, zero_division)


@checked(over=over_choice, batch_size=BATCH_SIZE)
def jaccard_index(
    prediction: Tensor,
    target: Tensor,
    *,
    num_classes: int,
    over: Over = "dataset",
    batch_size: int | None = None,
    classes: Classes = "present",
    zero_division: float = 1.0,
    ignore_index: int | None = None,
) -> Tensor:
    """Mean Jaccard index (mIoU) of hard predictions.

    Args:
        prediction: ``(N, *)`` predicted class indices; for binary tasks `logits > 0` with
            ``num_classes=2, classes=[1]``.
        target: ``(N, *)`` or ``(N, 1, *)``, true class indices. With two classes both may be
            floating-point masks of 0 and 1.
        num_classes: C.
        over: ``"dataset"`` counts over all N images, ``"image"`` takes the mean over images,
            ``"batch"`` the mean over consecutive batches of `batch_size` images.
        batch_size: for ``over="batch"``.
        classes: ``"present"`` averages over the classes in the group's target, ``"all"`` over all
            C, a list over the classes in it.
        zero_division: value of 0/0, a class neither predicted nor true; NaN leaves it out.
        ignore_index: label of pixels to ignore.

    Returns:
        As `jaccard_from_counts`.

    Example:
        >>> jaccard_index(torch.tensor([[0, 1, 1]]), torch.tensor([[0, 0, 1]]), num_classes=2)
        tensor(0.5000, dtype=torch.float64)
    """
    function = "jaccard_index"
    counts = pixel_counts(function, prediction, target, num_classes, ignore_index)
    return mean_index(
        function, in_groups(function, counts, over, batch_size), classes, zero_division
    )
