"""The extra node of the paper's experiments: predict whether the object in an image is large, next
to the main task.

`SizeHead` puts one score per image on any feature map; the labels s come from the training masks,
by the mean foreground size (experiments 1 and 2) or by a volume threshold per class and the vote of
the classes present (experiment 3).

The head only matters where it shares parameters with the main task: next to a linear classifier it
changes nothing.
"""

import torch
from torch import Tensor, nn

from evalgrad._errors import describe, fail
from evalgrad._inputs import floating, plain
from evalgrad._labels import class_labels, fail_indices
from evalgrad._options import checked, integer


class SizeHead(nn.Module):
    """Scores (N,) for two size groups, (N, groups) for more, from features (N, D) or (N, D, *)
    averaged over space.

    Args:
        in_features: D, the number of channels of the features.
        groups: number of size groups.

    Example:
        >>> SizeHead(16)(torch.randn(2, 16, 8, 8)).shape
        torch.Size([2])
    """

    def __init__(self, in_features: int, groups: int = 2) -> None:
        super().__init__()
        repair = "Pass the number of channels of its input."
        integer(1, most=2**31 - 1, repair=repair)("SizeHead", "in_features", in_features)
        integer(2, most=2**20, repair="Use 2 for small and large.")("SizeHead", "groups", groups)
        self.in_features, self.groups = in_features, groups
        self.node = nn.Linear(in_features, 1 if groups == 2 else groups)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, groups={self.groups}"

    def forward(self, features: Tensor) -> Tensor:
        features = floating("SizeHead", "features", features, at_least=2)
        if features.shape[1] != self.in_features:
            must = f"(N, {self.in_features}, *)"
            repair = "Construct the head with the number of channels of its input."
            fail(ValueError, "SizeHead", "features", must, describe(features), repair)
        average = features.flatten(2).mean(-1) if features.ndim > 2 else features
        return self.node(average).squeeze(-1)


class SizeLabels(nn.Module):
    """Size labels of masks: 1 if the foreground is larger than the mean foreground of the training
    masks.

    `fit` takes the mean over training masks (n, *), bool or any dtype with foreground != 0, and
    discards earlier ones; `partial_fit` adds one batch, for masks that come in batches. A call
    returns (n,) int64 labels.

    Example:
        >>> rule = SizeLabels()
        >>> for masks in (torch.ones(2, 4), torch.zeros(1, 4)):
        ...     rule = rule.partial_fit(masks)
        >>> rule(torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]]))
        tensor([1, 0])
    """

    threshold: Tensor
    masks: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("threshold", torch.tensor(torch.nan, dtype=torch.float64))
        self.register_buffer("masks", torch.tensor(0))  # how many the threshold is the mean of

    def fit(self, masks: Tensor) -> "SizeLabels":
        self.masks.zero_()
        return self.partial_fit(masks)

    def partial_fit(self, masks: Tensor) -> "SizeLabels":
        area = _area(masks)
        before = int(self.masks)
        total = area.sum() + (float(self.threshold) * before if before else 0.0)
        if before + len(area):
            self.threshold.copy_(total / (before + len(area)))
        self.masks += len(area)
        return self

    def forward(self, masks: Tensor) -> Tensor:
        if bool(self.threshold.isnan()):
            repair = "Call `fit(training_masks)` first."
            fail(ValueError, "SizeLabels", "threshold", "fitted", "none", repair)
        return (_area(masks) > self.threshold).long()


@checked(classes=integer(1, most=2**20, repair="Pass the number of classes."))
def majority_size_labels(
    target: Tensor,
    *,
    classes: int,
    threshold: float | Tensor = 0.05,
    ignore_index: int | None = None,
) -> Tensor:
    """1 if most classes present in a label map are large: more than half of them cover more than
    `threshold`.

    Args:
        target: (N, *) class of every pixel.
        classes: number of classes.
        threshold: fraction of the pixels that are not ignored above which a class is large, one
            number or (classes,) one per class.
        ignore_index: label left out of the volumes and of the pixel count.

    Returns:
        (N,) int64. An image with an even vote, or with all pixels ignored, is small (0).

    Example:
        >>> majority_size_labels(torch.tensor([[1, 1, 0, 0], [2, 0, 0, 0]]), classes=3)
        tensor([1, 1])
    """
    name = "majority_size_labels"
    target = plain(name, "target", target)
    if not target.ndim:
        must, repair = "(N, *), one map per image", "Add a batch dimension: `target[None]`."
        fail(ValueError, name, "target", must, describe(target), repair)
    if target.is_floating_point() or target.is_complex():
        fail_indices(name, "target", target)
    rows = target.reshape(target.shape[0], target.shape[1:].numel())
    volume = class_labels(name, rows, classes, ignore_index, more="pass classes={number}").counts
    share = volume.double() / volume.sum(1, keepdim=True).clamp_min(1)
    large = (share > _thresholds(threshold, classes, share)).sum(1)
    return (2 * large > (volume > 0).sum(1)).long()


def _thresholds(threshold: object, classes: int, share: Tensor) -> Tensor:
    """One number, or one per class."""
    must, repair = f"a number or ({classes},)", "Pass e.g. threshold=0.05."
    try:
        given = torch.as_tensor(threshold)
    except (TypeError, ValueError, RuntimeError):
        fail(TypeError, "majority_size_labels", "threshold", must, describe(threshold), repair)
    given = plain("majority_size_labels", "threshold", given)
    if given.is_complex() or given.shape not in ((), (classes,)) or bool(given.isnan().any()):
        fail(ValueError, "majority_size_labels", "threshold", must, describe(threshold), repair)
    return given.to(share)


def _area(masks: Tensor) -> Tensor:
    masks = plain("SizeLabels", "masks", masks)
    if masks.ndim < 2:
        must, repair = "(N, *), one mask per image", "Add a batch dimension: `masks[None]`."
        fail(ValueError, "SizeLabels", "masks", must, describe(masks), repair)
    return (masks != 0).flatten(1).sum(1).double()
