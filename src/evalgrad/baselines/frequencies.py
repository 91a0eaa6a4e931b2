"""Class weights from the frequency of the classes in a stream of label maps."""

from collections.abc import Iterable

import torch
from torch import Tensor

from evalgrad._errors import describe, fail
from evalgrad._inputs import plain, with_values
from evalgrad._labels import class_labels
from evalgrad._options import CHECKS


def median_frequency_weights(
    targets: Tensor | Iterable[Tensor], *, num_classes: int, ignore_index: int | None = None
) -> Tensor:
    """Class weights median(f) / f_c, f_c = the fraction of pixels of class c in the images that
    contain it.

    Eigen, Fergus: Predicting Depth, Surface Normals and Semantic Labels, 2015. A class that never
    occurs has the weight 0.

    Args:
        targets: ``(N, *)`` class indices, or an iterable of such batches, e.g. ``(target for _,
            target in loader)``.
        num_classes: C.
        ignore_index: label of pixels to ignore.

    Returns:
        ``(C,)`` weights, as the losses and ``nn.CrossEntropyLoss`` take them.

    Example:
        >>> median_frequency_weights(torch.tensor([[0, 0, 0, 1], [0, 0, 2, 2]]), num_classes=3)
        tensor([0.8000, 2.0000, 1.0000])
    """
    pixels, among = _count_stream("median_frequency_weights", targets, num_classes, ignore_index)
    frequency = pixels / among.clamp(min=1)
    # of an even number of classes the mean of the two in the middle
    middle = frequency[pixels > 0].quantile(0.5)
    return torch.where(pixels > 0, middle / frequency, 0.0).to(torch.get_default_dtype())


def inverse_frequency_weights(
    targets: Tensor | Iterable[Tensor], *, num_classes: int, ignore_index: int | None = None
) -> Tensor:
    """Class weights in inverse proportion to the number of pixels, such that the mean weight of a
    pixel is 1.

    A class that never occurs has the weight 0.

    Args:
        targets: ``(N, *)`` class indices, or an iterable of such batches, e.g. ``(target for _,
            target in loader)``.
        num_classes: C.
        ignore_index: label of pixels to ignore.

    Example:
        >>> inverse_frequency_weights(torch.tensor([[0, 0, 0, 1]]), num_classes=2)
        tensor([0.6667, 2.0000])
    """
    pixels, _ = _count_stream("inverse_frequency_weights", targets, num_classes, ignore_index)
    share = pixels * (pixels > 0).sum() / pixels.sum()
    return torch.where(pixels > 0, 1 / share, 0.0).to(torch.get_default_dtype())


def _count_stream(
    function: str, targets: Tensor | Iterable[Tensor], num_classes: int, ignore_index: int | None
) -> tuple[Tensor, Tensor]:
    """Pixels of each class, and the valid pixels of the images that have it; float64 ``(C,)``."""
    CHECKS["num_classes"](function, "num_classes", num_classes)
    CHECKS["ignore_index"](function, "ignore_index", ignore_index)
    if not isinstance(targets, Iterable):
        must, repair = (
            "a tensor or an iterable of tensors",
            "Pass labels (N, *), or batches of them.",
        )
        fail(TypeError, function, "targets", must, describe(targets), repair)
    pixels = among = torch.zeros(num_classes, dtype=torch.float64)
    for target in [targets] if isinstance(targets, Tensor) else targets:
        counts = _count_images(function, target, num_classes, ignore_index)
        pixels = pixels + counts.sum(0)
        among = among + torch.where(counts > 0, counts.sum(1, keepdim=True), 0.0).sum(0)
    if not bool(pixels.sum()):
        must = "labels with at least one pixel that is not ignored"
        repair = "Check `ignore_index`, and pass an iterator that is not exhausted."
        fail(ValueError, function, "targets", must, "none", repair)
    return pixels, among


def _count_images(
    function: str, target: Tensor, num_classes: int, ignore_index: int | None
) -> Tensor:
    """Pixels of each class in each image of a batch, ``(N, C)``."""
    target = with_values(function, "targets", plain(function, "targets", target))
    if not target.ndim:
        repair = "Add a batch dimension: `target.unsqueeze(0)`."
        fail(ValueError, function, "targets", "(N, *)", describe(target), repair)
    rows = target.reshape(target.shape[0], target.shape[1:].numel()).cpu()
    words = {"argument": "targets", "more": "pass num_classes={number}"}
    return class_labels(function, rows, num_classes, ignore_index, **words).counts.double()
