"""The Tversky index of hard predictions, and the Dice coefficient, which is a case of it.

Tversky: Features of similarity, Psychological Review 1977.
"""

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


@checked(over=over_choice, batch_size=BATCH_SIZE)
def dice(
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
    """Mean Dice coefficient of hard predictions, 2 hits / (predicted + true pixels) of a class.

    It is the F1 score of the pixels of a class.

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

    Example:
        >>> dice(torch.tensor([[0, 1, 1]]), torch.tensor([[0, 0, 1]]), num_classes=2)
        tensor(0.6667, dtype=torch.float64)
    """
    counts = pixel_counts("dice", prediction, target, num_classes, ignore_index)
    groups = in_groups("dice", counts, over, batch_size)
    return mean_index("dice", groups, classes, zero_division, 0.5, 0.5)


@checked(over=over_choice, batch_size=BATCH_SIZE)
def tversky_index(
    prediction: Tensor,
    target: Tensor,
    *,
    num_classes: int,
    misses: float,
    false_alarms: float,
    over: Over = "dataset",
    batch_size: int | None = None,
    classes: Classes = "present",
    zero_division: float = 1.0,
    ignore_index: int | None = None,
) -> Tensor:
    """Mean Tversky index of hard predictions: hits / (hits + `misses` x missed pixels +
    `false_alarms` x pixels wrongly assigned to the class).

    Weights of 1 and 1 are the Jaccard index, 0.5 and 0.5 the Dice coefficient.

    Args:
        prediction: ``(N, *)`` predicted class indices; for binary tasks `logits > 0` with
            ``num_classes=2, classes=[1]``.
        target: ``(N, *)`` or ``(N, 1, *)``, true class indices. With two classes both may be
            floating-point masks of 0 and 1.
        num_classes: C.
        misses: weight of a false negative, a missed pixel of the class, relative to a hit.
        false_alarms: weight of a false positive, a pixel wrongly assigned to the class.
        over: ``"dataset"`` counts over all N images, ``"image"`` takes the mean over images,
            ``"batch"`` the mean over consecutive batches of `batch_size` images.
        batch_size: for ``over="batch"``.
        classes: ``"present"`` averages over the classes in the group's target, ``"all"`` over all
            C, a list over the classes in it.
        zero_division: value of 0/0, a class neither predicted nor true; NaN leaves it out.
        ignore_index: label of pixels to ignore.

    Example:
        >>> prediction, target = torch.tensor([[1, 1, 1, 0]]), torch.tensor([[1, 0, 0, 1]])
        >>> options = {"num_classes": 2, "misses": 2.0, "false_alarms": 0.5}
        >>> tversky_index(prediction, target, classes=[1], **options)  # 1 / (1 + 2 + 1)
        tensor(0.2500, dtype=torch.float64)
    """
    function = "tversky_index"
    counts = pixel_counts(function, prediction, target, num_classes, ignore_index)
    groups = in_groups(function, counts, over, batch_size)
    return mean_index(function, groups, classes, zero_division, misses, false_alarms)


@checked()
def tversky_from_counts(
    counts: Tensor,
    *,
    misses: float,
    false_alarms: float,
    classes: Classes = "present",
    zero_division: float = 1.0,
) -> Tensor:
    """Mean Tversky index of groups from their counts ``(G, C, 3)``: those of `jaccard_counts`,
    summed over each group. Weights of 0.5 and 0.5 are the Dice coefficient.

    Args:
        counts: intersection, predicted and true pixels, as returned by `jaccard_counts`, summed
            over each group.
        misses: weight of a false negative, a missed pixel of the class, relative to a hit.
        false_alarms: weight of a false positive, a pixel wrongly assigned to the class.
        classes: ``"present"`` averages over the classes in the group's target, ``"all"`` over all
            C, a list over the classes in it.
        zero_division: value of 0/0, a class neither predicted nor true; NaN leaves it out.

    Example:
        >>> counts = torch.tensor([[[1, 1, 2], [1, 2, 1], [0, 0, 0]]])
        >>> tversky_from_counts(counts, misses=0.5, false_alarms=0.5)
        tensor(0.6667, dtype=torch.float64)
    """
    function = "tversky_from_counts"
    given = given_counts(function, counts)
    return mean_index(function, given, classes, zero_division, misses, false_alarms)
